"""A plugin that registers, and how a probe answers it. Values only; `reception` acts on them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kubedevices.allocation import PluginInfo, RegisterRequest
from kubedevices.probe.session import PluginSession

DIAL_FAILED = "failed to dial device plugin: context deadline exceeded"
"""A kubelet's answer to a plugin whose socket it cannot reach."""


@dataclass
class Arrival:
    """One attempt of a plugin to register."""

    request: RegisterRequest
    at: float
    info: PluginInfo | None = None  # this and the next: found in the plugin registry directory
    found_at: Path | None = None
    socket: Path | None = None
    dials: int = 0
    dial_problem: str = ""
    dial_took: float = 0.0  # seconds from Register until it served
    options_problem: str = ""
    needs_other_authority: str = ""
    gave_up_after: float | None = None
    answered_at: float | None = None
    accepted_at: float | None = None
    refused_with: str = ""
    session: PluginSession | None = None
    notify_problem: str = ""

    @property
    def resource(self) -> str:
        """What it wants to be."""
        return self.request.resource_name

    def is_accepted(self, since: float = 0) -> bool:
        """Whether it was let in, and not before `since`."""
        return self.accepted_at is not None and self.accepted_at >= since


@dataclass(frozen=True, slots=True)
class RegisterBehavior:
    """A well-behaved kubelet, and what may be different.

    delay        seconds from Register to the answer, at least
    refusal      the text of the error every Register gets, `""` for none
    on_arrival   called first of all, for example to remove the plugin's socket
    dial_limit   seconds to try to reach the plugin, None for the probe's own limit
    opens_stream whether ListAndWatch follows, as it always does with a kubelet
    unopened     the one resource for which it does not follow, `""` for none
    """

    delay: float = 0
    refusal: str = ""
    on_arrival: Callable[[Arrival], None] | None = None
    dial_limit: float | None = None
    opens_stream: bool = True
    unopened: str = ""


LIKE_A_KUBELET = RegisterBehavior()
