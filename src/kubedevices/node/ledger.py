"""Who holds what, made durable: one transaction per admitted or released pod, on one thread.

The store of a real node. The file itself is `ledger_file`; this is the thread that writes it, and
what happens when it is missing (a kubelet's checkpoint is moved in) or damaged (put aside, and the
checkpoint again). Nothing waits here on the event loop's own time.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kubedevices.errors import KubedevicesError, LedgerDamaged, LedgerWriteFailed
from kubedevices.host.boot_id import BOOT_ID_FILE, read_boot_id
from kubedevices.node.checkpoint_file import move_in
from kubedevices.node.ledger_file import COMPANIONS, LedgerFile
from kubedevices.node.pod import Pod
from kubedevices.node.pod_devices import Holding
from kubedevices.node.pod_devices_store import Kept
from kubedevices.node.set_aside import set_aside

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

LEDGER_NAME = "ledger.db"
"""The ledger in a node's state directory."""

_CHANGES_PER_LOG = 400
_LONG_LOG = 4 * 1024 * 1024
"""What that many changes make; moving it into the main file takes a few milliseconds."""


class Ledger:
    """A `PodDevicesStore` in `state_dir`. It begins with what a kubelet left in `checkpoint`.

    With `compat` not with what a kubelet before 1.20 left.
    """

    def __init__(
        self,
        state_dir: Path,
        checkpoint: Path,
        boot_id_file: Path = BOOT_ID_FILE,
        *,
        compat: bool = False,
    ) -> None:
        self._compat = compat
        self.path = state_dir / LEDGER_NAME
        self._checkpoint, self._boot_id_file, self._boot_id = checkpoint, boot_id_file, ""
        self._thread: ThreadPoolExecutor | None = None
        self._file: LedgerFile | None = None
        self._pods: dict[str, Pod] = {}
        self._changes = 0

    def __repr__(self) -> str:
        state = "open" if self._file else "closed"
        return f"<Ledger {self.path} of {len(self._pods)} pods, {state}>"

    async def load(self) -> Kept:
        """Open the file, or begin a new one; raises `CannotAsk` when neither is possible."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kubedevices ledger")
        try:
            kept = await self._run(self._open)
        except BaseException:
            await self.close()
            raise
        self._pods = {admitted.pod.uid: admitted.pod for admitted in kept.pods}
        if self._file is not None and self._file.log_size() > _LONG_LOG:
            self._thread.submit(_shorten_log, self._file)
        return kept

    def _open(self) -> Kept:
        damage = []
        self._boot_id = read_boot_id(self._boot_id_file)
        try:
            self._file = LedgerFile.open(self.path)
            if self._file is not None:
                pods, resources = self._file.load(self._boot_id)
                return Kept(pods, resources)
        except LedgerDamaged as error:
            if self._file is not None:
                self._file.close()
            damage.append(set_aside(self.path, error.reason, companions=COMPANIONS))
        begun = move_in(self._checkpoint, self._boot_id, compat=self._compat)
        damage += begun.damage
        self._file = LedgerFile.create(self.path, begun.pods, begun.resources, self._boot_id)
        pods, resources = self._file.load(self._boot_id)
        return Kept(pods, resources, damage)

    # ------------------------------------------------------------ changes

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """Keep what a pod got; raises `LedgerWriteFailed`, and then nothing of it is kept."""
        if holdings or self._pods.get(pod.uid) != pod:
            await self._change(lambda file: file.commit(pod, holdings, self._boot_id))
            self._pods[pod.uid] = pod

    async def release(self, pod_uids: Collection[str]) -> None:
        """Forget pods; raises `LedgerWriteFailed`, and then all of them are kept."""
        known = [pod_uid for pod_uid in pod_uids if pod_uid in self._pods]
        if known:
            await self._change(lambda file: file.release(known))
            for pod_uid in known:
                del self._pods[pod_uid]

    async def confirm(self, pod_uid: str) -> None:
        """Let a pod belong to this boot."""
        await self._change(lambda file: file.confirm(pod_uid, self._boot_id))

    async def keep_resources(self, resources: Collection[str]) -> None:
        """Remember these resources instead of those before."""
        names = [*resources]
        await self._change(lambda file: file.keep_resources(names))

    async def _change(self, change: Callable[[LedgerFile], None]) -> None:
        file = self._file
        if file is None:
            raise LedgerWriteFailed(f"{self.path}: the node has stopped")
        await self._run(lambda: change(file))
        self._changes += 1
        if self._changes >= _CHANGES_PER_LOG and self._thread is not None:
            self._changes = 0
            self._thread.submit(_shorten_log, file)

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Finish what is being written and close the file; harmless when repeated."""
        file, self._file = self._file, None
        thread, self._thread = self._thread, None
        if thread is not None:
            if file is not None:
                await asyncio.get_running_loop().run_in_executor(thread, file.close)
            thread.shutdown(wait=False)


def _shorten_log(file: LedgerFile) -> None:
    """Nobody waits for this; it is tried again after as many changes."""
    try:
        file.shorten_log()
    except KubedevicesError as error:
        logger.warning("the ledger's log stays long: %s", error)
