"""One copy of the program that is checked: where it runs, its processes, and waits for it.

Both checks use it: `harness` adds a kubelet for device plugins, `drivers.node` one for DRA drivers.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from kubedevices.check.busy_machine import LostTime
from kubedevices.check.directories import PathMap, RunDirectories
from kubedevices.check.processes import Process, Supervisor, SupervisorRefused
from kubedevices.check.shared_state import SharedState
from kubedevices.check.target import TriggerRun
from kubedevices.errors import NoPrivateView
from kubedevices.testing.kubelet.change_signal import ChangeSignal
from kubedevices.testing.kubelet.mounts import Bind


class Workplace(NamedTuple):
    """Where one copy runs; `lost_time` measures how long it waits for a processor."""

    directories: RunDirectories
    supervisor: Supervisor
    path_map: PathMap
    lost_time: LostTime


@asynccontextmanager
async def workplace(
    directories: RunDirectories, create: Callable[[], Sequence[Bind]], *, needs_view: bool
) -> AsyncIterator[Workplace]:
    """Prepare directories and supervisor; afterwards end all processes and remove the files.

    `create` creates the directories, and returns what the program sees at other paths. Raises
    `NoPrivateView` if the program needs that and the host does not allow it.
    """
    # Before the directories exist: the supervisor removes them even if this process is killed.
    supervisor = await Supervisor.open(directories.root)
    try:
        binds = create()
        try:
            await supervisor.enter_private_view(binds)
        except SupervisorRefused as error:
            if needs_view:
                raise NoPrivateView(str(error)) from error
            # Root in a container may not mount. The command names the directories, so the program
            # needs no private view.
            await supervisor.close()
            supervisor, binds = await Supervisor.open(directories.root), []
            create()
        lost_time = LostTime(supervisor.pid)
        async with watched(lost_time):
            yield Workplace(directories, supervisor, PathMap(binds), lost_time)
    finally:
        await supervisor.close()
        directories.leave()


@asynccontextmanager
async def watched(lost_time: LostTime) -> AsyncIterator[None]:
    """Measure the time that is lost to other programs."""
    watching = asyncio.create_task(lost_time.watch(), name="time lost to other programs")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


class ProgramCopy:
    """The processes of one copy; `process` is the one that the checks judge.

    `changed` is notified when anything changes for which a check may wait.
    """

    def __init__(self, shared: SharedState, place: Workplace, changed: ChangeSignal) -> None:
        self.shared, self.changed = shared, changed
        self.directories, self.supervisor, self.path_map, self.lost_time = place
        self.checking = ""  # the ID of the check that runs
        self.process: Process | None = None
        self.is_suspect = False  # a check failed, so the next check needs a fresh start
        self._launched: list[tuple[str, Process]] = []  # with the ID of the check
        self.supervisor.on_end = changed.notify

    async def launch_command(
        self, command: Sequence[str], places: Mapping[str, str], env: Mapping[str, str]
    ) -> Process:
        """Start one more process; `places` has the texts for `{cdi_dir}` and other placeholders."""
        words = []
        for word in command:
            for name, value in places.items():
                word = word.replace(name, value)  # noqa: PLW2901
            words.append(word)
        log = self.directories.log(len(self._launched) + 1)
        process = await self.supervisor.start(words, env=env, log=log)
        self._launched.append((self.checking, process))
        return process

    async def run_in_shell(self, call: TriggerRun, what: str, limit: float) -> str:
        """Run a command of the user; return how it failed, `""` if it did not. In own seconds."""
        log = self.directories.root / f"{what}-output-{call.number}"
        process = await self.supervisor.start(call.argv(), env=call.environment(), log=log)
        if not await self.until_ended(process, limit):
            await process.send_signal(signal.SIGKILL)
            problem = f"the {what} failed: no end within {limit:g} s"
        elif process.code == 0:
            return ""
        else:
            problem = f"the {what} failed: {process.end_text()}"
        if words := process.last_words(1):
            problem += f", {words}"
        self.shared.changes.failed(call, problem)
        return problem

    def how_ended(self) -> str:
        """Return how the process ended, as a part of a finding; `""` while it runs."""
        if self.process is None or self.process.running:
            return ""
        return f"its process ended ({self.process.end_text()})"

    def last_words(self) -> str:
        """Return the last lines of the program's output."""
        return self.process.last_words() if self.process else ""

    def record_end(self, when: str, *, first: bool = False) -> None:
        """Record that the process ended although the check did not end it."""
        self.shared.record_end(self.process, when, self.last_words(), first=first)

    def outputs(self) -> list[str]:
        """Return what each process of this copy has printed."""
        return [process.output() for _, process in self._launched]

    def keep_logs(self) -> None:
        """Store the output of all processes; the directory with the output is removed later."""
        for check, process in self._launched:
            output = self.without_directories(process.output())
            self.shared.store_log(check, process.end_text(), output)

    def without_directories(self, text: str) -> str:
        """Remove the paths of the run's directories from a text; they mean nothing to users."""
        raise NotImplementedError

    # ------------------------------------------------------------ waiting

    async def until(self, condition: Callable[[], object], limit: float) -> bool:
        """Wait for `condition()`, the end, or `limit` own seconds; return the condition."""
        process = self.process

        def over() -> bool:
            return bool(condition()) or (process is not None and not process.running)

        await self.until_true(over, limit)
        return bool(condition())

    async def until_true(self, condition: Callable[[], object], limit: float) -> bool:
        """Wait until `condition()`, also after the end of the process, for `limit` own seconds."""
        return await self.lost_time.wait(partial(self.changed.until, condition), limit)

    async def until_ended(self, process: Process, limit: float) -> bool:
        """Wait for the end of a process, for at most `limit` of its own seconds."""
        return await self.lost_time.wait(process.wait, limit)

    def spent(self, since: float, until: float | None = None) -> float:
        """Return its own seconds between two times of the loop; `until` is now if None."""
        return self.lost_time.spent(since, until)
