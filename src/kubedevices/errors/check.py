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
            "stands for it; in a container without a kubelet --in-place needs no mount)"
        )


class NotInPlace(CannotAsk):
    """A directory of the kubelet's is in use or cannot be used, so no check can act there."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(
            f"--in-place cannot use {directory}: {reason} (it is for a machine without kubelet, "
            "such as the container of a CI job; elsewhere run this with sudo, without --in-place)"
        )
