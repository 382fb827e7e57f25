"""Which resource had which socket, kept in a file over our own restarts.

A plugin that registers only once would be lost by a restart of ours. So after a start the sockets
that were known are dialled without waiting for a registration.
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
    """The file in `state_dir`. A disk that fails costs the memory of a restart, nothing else."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / FILE_NAME
        self._sockets: dict[str, str] = {}
        self._changed = asyncio.Event()

    def load(self) -> Mapping[str, Path]:
        """Return the socket of each resource, as they were when we ended; nothing if unreadable."""
        remove_leftovers(self._file.parent, FILE_NAME)
        try:
            told = json.loads(read_bytes(self._file, limit=_LIMIT))
            found = told["sockets"] if told["version"] == _VERSION else {}
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
        """Forget a socket that is gone for good."""
        if self._sockets.get(resource) == str(socket):
            del self._sockets[resource]
            self._changed.set()

    async def keep(self) -> None:
        """Write what changes, until cancelled; then once more, if there is something to write."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await hook_threads.call(self._write)
        finally:
            # Not in a thread: we are being cancelled, and an await could be cancelled again.
            if self._changed.is_set():
                self._write()

    def _write(self) -> None:
        text = json.dumps({"version": _VERSION, "sockets": dict(sorted(self._sockets.items()))})
        try:
            replace(self._file, f"{text}\n".encode())
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._file, error.strerror)
