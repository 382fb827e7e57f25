"""How much memory a plugin gets: what it takes with few devices, and what each further one adds.

`python -m benchmarks memory` measures both; idle, a plugin needs less than 1 ms of CPU a second.
"""

from typing import Any

REQUEST_MIB = 40
LEAST_LIMIT_MIB = 128
"""For up to 10,000 devices, and where their number is not known before the start."""
BYTES_PER_DEVICE = 4096
"""3 kB at the peak, and head room."""
_STEP_MIB = 64


def limit_mib(devices: int) -> int:
    """Return the limit of a plugin with so many devices, 0 for an unknown number, in MiB."""
    wanted = LEAST_LIMIT_MIB // 2 + devices * BYTES_PER_DEVICE // 2**20
    return max(LEAST_LIMIT_MIB, -(-wanted // _STEP_MIB) * _STEP_MIB)


def resources(devices: int) -> dict[str, Any]:
    """Return requests and limits of the container; no CPU limit, which would throttle Allocate."""
    request = REQUEST_MIB + (limit_mib(devices) - LEAST_LIMIT_MIB) // 2
    return {
        "requests": {"cpu": "10m", "memory": f"{request}Mi"},
        "limits": {"memory": f"{limit_mib(devices)}Mi"},
    }
