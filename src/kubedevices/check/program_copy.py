"""One copy of the program that is checked: its processes, and the waits for what it does.

Both checks use it: `harness` adds a kubelet for device plugins, `drivers.node` one for DRA drivers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kubedevices.check.busy_machine import LostTime
from kubedevices.check.directories import PathMap, RunDirectories
from kubedevices.check.processes import Process, Supervisor
from kubedevices.check.shared_state import SharedState
from kubedevices.testing.kubelet.change_signal import ChangeSignal


class ProgramCopy:
    """The processes of one copy; `process` is the one that the checks judge.

    `changed` is notified when anything changes for which a check may wait.
    """

    def __init__(
        self,
        shared: SharedState,
        *,
        directories: RunDirectories,
        path_map: PathMap,
        supervisor: Supervisor,
        lost_time: LostTime,
        changed: ChangeSignal,
    ) -> None:
        self.shared, self.directories, self.path_map = shared, directories, path_map
        self.supervisor, self.lost_time, self.changed = supervisor, lost_time, changed
        self.checking = ""  # the ID of the check that runs
        self.process: Process | None = None
        self.is_suspect = False  # a check failed, so the next check needs a fresh start
        self._launched: list[tuple[str, Process]] = []  # with the ID of the check
        supervisor.on_end = changed.notify

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
        """Wait until `condition()`, until the process ends, or for `limit` own seconds.

        Return whether the condition is true.
        """
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
