"""The memory request and limit of a plugin, by its number of devices.

`python -m benchmarks memory` measures the memory of a plugin with few devices and the memory of
each further device. An idle plugin needs less than 1 ms of CPU per second.
"""

from typing import Any

REQUEST_MIB = 40
LEAST_LIMIT_MIB = 128
"""The smallest limit. It is also the limit of a plugin whose number of devices is not known.

`limit_mib` takes half of it for a plugin without devices, and `resources` adds half of what the
limit has above it to the request.
"""
BYTES_PER_DEVICE = 4096
"""3 kB at the peak, and head room."""
_STEP_MIB = 64  # limits are multiples of this


def limit_mib(devices: int) -> int:
    """Return the memory limit of a plugin with so many devices, in MiB; 0 devices: unknown."""
    wanted = LEAST_LIMIT_MIB // 2 + devices * BYTES_PER_DEVICE // 2**20
    return max(LEAST_LIMIT_MIB, -(-wanted // _STEP_MIB) * _STEP_MIB)


def resources(devices: int) -> dict[str, Any]:
    """Return requests and limits of the container, without a CPU limit: that slows Allocate."""
    request = REQUEST_MIB + (limit_mib(devices) - LEAST_LIMIT_MIB) // 2
    return {
        "requests": {"cpu": "10m", "memory": f"{request}Mi"},
        "limits": {"memory": f"{limit_mib(devices)}Mi"},
    }
