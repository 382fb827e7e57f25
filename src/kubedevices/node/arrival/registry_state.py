"""Which sockets of the plugin registry directory need something done: decides, does nothing.

A socket is known by its path and by which file it is; one that is re-created is unregistered first
and registered afterwards, as the kubelet does. `plugin_watcher` looks, asks here, and acts.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 122.0
"""Seconds without a new try after a failure: 0.5, 1, 2 … 122, as in the kubelet."""


class RegisteredPlugin(NamedTuple):
    """A plugin that was found, where it serves, and of which type it is."""

    resource: str
    socket: Path
    type: str = "DevicePlugin"


class RegistryPlan(NamedTuple):
    """The operations to begin now; at most one operation per path."""

    unregister: tuple[Path, ...]
    register: tuple[Path, ...]


@dataclass(slots=True)
class _Socket:
    """One path, from its appearance until it is gone and unregistered."""

    # The kubelet's words: `desired` is the file that was found last, `actual` the one that was
    # registered. They differ when the socket was made anew.
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
        """Compare what was `found`, path to file, with what is registered; mark it as under way."""
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
        """Take note of a success: `file` is what was at `path` when it began."""
        socket = self._sockets[path]
        socket.plugin, socket.actual, socket.is_busy = plugin, file, False

    def failed(self, path: Path, now: float) -> float:
        """Take note of a failure; return the pause."""
        socket = self._sockets[path]
        pause = min(FIRST_PAUSE * 2.0**socket.failures, LONGEST_PAUSE)
        # 2**16 half seconds are far beyond the longest pause; without a bound the power would
        # overflow.
        socket.failures = min(socket.failures + 1, 16)
        socket.not_before, socket.is_busy = now + pause, False
        return pause

    def unregistered(self, path: Path) -> RegisteredPlugin | None:
        """Take note that the plugin at `path` was disconnected; return the plugin."""
        socket = self._sockets[path]
        plugin, socket.plugin, socket.actual = socket.plugin, None, None
        # A new file is a new plugin: the failures of the one before do not delay it.
        socket.is_busy, socket.failures, socket.not_before = False, 0, 0.0
        return plugin

    def counts(self) -> dict[Path, tuple[int, int]]:
        """Return per path 1 or 0 for desired and for actual: the kubelet's two gauges."""
        return {
            path: (int(socket.desired is not None), int(socket.plugin is not None))
            for path, socket in self._sockets.items()
        }
