"""A file with the socket of each resource's plugin, for a restart of the proxy.

Some plugins register only once. So after its start the proxy connects to the sockets in this file
and does not wait for registrations.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from kubedevices.host.untrusted_files import read_bytes, remove_leftovers, replace
from kubedevices.plugin import hook_threads
from kubedevices.resource_name import is_resource_name

FILE_NAME = "proxy-sockets.json"
_LIMIT = 2**20
_VERSION = 1

_log = logging.getLogger(__name__)


class KnownSockets:
    """The file in `state_dir`; without it plugins have to register after a restart."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / FILE_NAME
        self._sockets: dict[str, str] = {}
        self._changed = asyncio.Event()

    def load(self) -> Mapping[str, Path]:
        """Return the socket of each resource by the file; empty if the file is unreadable."""
        remove_leftovers(self._file.parent, FILE_NAME)
        try:
            document = json.loads(read_bytes(self._file, limit=_LIMIT))
            found = document["sockets"] if document["version"] == _VERSION else {}
            self._sockets = {
                name: path
                for name, path in found.items()
                if is_resource_name(name) and Path(path).is_absolute()
            }
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.warning("%s cannot be used, plugins have to register again: %s", self._file, error)
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
        text = json.dumps({"version": _VERSION, "sockets": dict(sorted(self._sockets.items()))})
        try:
            replace(self._file, f"{text}\n".encode())
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._file, error.strerror)
