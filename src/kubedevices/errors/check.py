"""Why a plugin cannot be checked."""

from kubedevices.errors.shared import CannotAsk


class PluginNotStarted(CannotAsk):
    """The command of the plugin under check could not be run, or ended at once."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the plugin could not be started: {reason}")


class NoPrivateView(CannotAsk):
    """The plugin needs its own directories at fixed paths, which needs root."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"cannot give the plugin a /var/lib/kubelet/device-plugins of its own: {reason} "
            "(run this with sudo, or tell the plugin its directory: {socket_dir} in COMMAND "
            "stands for it)"
        )
