"""Errors with plugins in the plugin registry directory. The texts are the kubelet's."""

from collections.abc import Sequence

from kubedevices.errors.node import RegistrationError
from kubedevices.errors.shared import _OfReason, _OfResource


class NoHandlerForPlugin(RegistrationError):
    """The socket is of another type of plugin, for example of a CSI driver."""

    def __init__(self, plugin_type: str, socket: str) -> None:
        self.plugin_type, self.socket = plugin_type, socket
        super().__init__(
            "RegisterPlugin error -- no handler registered for plugin type: "
            f"{plugin_type} at socket {socket}"
        )


class VersionNotSupportedByPlugin(RegistrationError):
    """The plugin supports other versions of the device plugin API than the node."""

    def __init__(self, version: str, supported: Sequence[str]) -> None:
        self.version, self.supported = version, tuple(supported)
        super().__init__(
            f"manager version, {version}, is not among plugin supported versions "
            f"[{' '.join(supported)}]"
        )


class BadPluginName(RegistrationError, _OfResource):
    """The plugin's name is not an extended resource."""

    text = 'invalid name of device plugin socket: the ResourceName "{resource}" is invalid'


class PluginValidationFailed(RegistrationError, _OfReason):
    """The node refused the plugin's answer to GetInfo; the plugin gets this text."""

    text = "RegisterPlugin error -- plugin validation failed with err: {reason}"


class PluginRegistrationFailed(RegistrationError, _OfReason):
    """The node could not connect to the plugin; the plugin gets this text."""

    text = "RegisterPlugin error -- plugin registration failed with err: {reason}"


class WatchedSocketNotDialled(RegistrationError):
    """No process answers on a socket in the registry directory."""

    def __init__(self, socket: str, reason: str) -> None:
        self.socket, self.reason = socket, reason
        super().__init__(f"RegisterPlugin error -- dial failed at socket {socket}, err: {reason}")


class GetInfoFailed(RegistrationError):
    """The plugin did not answer GetInfo."""

    def __init__(self, socket: str, reason: str) -> None:
        self.socket, self.reason = socket, reason
        super().__init__(
            "RegisterPlugin error -- failed to get plugin info using RPC GetInfo "
            f"at socket {socket}, err: {reason}"
        )


class NotifyFailed(RegistrationError):
    """The node could not send the result of the registration to the plugin."""

    def __init__(self, socket: str, reason: str) -> None:
        self.socket, self.reason = socket, reason
        super().__init__(
            "RegisterPlugin error -- failed to send registration status "
            f"at socket {socket}, err: {reason}"
        )
