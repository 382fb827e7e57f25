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
            f"cannot give the plugin its own /var/lib/kubelet/device-plugins: {reason} "
            "(run this with sudo, or give the directory to the plugin: {socket_dir} in COMMAND "
            "is replaced by its path; in a container without a kubelet, use --in-place)"
        )


class NotInPlace(CannotAsk):
    """A directory of the kubelet's is in use or cannot be used, so no check can act there."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(
            f"--in-place cannot use {directory}: {reason} (--in-place is for a machine without "
            "kubelet, such as the container of a CI job; on other machines use sudo instead)"
        )
