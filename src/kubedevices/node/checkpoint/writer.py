"""Writes kubelet_internal_checkpoint for tools that read this file, such as Multus.

The node itself does not need the file: its state is in the ledger. No caller waits for a write. The
file is written after a change of its content, at most once a second, and at the stop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import CannotRead, KubedevicesError
from kubedevices.host import deadlines
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.checkpoint.file import read_bytes, replace
from kubedevices.node.events import EventSource
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod_devices import Holding, PodDevices

logger = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two writes, at least."""

# The pause after a write is twenty times its duration: the disk is busy for at most 5 % of the
# time.
_SHARE = 20
_RETRY = 10.0


class _Content(NamedTuple):
    holdings: tuple[Holding, ...]
    registered: dict[str, list[str]]


class CheckpointWriter:
    """Writes the file from `start` to `stop`. `keep_resources` stores the resources with a list."""

    def __init__(
        self,
        path: Path,
        inventory: Inventory,
        pod_devices: PodDevices,
        events: EventSource,
        keep_resources: Callable[[Collection[str]], Awaitable[None]],
        *,
        interval: float = INTERVAL,
    ) -> None:
        self.path, self._interval = path, interval
        self._inventory, self._pod_devices, self._events = inventory, pod_devices, events
        self._keep_resources = keep_resources
        self._thread: ThreadPoolExecutor | None = None
        self._task: asyncio.Task[None] | None = None
        self._written: _Content | None = None
        self._kept: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<CheckpointWriter {self.path}>"

    def start(self, resources: Collection[str]) -> None:
        """Begin to write after changes. The store has `resources` already."""
        self._written, self._kept = None, frozenset(resources)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kubedevices checkpoint")
        self._task = asyncio.create_task(self._follow(), name=f"writing {self.path.name}")

    async def stop(self) -> None:
        """Write the last changes. A second call does nothing."""
        task, self._task = self._task, None
        if task is None or self._thread is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await self._update()
        # A write that was cancelled above may still run. The thread makes one write after the
        # other, so the file ends with the last content.
        self._thread.shutdown(wait=False)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        with self._events.subscribe(backlog=1) as changes:
            with contextlib.suppress(TimeoutError):  # the file from before the start may be old
                async with deadlines.timeout(self._interval):
                    await anext(changes)
            while True:
                began = loop.time()
                if not await self._update():
                    await asyncio.sleep(_RETRY)
                    continue
                # A large file takes longer to write, so its pauses are longer.
                await asyncio.sleep(max(self._interval, _SHARE * (loop.time() - began)))
                await anext(changes)

    async def _update(self) -> bool:
        """Write the changes; return whether all are written."""
        content = _Content(tuple(self._pod_devices), self._inventory.registered_devices())
        is_done = True
        for step in (self._put_file, self._put_resources):
            try:
                await step(content)
            except KubedevicesError as error:
                logger.warning("%s", error)
                is_done = False
            except Exception:  # a defect of ours must not end the writer or the stop of the node
                logger.exception("%s could not be updated", self.path)
        return is_done

    async def _put_file(self, content: _Content) -> None:
        if content != self._written:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, _write, self.path, content)
            self._written = content

    async def _put_resources(self, content: _Content) -> None:
        names = frozenset(content.registered)
        if names != self._kept:
            await self._keep_resources(names)
            self._kept = names


def _write(path: Path, content: _Content) -> None:
    # Imported here, because a start needs no write.
    from kubedevices.node.checkpoint.text import checkpoint_of, format_checkpoint  # noqa: PLC0415

    data = format_checkpoint(checkpoint_of(*content, CONTAINER_RESPONSE.to_wire))
    try:
        before = read_bytes(path)
    except CannotRead:
        before = b""  # not a file with our content
    if before != data and (before is not None or any(content)):
        replace(path, data)
