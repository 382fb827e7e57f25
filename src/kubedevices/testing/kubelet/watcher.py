"""Acts as the kubelet's plugin watcher: finds sockets in the registry directory, calls GetInfo.

It lists the directory often and does not use file events: a probe runs for a minute only.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubedevices.errors import RpcError, WireError
from kubedevices.host.listing import SCAN_LIMIT, below
from kubedevices.kubelet_api.clients import PluginRegistrationClient
from kubedevices.testing.kubelet.arrival import Arrival
from kubedevices.testing.kubelet.change_signal import ChangeSignal
from kubedevices.values.allocation import RegisterRequest
from kubedevices.wire.unix_grpc import FileIdentity, GrpcChannel

_LOOK_EVERY = 0.05
_CALL_LIMIT = 5.0


class RegistryWatcher:
    """Calls `admit` for every plugin whose socket appears below one directory."""

    def __init__(
        self,
        directory: Path,
        admit: Callable[[Arrival], Awaitable[None]],
        changed: ChangeSignal,
    ) -> None:
        self._directory, self._admit, self._changed = directory, admit, changed
        self._seen: dict[Path, FileIdentity] = {}
        self._looking: asyncio.Task[None] | None = None
        self._talking: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to list the directory; sockets that exist already count as new."""
        self._seen.clear()
        self._looking = asyncio.create_task(self._look(), name="probe's plugin watcher")

    async def stop(self) -> None:
        """Stop listing the directory, and cancel all registrations that run."""
        tasks = [task for task in (self._looking, *self._talking) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._looking = None

    async def _look(self) -> None:
        while True:
            entries = itertools.islice(below(self._directory, 3), SCAN_LIMIT)
            paths = sorted(Path(entry.path) for entry in entries)
            found = {path: FileIdentity.of(path) for path in paths}
            for path, identity in found.items():
                if identity and self._seen.get(path) != identity and path.is_socket():
                    self._seen[path] = identity
                    task = asyncio.create_task(
                        self._register(path), name=f"registering {path.name}"
                    )
                    self._talking.add(task)
                    task.add_done_callback(self._talking.discard)
            for gone in self._seen.keys() - found.keys():
                del self._seen[gone]
            await asyncio.sleep(_LOOK_EVERY)

    async def _register(self, path: Path) -> None:
        """Call GetInfo, admit the plugin, and call NotifyRegistrationStatus."""
        loop = asyncio.get_running_loop()
        try:
            async with await GrpcChannel.dial(path, timeout=_CALL_LIMIT) as channel:
                client = PluginRegistrationClient(channel)
                info = await client.get_info(timeout=_CALL_LIMIT)
                version = info.supported_versions[0] if info.supported_versions else ""
                request = RegisterRequest(version, info.endpoint, info.name)
                arrival = Arrival(request, loop.time(), info=info, found_at=path)
                problem = ""
                try:
                    await self._admit(arrival)
                except RpcError as error:
                    problem = error.message
                try:
                    await client.notify_registration_status(
                        registered=not problem, error=problem, timeout=_CALL_LIMIT
                    )
                except WireError as error:
                    arrival.notify_problem = str(error)
                self._changed.notify()
        except WireError:
            with contextlib.suppress(KeyError):  # not ready yet, or no plugin: try again later
                del self._seen[path]
