"""The harness: one copy of the plugin, its processes, and the probe that acts as its kubelet.

Several checks use one harness one after another. Before each check, `ready` makes sure that the
plugin is registered, and starts it afresh if necessary.
"""

import asyncio
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kubedevices.check.busy_machine import worked_below
from kubedevices.check.check import Broken, NotTried, PluginLost
from kubedevices.check.processes import Process
from kubedevices.check.program_copy import ProgramCopy, Workplace
from kubedevices.check.shared_state import SharedState
from kubedevices.check.target import Target
from kubedevices.check.timing import CheckTiming
from kubedevices.errors import PluginNotStarted, UnknownResource
from kubedevices.errors.words import counted
from kubedevices.host import deadlines
from kubedevices.host.cdi_specs import DIRECTORIES
from kubedevices.testing.kubelet.arrival import LIKE_A_KUBELET, Arrival, RegisterBehavior
from kubedevices.testing.kubelet.kubelet import Probe
from kubedevices.values.socket_paths import CHECKPOINT_NAME

ANOTHER_SECOND = 1.1
"""Seconds between two starts: some plugins name their socket after the second of the start.

`--timeout-scale` does not change this.
"""


class Harness(ProgramCopy):
    """One copy of the plugin and one kubelet. `resources` are the resources that are checked."""

    def __init__(
        self,
        target: Target,
        timing: CheckTiming,
        shared: SharedState,
        place: Workplace,
        probe: Probe,
    ) -> None:
        super().__init__(shared, place, probe.change_signal)
        self.target, self.timing, self.probe = target, timing, probe
        self.resources = shared.resources
        self.launched_at = 0.0
        self.allocates: dict[str, bool] = {}  # by resource: whether Allocate worked
        self.memory: dict[type, object] = {}  # measurements that several checks share, by class

    def __repr__(self) -> str:
        return f"<Harness {' '.join(self.target.command) or self.target.directory} {self.probe!r}>"

    # ------------------------------------------------------------ processes

    def need_command(self) -> None:
        """Raise `NotTried` if the user starts the plugin, not the check."""
        if not self.target.command:
            raise NotTried("needs a plugin that the check may start and end: -- COMMAND")

    async def launch(self) -> Process:
        """Start one more process of the plugin."""
        self.launched_at = asyncio.get_running_loop().time()
        places = self.directories.placeholders()
        return await self.launch_command(self.target.command, places, os.environ)

    def without_directories(self, text: str) -> str:
        """Remove the paths of the run's directories from a text; they mean nothing to users."""
        directories = self.directories
        for directory in (
            self.probe.socket_dir,
            directories.sockets,
            directories.registry,
            directories.cdi,
        ):
            text = text.replace(f"{directory}/", "")
        return text

    async def launch_another(self) -> Process:
        """Start one more process, but not in the same second as the last: no node does that."""
        await asyncio.gather(asyncio.sleep(ANOTHER_SECOND), self.wait_after_register())
        return await self.launch()

    async def start_fresh(
        self, *, kubelet: bool = True, behavior: RegisterBehavior = LIKE_A_KUBELET
    ) -> Process:
        """End all processes, clean the directories, and start one process of the plugin.

        The kubelet runs if `kubelet` is True, and answers Register as `behavior` says.
        """
        self.need_command()
        await self.end_processes()
        self.directories.clean()
        self.probe.arrivals.clear()
        self.is_suspect = False
        self.probe.behavior = behavior
        if kubelet:
            await self.probe.start()
        self.process = await self.launch()
        return self.process

    def age(self) -> float:
        """Return the seconds since the last launch."""
        return asyncio.get_running_loop().time() - self.launched_at

    def last_words(self) -> str:
        """Return the last lines of the plugin's output if its process has ended, else `""`."""
        return super().last_words() if self.how_ended() else ""

    def cause(self) -> str:
        """Return why the plugin does not register again, as the cause of findings."""
        ended = self.process.cause() if self.process else ""
        return ended or "never registers again"

    async def end_processes(self) -> None:
        """Kill the plugin and every process that it started, and stop the kubelet."""
        await self.supervisor.kill_all()
        await self.probe.stop()
        self.process = None

    # ------------------------------------------------------------ registration

    async def ready(self) -> None:
        """Start the plugin afresh unless it is registered; raises `PluginLost`."""
        if self.is_ready():
            return
        if self.target.command:
            await self.start_fresh()
        elif not self.probe.is_running:
            self.probe.behavior = LIKE_A_KUBELET
            await self.probe.start()
        self.is_suspect = False
        began = asyncio.get_running_loop().time()
        if not await self.until(self.is_connected, self.timing.start):
            raise PluginLost(self.why_missing(self.spent(began), began))

    async def wait_after_register(self) -> None:
        """Wait until `timing.after_register` seconds after Register: some plugins watch late.

        A resource that registers in this time is checked as well.
        """
        accepted = [each.accepted_at or 0 for each in self.probe.accepted().values()]
        past = self.spent(max(accepted, default=0))
        if past < self.timing.after_register:
            await self.pause(self.timing.after_register - past)
        self.resources = tuple(sorted({*self.resources, *self.late_resources()}))

    def is_ready(self) -> bool:
        """Whether the plugin is registered at a running kubelet that behaves as usual."""
        return (
            not self.is_suspect
            and self.probe.is_running
            and self.probe.behavior is LIKE_A_KUBELET
            and (self.process is None or self.process.running)
            and self.is_connected()
        )

    def is_connected(self) -> bool:
        """Whether every resource has an open connection."""
        sessions = [self.probe.plugins.get(name) for name in self.resources]
        return all(session and session.is_alive for session in sessions)

    async def start_first(self) -> None:
        """Start the plugin for the first time and record which resources it registers.

        Raises `PluginNotStarted`, `Broken` if nothing registers, and `UnknownResource` if
        `--resource` is not among the resources that register.
        """
        if self.target.command:
            await self.start_fresh()
        elif not self.probe.is_running:
            await self.probe.start()
        began = asyncio.get_running_loop().time()
        answered = self._answered

        def came() -> bool:
            return answered() or bool(self.probe.old_calls and not self.probe.arrivals)

        before = min(self.target.waited, self.timing.start - 1)
        if not await self.until(came, self.timing.start - before) and not self.probe.arrivals:
            waited = before + self.spent(began)
            if self.process and not self.process.running:
                words = self.process.last_words()
                raise PluginNotStarted(f"{self.process.end_text()} after {waited:.1f} s\n{words}")
            words = self.process.last_words() if self.process else ""
            raise Broken(f"nothing called Register within {waited:.0f} s", words)
        if not self.probe.arrivals:
            await self.pause(self.timing.settle)
            raise Broken(
                "it calls deviceplugin.Registration (v1alpha), which no kubelet serves any more",
                self.last_words(),
            )
        # Not `until`: the process may have crashed in a call that the kubelet makes before it
        # answers Register.
        await self.until_true(answered, self.timing.dial)
        wanted = self.target.resource
        while not (wanted and wanted in self._names()) and await self._another_arrives():
            pass
        names = self._names()
        if wanted and wanted not in names:
            raise UnknownResource(wanted, sorted(names))
        await self.until_true(lambda: self._answered(all), self.timing.dial)
        self.resources = (wanted,) if wanted else tuple(sorted(names))
        shared = self.shared
        shared.resources = self.resources
        if self.target.command:
            shared.usual_start = min(each.at for each in self.probe.arrivals) - self.launched_at
            shared.work_of_start = worked_below(self.supervisor.pid)
        shared.is_watched = all(arrival.info for arrival in self.probe.arrivals)

    async def _another_arrives(self) -> bool:
        known = self._names()
        return await self.until(lambda: self._names() != known, self.timing.settle)

    def _names(self) -> set[str]:
        return {arrival.resource for arrival in self.probe.arrivals}

    def late_resources(self) -> tuple[str, ...]:
        """Return resources that registered after the first start had ended its wait."""
        if self.target.resource:
            return ()
        return tuple(sorted(self.probe.accepted().keys() - {*self.resources}))

    def _answered(self, which: Callable[[Iterable[object]], bool] = any) -> bool:
        return which(each.answered_at or each.gave_up_after for each in self.probe.arrivals)

    async def pause(self, seconds: float) -> None:
        """Wait `seconds` own seconds of the plugin, or until its process ends.

        On a busy machine this takes at most twice as long by the clock.
        """
        began, process = asyncio.get_running_loop().time(), self.process

        def over() -> bool:
            return process is not None and not process.running

        if seconds > 0 and not await self.changed.until(over, seconds):
            await self.changed.until(over, max(seconds - self.spent(began), 0))

    async def steady(self) -> None:
        """Wait until no check changes devices, for at most twice the time of a change."""
        await deadlines.within(2 * self.timing.change, self.shared.changes.steady.wait())

    async def until_registered(self, timeout: float, *, since: float = 0) -> float:
        """Wait until every resource has registered after `since`; return the own seconds it took.

        Raises `Broken` after `timeout` own seconds, or if the process ends.
        """
        began = asyncio.get_running_loop().time()
        if await self.until(lambda: not self.missing(since), timeout):
            return self.spent(began)
        raise Broken(self.why_missing(self.spent(began), since), cause=self.cause())

    def missing(self, since: float = 0) -> list[str]:
        """Return the resources that have no connection from a Register after `since`.

        A plugin that registered just before the kubelet ended has lost this registration.
        """
        let_in = [each.session for each in self.probe.arrivals if each.is_accepted(since)]
        return [name for name in self.resources if self.probe.plugins.get(name) not in let_in]

    def why_missing(self, waited: float, since: float = 0) -> str:
        """Return one line that says what the plugin did instead of registering."""
        if ended := self.how_ended():
            return f"{ended} after {waited:.1f} s"
        tries = [each for each in self.probe.arrivals if each.at >= since]
        did = "it never called Register"
        if tries:
            answers = {each.refused_with for each in tries} - {""}
            times = Counter(dict.fromkeys(self.resources, 0))
            times.update(each.resource for each in tries)
            did = "it called Register " + ", ".join(
                counted(number, "time") + (f" for {name}" if len(times) > 1 else "")
                for name, number in times.items()
            )
            did += f" and was refused: {'; '.join(sorted(answers))}" if answers else ""
        return f"not registered within {waited:.1f} s; {did}"

    def last_arrival(self, resource: str) -> Arrival:
        """Return the last Register of a resource that was accepted, or else its last Register."""
        accepted = self.probe.accepted().get(resource)
        if accepted:
            return accepted
        return [each for each in self.probe.arrivals if each.resource == resource][-1]

    # ------------------------------------------------------------ looking

    def cdi_dirs(self) -> tuple[Path, ...]:
        """Return the CDI directories of the plugin, lowest priority first."""
        static, generated = map(self.path_map.outside, map(str, DIRECTORIES))
        if any("{cdi_dir}" in word for word in self.target.command):
            generated = self.directories.cdi
        return static, generated

    def left_sockets(self) -> list[Path]:
        """Return the plugin's sockets in both directories."""
        registry = self.directories.registry
        return [*self.probe.sockets(), *(registry.iterdir() if registry.is_dir() else ())]

    def may_wipe_everything(self) -> bool:
        """Whether the plugin directory has no file that belongs to somebody else.

        Sockets and the kubelet's checkpoint may be removed: a starting kubelet removes sockets.
        """
        if self.target.command:
            return True
        return all(
            path.name == CHECKPOINT_NAME or stat.S_ISSOCK(path.lstat().st_mode)
            for path in self.probe.socket_dir.iterdir()
        )

    async def missing_paths(self, paths: Sequence[str]) -> list[str]:
        """Return those of `paths`, as the plugin sees them, that do not exist."""
        return await self.supervisor.missing(sorted(set(paths)))
