"""The memory that the device lists of all plugins together may use. For the node and the proxy.

A limit per list is no limit: a neighbour registers more plugins. So every list that we have read is
counted while a connection or a resource keeps it. Above the limit, the largest list of the process
with most goes: its plugin is disconnected, and may register again at any time.
"""

from typing import TYPE_CHECKING

from kubedevices.errors import ListsUseTooMuch
from kubedevices.host.memory_limit import memory_limit
from kubedevices.wire.unix_grpc import ByteBudget, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

UNREAD_LIMIT = 20 * 2**20
"""Bytes of lists that are not read yet: one list of the largest size, and others."""

BYTES_PER_BYTE, BYTES_PER_DEVICE = 2, 600
"""Bytes of memory for a byte of a list, and for a device beside its bytes. Measured
(`python -m benchmarks attacks`): a list of 10,000 devices with 83 bytes each takes 7.5 MB in the
proxy, and 6 MB in the node.
"""

BESIDE_LISTS = 64 * 2**20
"""Bytes of the memory limit that are not for lists, as in `manifests.memory`."""

LEAST_LIMIT, LIMIT_WITHOUT_LIMIT = 16 * 2**20, 2**30
"""Bytes for lists, if the memory limit of the process is very small, or if it has none."""


def limit_for(memory: int | None) -> int:
    """Return the bytes that lists may use in a process that may use `memory` bytes."""
    if memory is None:
        return LIMIT_WITHOUT_LIMIT
    return max(memory - BESIDE_LISTS, LEAST_LIMIT)


class KeptList:
    """The last list of one connected plugin, and the part of the next list that is read already.

    `end` is called when the list has to go; the owner of the connection sets `on_end`.
    """

    def __init__(self, lists: "PluginLists", resource: str, peer: Peer) -> None:
        self._lists, self.resource, self.peer = lists, resource, peer
        self.on_end: Callable[[str], None] = lambda _: None
        self._kept = self._growing = 0
        self._is_connected, self.is_shown, self._is_refused = True, False, False

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return self._kept + self._growing

    def grow(self, size: int, devices: int = 0) -> None:
        """Count a part of the next list before we keep it; raises `ListsUseTooMuch`."""
        self._growing += BYTES_PER_BYTE * size + BYTES_PER_DEVICE * devices
        self._count()

    def replace(self, size: int, devices: int) -> None:
        """Count a whole list of `size` bytes instead of the last one and of all parts."""
        self._kept, self._growing = BYTES_PER_BYTE * size + BYTES_PER_DEVICE * devices, 0
        self._count()

    def _count(self) -> None:
        if not self._is_refused:
            self._lists.kept.count(self)
        if self._is_refused:
            raise ListsUseTooMuch(self.resource, self._lists.limit)

    def end(self, reason: str) -> None:
        """Let the list go."""
        del reason
        self._is_refused = True
        self.on_end(str(ListsUseTooMuch(self.resource, self._lists.limit)))

    def disconnect(self) -> None:
        """Note that the connection is closed. A resource may still show the devices."""
        self._is_connected = False
        self.forget_unused()

    def forget_unused(self) -> None:
        """Count nothing if no connection and no resource keeps the list."""
        if not self._is_connected and not self.is_shown:
            self._lists.kept.forget(self)


class PluginLists:
    """Two budgets of one process: lists that are not read yet, and lists that are kept."""

    def __init__(self, limit: int | None = None) -> None:
        """Without `limit`, in bytes, it follows from the memory limit of the process."""
        self.limit = limit_for(memory_limit()) if limit is None else limit
        self.unread = ByteBudget("lists of plugins", lambda: UNREAD_LIMIT)
        self.kept = ByteBudget("lists of plugins", lambda: self.limit, "kept lists")
        self._shown: dict[str, KeptList] = {}

    def show(self, resource: str, kept: KeptList) -> None:
        """Note that the devices of `resource` are those of `kept`, also after its connection."""
        before = self._shown.get(resource)
        if before is not kept:
            self.forget(resource)
            self._shown[resource] = kept
            kept.is_shown = True

    def is_shown(self, kept: KeptList) -> bool:
        """Whether a resource has the devices of `kept`."""
        return self._shown.get(kept.resource) is kept

    def forget(self, resource: str) -> None:
        """Note that the devices of `resource` are gone."""
        kept = self._shown.pop(resource, None)
        if kept is not None:
            kept.is_shown = False
            kept.forget_unused()
