"""Kubernetes device plugins in Python, both sides of the socket.

These names are for authors of plugins. A name is imported when it is used for the first time, so
`import kubedevices` is cheap. The code of a node begins in `kubedevices.node.device_manager`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kubedevices.version import VERSION

if TYPE_CHECKING:
    from kubedevices.allocation import (
        AllocateRequest,
        AllocateResponse,
        ClaimedDevices,
        ContainerAllocateRequest,
        ContainerAllocateResponse,
        ContainerPreferredRequest,
        PreferredAllocationRequest,
        PreferredAllocationResponse,
        PreStartContainerRequest,
    )
    from kubedevices.device import Device, DeviceSpec, Health, Mount
    from kubedevices.device_tree import DeviceTree
    from kubedevices.errors import KubedevicesError
    from kubedevices.middleware.absence import HoldRule
    from kubedevices.middleware.additions import InjectRule
    from kubedevices.middleware.device_selector import PciRule
    from kubedevices.middleware.faults import FaultRule, Faulty
    from kubedevices.middleware.filter import Filtered, FilterRule
    from kubedevices.middleware.health import Damped, HealthRule
    from kubedevices.middleware.health_gate import Check, HealthGate
    from kubedevices.middleware.hold import Held
    from kubedevices.middleware.inject import Injected
    from kubedevices.middleware.maintenance import Maintained
    from kubedevices.middleware.mend import Mended
    from kubedevices.middleware.middleware import Middleware, Relay
    from kubedevices.middleware.record import Recorded
    from kubedevices.middleware.rename import Renamed
    from kubedevices.middleware.share import Shared, ShareOf, ShareRule
    from kubedevices.middleware.split import Split, SplitPart, SplitRule
    from kubedevices.modes import run, serve
    from kubedevices.plugin.capabilities import (
        USE_DEFAULT,
        Allocator,
        ClaimPreparer,
        ContainerPreStarter,
        PostAllocator,
        PreferredAllocator,
        TypeStarter,
        TypeStopper,
    )
    from kubedevices.plugin.notifier import Notifier
    from kubedevices.plugin.runner import PluginRunner
    from kubedevices.plugin.scanner import PolledScanner, Scanner

__version__ = VERSION

_MODULES = {
    "allocation": (
        "AllocateRequest",
        "AllocateResponse",
        "ClaimedDevices",
        "ContainerAllocateRequest",
        "ContainerAllocateResponse",
        "ContainerPreferredRequest",
        "PreStartContainerRequest",
        "PreferredAllocationRequest",
        "PreferredAllocationResponse",
    ),
    "device": ("Device", "DeviceSpec", "Health", "Mount"),
    "device_tree": ("DeviceTree",),
    "errors": ("KubedevicesError",),
    "middleware.absence": ("HoldRule",),
    "middleware.health": ("Damped", "HealthRule"),
    "middleware.health_gate": ("Check", "HealthGate"),
    "middleware.faults": ("FaultRule", "Faulty"),
    "middleware.hold": ("Held",),
    "middleware.maintenance": ("Maintained",),
    "middleware.additions": ("InjectRule",),
    "middleware.inject": ("Injected",),
    "middleware.device_selector": ("PciRule",),
    "middleware.filter": ("Filtered", "FilterRule"),
    "middleware.rename": ("Renamed",),
    "middleware.split": ("Split", "SplitPart", "SplitRule"),
    "middleware.mend": ("Mended",),
    "middleware.middleware": ("Middleware", "Relay"),
    "middleware.record": ("Recorded",),
    "middleware.share": ("Shared", "ShareOf", "ShareRule"),
    "modes": ("run", "serve"),
    "plugin.capabilities": (
        "USE_DEFAULT",
        "Allocator",
        "ClaimPreparer",
        "ContainerPreStarter",
        "PostAllocator",
        "PreferredAllocator",
        "TypeStarter",
        "TypeStopper",
    ),
    "plugin.notifier": ("Notifier",),
    "plugin.runner": ("PluginRunner",),
    "plugin.scanner": ("PolledScanner", "Scanner"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "USE_DEFAULT",
    "AllocateRequest",
    "AllocateResponse",
    "Allocator",
    "Check",
    "ClaimPreparer",
    "ClaimedDevices",
    "ContainerAllocateRequest",
    "ContainerAllocateResponse",
    "ContainerPreStarter",
    "ContainerPreferredRequest",
    "Damped",
    "Device",
    "DeviceSpec",
    "DeviceTree",
    "FaultRule",
    "Faulty",
    "FilterRule",
    "Filtered",
    "Health",
    "HealthGate",
    "HealthRule",
    "Held",
    "HoldRule",
    "InjectRule",
    "Injected",
    "KubedevicesError",
    "Maintained",
    "Mended",
    "Middleware",
    "Mount",
    "Notifier",
    "PciRule",
    "PluginRunner",
    "PolledScanner",
    "PostAllocator",
    "PreStartContainerRequest",
    "PreferredAllocationRequest",
    "PreferredAllocationResponse",
    "PreferredAllocator",
    "Recorded",
    "Relay",
    "Renamed",
    "Scanner",
    "ShareOf",
    "ShareRule",
    "Shared",
    "Split",
    "SplitPart",
    "SplitRule",
    "TypeStarter",
    "TypeStopper",
    "run",
    "serve",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is used for the first time (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
