"""Messages and handlers of the gRPC services of a DRA driver, made by protobuf itself."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.check.wire_names import handlers, message

_DRA = "k8s.io.kubelet.pkg.apis.dra.v1"
_METHODS = ("NodePrepareResources", "NodeUnprepareResources")

PluginInfo = message("pluginregistration.PluginInfo")
RegistrationStatusResponse = message("pluginregistration.RegistrationStatusResponse")
PrepareResponse = message(f"{_DRA}.NodePrepareResourcesResponse")
UnprepareResponse = message(f"{_DRA}.NodeUnprepareResourcesResponse")
HEALTH = {
    version: message(f"{version}.NodeWatchResourcesResponse") for version in ("v1", "v1alpha1")
}

Function = Callable[[Any, Any], Any]


def dra_handlers(service: Any) -> tuple[Any, ...]:
    """Return DRAPlugin v1 and v1beta1: the same messages in a package of another name."""
    methods = {name: getattr(service, name) for name in _METHODS}
    described = f"{_DRA}.DRAPlugin"
    return tuple(
        handlers(f"{_DRA}{suffix}.DRAPlugin", methods, described) for suffix in ("", "beta1")
    )


def health_handlers(streams: Mapping[str, Function]) -> tuple[Any, ...]:
    """Return DRAResourceHealth in each version."""
    return tuple(
        handlers(f"{version}.DRAResourceHealth", {"NodeWatchResources": function})
        for version, function in streams.items()
    )


def registration_handlers(service: Any) -> tuple[Any, ...]:
    """Return what the kubelet's plugin watcher calls."""
    names = ("GetInfo", "NotifyRegistrationStatus")
    methods = {name: getattr(service, name) for name in names}
    return (handlers("pluginregistration.Registration", methods),)
