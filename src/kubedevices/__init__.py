"""Kubernetes device plugins in Python, both sides of the socket.

These names are for authors of plugins. A name is imported when it is used for the first time, so
`import kubedevices` is cheap. The code of a node begins in `kubedevices.node.device_manager`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kubedevices.version import VERSION

if TYPE_CHECKING:
    from kubedevices.errors import KubedevicesError
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
    from kubedevices.plugin.polled_scanner import PolledScanner
    from kubedevices.plugin.runner import PluginRunner
    from kubedevices.plugin.scanner import Scanner
    from kubedevices.rules.cordon import Cordoned
    from kubedevices.rules.device_selector import PciRule
    from kubedevices.rules.faults import FaultRule, Faulty
    from kubedevices.rules.filter import Filtered, FilterRule
    from kubedevices.rules.health import Damped
    from kubedevices.rules.health_gate import Check, HealthGate
    from kubedevices.rules.health_rule import HealthRule
    from kubedevices.rules.hold import Held
    from kubedevices.rules.hold_rule import HoldRule
    from kubedevices.rules.inject import Injected
    from kubedevices.rules.inject_rule import InjectRule
    from kubedevices.rules.middleware import Middleware, Relay
    from kubedevices.rules.record import Recorded
    from kubedevices.rules.rename import Renamed
    from kubedevices.rules.repair import Repaired
    from kubedevices.rules.share import Shared, ShareOf, ShareRule
    from kubedevices.rules.split import Split, SplitPart, SplitRule
    from kubedevices.serving.modes import run, serve
    from kubedevices.values.allocation import (
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
    from kubedevices.values.device import Device, DeviceSpec, Health, Mount
    from kubedevices.values.device_tree import DeviceTree

__version__ = VERSION

_MODULES = {
    "values.allocation": (
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
    "values.device": ("Device", "DeviceSpec", "Health", "Mount"),
    "values.device_tree": ("DeviceTree",),
    "errors": ("KubedevicesError",),
    "rules.hold_rule": ("HoldRule",),
    "rules.health": ("Damped",),
    "rules.health_rule": ("HealthRule",),
    "rules.health_gate": ("Check", "HealthGate"),
    "rules.faults": ("FaultRule", "Faulty"),
    "rules.hold": ("Held",),
    "rules.cordon": ("Cordoned",),
    "rules.inject_rule": ("InjectRule",),
    "rules.inject": ("Injected",),
    "rules.device_selector": ("PciRule",),
    "rules.filter": ("Filtered", "FilterRule"),
    "rules.rename": ("Renamed",),
    "rules.split": ("Split", "SplitPart", "SplitRule"),
    "rules.repair": ("Repaired",),
    "rules.middleware": ("Middleware", "Relay"),
    "rules.record": ("Recorded",),
    "rules.share": ("Shared", "ShareOf", "ShareRule"),
    "serving.modes": ("run", "serve"),
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
    "plugin.polled_scanner": ("PolledScanner",),
    "plugin.scanner": ("Scanner",),
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
    "Cordoned",
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
    "Repaired",
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
