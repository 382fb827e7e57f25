"""Whether a plugin that registers again is the instance whose stream we read already. Pure.

A plugin may register again while all is well, for example at each look at kubelet.sock. A kubelet
keeps both streams. Some plugins end for ever when a stream ends, so the first stream must stay, and
the second connection is closed.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubedevices.node.arrival.endpoint import Endpoint


def is_known(new: "Endpoint", known: "Iterable[Endpoint]") -> bool:
    """Whether one of the `known` has an open stream of the process and socket file of `new`."""
    return any(
        each.is_connected
        and not each.is_stopped
        and each.peer == new.peer
        and each.identity is not None
        and each.identity == new.identity
        for each in known
    )
