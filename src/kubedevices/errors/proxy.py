"""Errors of the proxy when it cannot pass a call on. The events of the pod show their texts."""

from kubedevices.errors.shared import RpcError, StatusCode


class PluginAway(RpcError):
    """The plugin behind the proxy is not connected."""

    def __init__(self, resource: str, call: str) -> None:
        self.resource, self.call = resource, call
        super().__init__(
            StatusCode.UNAVAILABLE,
            f"kubedevices proxy: {call}: the plugin of {resource} is away: check that the plugin "
            "runs and that it registers in the proxy's plugin directory",
        )


class PluginLate(RpcError):
    """The plugin behind the proxy did not answer in time."""

    def __init__(self, resource: str, call: str, socket: str, seconds: float, option: str) -> None:
        self.resource, self.call, self.socket, self.seconds = resource, call, socket, seconds
        super().__init__(
            StatusCode.DEADLINE_EXCEEDED,
            f"kubedevices proxy: the plugin of {resource} at {socket} did not answer {call} "
            f"within {seconds:g} s (the limit is {option})",
        )
