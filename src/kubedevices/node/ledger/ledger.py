"""The store of a node on disk: one transaction per admitted or released pod.

`ledger_file` is the SQLite file. This module has the thread that writes the file, so the event loop
never waits for the disk. Changes that arrive during a write share the next transaction. If there is
no file, the pods of a kubelet's checkpoint are imported. A damaged file is renamed first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from kubedevices.errors import KubedevicesError, LedgerDamaged, LedgerWriteFailed
from kubedevices.host.boot_id import BOOT_ID_FILE, read_boot_id
from kubedevices.node.checkpoint.file import move_in
from kubedevices.node.damaged_file import set_aside
from kubedevices.node.ledger.ledger_file import COMPANIONS, LedgerFile
from kubedevices.node.ledger.lost_pods import look_at_log, missing_in
from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod, StoredState

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEDGER_NAME = "ledger.db"
"""The ledger in a node's state directory."""

_CHANGES_PER_LOG = 400
_LONG_LOG = 4 * 1024 * 1024
"""Bytes of about 400 changes. To move them into the main file takes a few milliseconds."""


class _Change(NamedTuple):
    """A change of the file, and the future of its result."""

    make: Callable[[LedgerFile], None]
    done: asyncio.Future[None]


class Ledger:
    """A `PodDevicesStore` in `state_dir`. A new ledger begins with the pods in `checkpoint`."""

    def __init__(
        self,
        state_dir: Path,
        checkpoint: Path,
        boot_id_file: Path = BOOT_ID_FILE,
    ) -> None:
        self.path = state_dir / LEDGER_NAME
        self._checkpoint, self._boot_id_file, self._boot_id = checkpoint, boot_id_file, ""
        # One thread: an SQLite connection must be used by the thread that made it, and the changes
        # must reach the disk in their order.
        self._thread: ThreadPoolExecutor | None = None
        self._file: LedgerFile | None = None
        self._waiting: list[_Change] = []
        # Only the event loop uses `_waiting` and these two. The thread gets its changes as
        # arguments.
        self._is_writing, self._changes = False, 0

    def __repr__(self) -> str:
        state = "open" if self._file else "closed"
        return f"<Ledger {self.path}, {state}>"

    async def load(self) -> StoredState:
        """Open the file, or create a new file; raises `CannotAsk` if neither is possible."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kubedevices ledger")
        try:
            kept = await self._run(self._open)
        except BaseException:
            await self.close()
            raise
        if self._file is not None and self._file.log_size() > _LONG_LOG:
            self._thread.submit(_shorten_log, self._file)
        return kept

    def _open(self) -> StoredState:
        self._boot_id = read_boot_id(self._boot_id_file)
        rest = look_at_log(self.path, self._boot_id)  # before SQLite changes the log
        damage = [] if rest is None else [rest.damage]
        try:
            self._file = LedgerFile.open(self.path)
            if self._file is not None:
                pods, resources = self._file.load(self._boot_id)
                if rest is not None:
                    begun = move_in(self._checkpoint, self._boot_id)
                    pods = self._hold_also(self._file, pods, rest.pods, begun.pods)
                    damage += begun.damage
                return StoredState(pods, resources, damage)
        except LedgerDamaged as error:
            if self._file is not None:
                self._file.close()
            damage.append(set_aside(self.path, error.reason, companions=COMPANIONS))
        begun = move_in(self._checkpoint, self._boot_id)
        damage += begun.damage
        self._file = LedgerFile.create(self.path, begun.pods, begun.resources, self._boot_id)
        pods, resources = self._file.load(self._boot_id)
        if rest is not None:
            pods = self._hold_also(self._file, pods, rest.pods)
        return StoredState(pods, resources, damage)

    def _hold_also(
        self, file: LedgerFile, pods: list[AdmittedPod], *others: Sequence[AdmittedPod]
    ) -> list[AdmittedPod]:
        """Store what only `others` know of, and tell it; return all pods."""
        lost = missing_in(pods, *others)
        for pod, holdings, is_of_this_boot in lost:
            file.commit(pod, holdings, self._boot_id if is_of_this_boot else "")
            logger.error(
                "pod %s was missing in the damaged ledger: it holds %s; release it if it is gone",
                pod.uid,
                ", ".join(f"{each.resource} {' '.join(each.held.device_ids)}" for each in holdings),
            )
        return file.load(self._boot_id)[0] if lost else pods

    # ------------------------------------------------------------ changes

    def commit(self, pod: Pod, holdings: Sequence[Holding]) -> Awaitable[None]:
        """Store the holdings of a pod; after `LedgerWriteFailed` nothing of them is stored."""
        return self._change(lambda file: file.commit(pod, holdings, self._boot_id))

    def release(self, pod_uids: Collection[str]) -> Awaitable[None]:
        """Remove pods; after `LedgerWriteFailed` all of them are still stored."""
        return self._change(lambda file: file.release(pod_uids))

    def mark_verified(self, pod_uid: str) -> Awaitable[None]:
        """Store that the devices of a pod were verified in this boot."""
        return self._change(lambda file: file.mark_verified(pod_uid, self._boot_id))

    def keep_resources(self, resources: Collection[str]) -> Awaitable[None]:
        """Store these resources instead of the resources stored before."""
        names = [*resources]
        return self._change(lambda file: file.keep_resources(names))

    def _change(self, make: Callable[[LedgerFile], None]) -> asyncio.Future[None]:
        if self._file is None:
            raise LedgerWriteFailed(f"{self.path}: the node has stopped")
        change = _Change(make, asyncio.get_running_loop().create_future())
        self._waiting.append(change)
        self._write_next()
        return change.done

    def _write_next(self) -> None:
        """Give all waiting changes to the thread, if the thread is not writing."""
        if self._waiting and not self._is_writing and self._thread and self._file:
            changes, self._waiting, self._is_writing = self._waiting, [], True
            loop = asyncio.get_running_loop()
            self._thread.submit(self._write, loop, self._file, changes)

    def _write(
        self, loop: asyncio.AbstractEventLoop, file: LedgerFile, changes: Sequence[_Change]
    ) -> None:
        errors = file.make([each.make for each in changes])
        # Only the event loop may set the result of a future.
        loop.call_soon_threadsafe(self._written, changes, errors)

    def _written(self, changes: Sequence[_Change], errors: Sequence[Exception | None]) -> None:
        for change, error in zip(changes, errors, strict=True):
            if change.done.done():
                continue  # its caller was cancelled
            if error is None:
                change.done.set_result(None)
            else:
                change.done.set_exception(error)
        self._is_writing = False
        self._changes += len(changes)
        if self._changes >= _CHANGES_PER_LOG and self._thread and self._file:
            self._changes = 0
            self._thread.submit(_shorten_log, self._file)
        self._write_next()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Write all waiting changes and close the file. A second call does nothing."""
        # From here on, `_change` raises `LedgerWriteFailed`.
        file, self._file = self._file, None
        thread, self._thread = self._thread, None
        if thread is not None:
            if file is not None:
                changes, self._waiting = self._waiting, []
                if changes:
                    thread.submit(self._write, asyncio.get_running_loop(), file, changes)
                await asyncio.get_running_loop().run_in_executor(thread, file.close)
            thread.shutdown(wait=False)


def _shorten_log(file: LedgerFile) -> None:
    """Shorten the log. After a failure, this is tried again after `_CHANGES_PER_LOG` changes."""
    try:
        file.shorten_log()
    except KubedevicesError as error:
        logger.warning("the ledger's log stays long: %s", error)
