"""One registration attempt of a plugin, and how a probe answers it. Values; see `reception`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kubedevices.testing.kubelet.session import PluginSession
from kubedevices.values.allocation import PluginInfo, RegisterRequest

DIAL_FAILED = "failed to dial device plugin: context deadline exceeded"
"""A kubelet's answer to a plugin whose socket it cannot reach."""


GAVE_UP = "it cancelled Register when the kubelet called this"
"""The problem of GetDevicePluginOptions if the plugin ended its Register call meanwhile."""


@dataclass
class Arrival:
    """A Register call, or a socket that the plugin watcher found, with times of the event loop."""

    request: RegisterRequest
    at: float
    info: PluginInfo | None = None  # the answer of GetInfo, if the plugin watcher found the plugin
    found_at: Path | None = None  # the socket in the plugin registry directory, in the same case
    socket: Path | None = None  # the socket that the probe dialled
    dials: int = 0
    dial_problem: str = ""
    dial_took: float = 0.0  # seconds from Register until the plugin accepted the dial
    options_problem: str = ""  # the error of GetDevicePluginOptions
    needs_other_authority: str = ""  # the `:authority` that the plugin accepts, not localhost
    gave_up_after: float | None = None  # seconds after which the plugin cancelled Register
    answered_at: float | None = None
    accepted_at: float | None = None
    refused_with: str = ""
    session: PluginSession | None = None
    notify_problem: str = ""  # the error of NotifyRegistrationStatus

    @property
    def resource(self) -> str:
        """The resource name in the request."""
        return self.request.resource_name

    def is_accepted(self, since: float = 0) -> bool:
        """Whether the plugin was accepted at or after `since`."""
        return self.accepted_at is not None and self.accepted_at >= since


@dataclass(frozen=True, slots=True)
class RegisterBehavior:
    """How a probe or a bench answers Register. The defaults are those of a kubelet.

    delay        least number of seconds from Register to the answer
    refusal      the text of the error for every Register, `""` for no error
    on_arrival   called before all other steps, for example to remove the plugin's socket
    dial_limit   seconds for which the probe tries to dial the plugin, None for its usual limit
    unopened     the one resource for which it does not call ListAndWatch, `""` for none
    """

    delay: float = 0
    refusal: str = ""
    on_arrival: Callable[[Arrival], None] | None = None
    dial_limit: float | None = None
    unopened: str = ""


LIKE_A_KUBELET = RegisterBehavior()
