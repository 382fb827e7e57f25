"""Reasons why `kubedevices check` cannot check a plugin."""

from collections.abc import Sequence

from kubedevices.errors.shared import CannotAsk, UsageError, _OfReason
from kubedevices.errors.words import did_you_mean


class PluginNotStarted(CannotAsk, _OfReason):
    """The command of the plugin under check could not be started, or ended at once."""

    text = "the plugin could not be started: {reason}"


class NeverRegistered(CannotAsk):
    """The plugin under check did not register, so no rule that was asked for can be tried."""

    kind = "plugin"
    hint = "does it look for kubelet.sock in the directory of the check?"

    def __init__(self, reason: str, last_words: str = "") -> None:
        self.reason, self.last_words = reason, last_words
        said = f"\nits last output:\n{last_words}" if last_words else ""
        super().__init__(
            f"the {self.kind} never registered, so nothing was tried: {reason} "
            f"({self.hint} see kubedevices check --help){said}"
        )


class DriverNeverRegistered(NeverRegistered):
    """The DRA driver under check did not register or published no slice."""

    kind = "driver"
    hint = "does it read {kubeconfig}, and use the directories of the check?"


class UnknownResource(UsageError):
    """`check --resource` names a resource that the plugin does not register."""

    def __init__(self, resource: str, registered: Sequence[str]) -> None:
        self.resource, self.registered = resource, tuple(registered)
        hint = did_you_mean(resource, registered)
        super().__init__(
            f"--resource {resource}: the plugin registers only {', '.join(registered)}{hint}"
        )


class NoPrivateView(CannotAsk):
    """The plugin needs private directories at fixed paths, but their mount failed; needs root."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"cannot give the plugin its own /var/lib/kubelet/device-plugins: {reason} "
            "(run this with sudo, or give the directory to the plugin: {socket_dir} in COMMAND "
            "is replaced by its path; in a container without a kubelet, use --in-place)"
        )


class NotInPlace(CannotAsk):
    """A directory of the kubelet is in use or not usable, so `check --in-place` cannot use it."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(
            f"--in-place cannot use {directory}: {reason} (--in-place is for a machine without "
            "kubelet, such as the container of a CI job; on other machines use sudo instead)"
        )
