"""How a probe answers Register. Values only; `arrival` acts on them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubedevices.probe.arrival import Arrival

DIAL_FAILED = "failed to dial device plugin: context deadline exceeded"
"""A kubelet's answer to a plugin whose socket it cannot reach."""


@dataclass(frozen=True, slots=True)
class Manner:
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
    on_arrival: "Callable[[Arrival], None] | None" = None
    dial_limit: float | None = None
    opens_stream: bool = True
    unopened: str = ""


KIND = Manner()
