"""Which sockets of the plugin registry directory have to be registered or unregistered. Pure.

A socket has a path and the identity of its file. A socket that was created again is unregistered
and then registered, as in the kubelet. `plugin_watcher` calls `plan` and carries the plan out.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 122.0
"""Seconds between attempts after failures: 0.5, 1, 2 … 122, as in the kubelet."""


class RegisteredPlugin(NamedTuple):
    """A plugin that was found: its resource, the socket where it serves, and its type."""

    resource: str
    socket: Path
    type: str = "DevicePlugin"


class RegistryPlan(NamedTuple):
    """The operations to begin now, at most one operation per path."""

    unregister: tuple[Path, ...]
    register: tuple[Path, ...]


@dataclass(slots=True)
class _Socket:
    """One path, until its socket is gone and unregistered."""

    # The kubelet's terms: `desired` is the file that was found last, `actual` the file that was
    # registered. They differ if the socket was created again.
    desired: Hashable = None
    actual: Hashable = None
    plugin: RegisteredPlugin | None = None
    is_busy: bool = False
    failures: int = 0
    not_before: float = 0.0


@dataclass
class RegistryState:
    """The sockets of one directory."""

    _sockets: dict[Path, _Socket] = field(default_factory=dict)

    def plan(self, found: Mapping[Path, Hashable], now: float) -> RegistryPlan:
        """Compare the `found` files by path with the registered ones; return the operations.

        The paths of these operations are busy until their result is recorded.
        """
        for path in found:
            self._sockets.setdefault(path, _Socket())
        unregister, register = [], []
        for path, socket in [*self._sockets.items()]:
            socket.desired = found.get(path)
            if socket.is_busy:
                continue
            if socket.plugin is not None:
                if socket.desired != socket.actual:
                    socket.is_busy = True
                    unregister.append(path)
            elif socket.desired is None:
                del self._sockets[path]
            elif now >= socket.not_before:
                socket.is_busy = True
                register.append(path)
        return RegistryPlan(tuple(unregister), tuple(register))

    def registered(self, path: Path, plugin: RegisteredPlugin, file: Hashable) -> None:
        """Record a registration; `file` is the file that was at `path` when it began."""
        socket = self._sockets[path]
        socket.plugin, socket.actual, socket.is_busy = plugin, file, False

    def failed(self, path: Path, now: float) -> float:
        """Record a failure; return the seconds until the next attempt."""
        socket = self._sockets[path]
        pause = min(FIRST_PAUSE * 2.0**socket.failures, LONGEST_PAUSE)
        # With 16 failures the pause has long reached its limit; without this limit, the power would
        # overflow.
        socket.failures = min(socket.failures + 1, 16)
        socket.not_before, socket.is_busy = now + pause, False
        return pause

    def unregistered(self, path: Path) -> RegisteredPlugin | None:
        """Record that the plugin at `path` was disconnected; return the plugin."""
        socket = self._sockets[path]
        plugin, socket.plugin, socket.actual = socket.plugin, None, None
        # A new file is a new plugin, which the failures of the last plugin must not delay.
        socket.is_busy, socket.failures, socket.not_before = False, 0, 0.0
        return plugin

    def counts(self) -> dict[Path, tuple[int, int]]:
        """Return per path 1 or 0 for desired and for actual, as in two gauges of the kubelet."""
        return {
            path: (int(socket.desired is not None), int(socket.plugin is not None))
            for path, socket in self._sockets.items()
        }
