"""A file with the socket of each resource's plugin, for a restart of the proxy.

Some plugins register only once. So after its start the proxy connects to the sockets in this file
and does not wait for registrations.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.host.state_file import StateFile
from kubedevices.plugin import hook_threads
from kubedevices.values.resource_name import is_resource_name

FILE_NAME = "proxy-sockets.json"
_LIMIT = 2**20
_VERSION = 1

_log = logging.getLogger(__name__)


class KnownSockets:
    """The file in `state_dir`; without it plugins have to register after a restart."""

    def __init__(self, state_dir: Path) -> None:
        self._file = StateFile(
            SharedDirectory(state_dir), FILE_NAME, limit=_LIMIT, version=_VERSION
        )
        self._sockets: dict[str, str] = {}
        self._changed = asyncio.Event()
        # For `keep`, whose last write may begin while a thread still writes an earlier change.
        self._writing = threading.Lock()

    def load(self) -> Mapping[str, Path]:
        """Return the socket of each resource by the file; empty if the file is unreadable."""
        self._sockets = self._file.read_or(_sockets_in, {})
        return {name: Path(path) for name, path in self._sockets.items()}

    def add(self, resource: str, socket: Path) -> None:
        """Remember that the plugin of `resource` is at `socket`."""
        if self._sockets.get(resource) != str(socket):
            self._sockets[resource] = str(socket)
            self._changed.set()

    def remove(self, resource: str, socket: Path) -> None:
        """Forget a socket on which no plugin listens any more."""
        if self._sockets.get(resource) == str(socket):
            del self._sockets[resource]
            self._changed.set()

    def forget(self, resource: str) -> None:
        """Forget the socket of a resource that is not served any more."""
        if self._sockets.pop(resource, None) is not None:
            self._changed.set()

    async def keep(self) -> None:
        """Write every change to the file, until cancelled; then write an unwritten change."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await hook_threads.call(self._write)
        finally:
            # Not in a thread: this task is being cancelled, and an await could be cancelled again.
            if self._changed.is_set():
                self._write()

    def _write(self) -> None:
        with self._writing:
            try:
                self._file.write({"sockets": dict(sorted(self._sockets.items()))})
            except OSError as error:
                _log.warning("%s cannot be written: %s", self._file.path, error.strerror)


def _sockets_in(document: Any) -> dict[str, str]:
    return {
        name: path
        for name, path in document["sockets"].items()
        if is_resource_name(name) and Path(path).is_absolute()
    }
