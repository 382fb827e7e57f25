"""The plugin under check, its processes, and the kubelet it meets: what the checks act on.

A stage survives every check: whatever one left behind, `ready` makes the plugin registered again
for the next, by a fresh start where that is the only way.
"""

import asyncio
import os
import stat
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from kubedevices.conformance.check import Broken, NotTried, PluginLost
from kubedevices.conformance.lost_time import LostTime, until_set, worked_below
from kubedevices.conformance.notes import Notes
from kubedevices.conformance.processes import Process, Supervisor, SupervisorRefused
from kubedevices.conformance.target import Target, registry_beside
from kubedevices.conformance.timing import CheckTiming
from kubedevices.conformance.trigger import Changes
from kubedevices.conformance.view import CDI_DIR, STATIC_CDI_DIR, InPlace, View, Workplace
from kubedevices.errors import NoPrivateView, PluginNotStarted
from kubedevices.probe.arrival import LIKE_A_KUBELET, Arrival, RegisterBehavior
from kubedevices.probe.kubelet import Probe
from kubedevices.socket_paths import CHECKPOINT_NAME
from kubedevices.words import counted

ANOTHER_SECOND = 1.1
"""Some plugins name their socket after the second of their start; clocks do not scale."""


@asynccontextmanager
async def open_stage(
    target: Target, timing: CheckTiming, notes: Notes | None = None
) -> AsyncIterator["Stage"]:
    """Prepare directories, supervisor and probe; end everything afterwards.

    Raises `NoPrivateView` when the plugin needs one and we may not make it.
    """
    needed = target.needs_private_view or bool(target.binds)
    private = bool(target.command) and not target.in_place and (needed or os.geteuid() == 0)
    place = InPlace.choose() if target.in_place else Workplace.choose()
    notes = notes or Notes(Changes(target.trigger))
    binds = [*target.binds, *place.binds()] if private else []
    # Before the directories are made: it removes them even if this process is killed.
    supervisor = await Supervisor.open(place.root)
    try:
        place.create()
        try:
            await supervisor.enter_private_view(binds)
        except SupervisorRefused as error:
            if needed:
                raise NoPrivateView(str(error)) from error
            # A container's root may not mount, and the plugin was told where to go.
            await supervisor.close()
            supervisor, binds = await Supervisor.open(place.root), []
            place.create()
        view = View(binds)
        lost_time = LostTime(supervisor.pid)
        registry = place.registry if target.command else registry_beside(target.directory)
        probe = Probe(
            target.directory or place.sockets,
            registry if target.registry else None,
            dial_limit=timing.dial,
            outside=view.outside,
            ask=lost_time.ask,
        )
        supervisor.on_end = probe.change_signal.notify
        stage = Stage(
            target,
            timing,
            notes,
            probe=probe,
            supervisor=supervisor,
            lost_time=lost_time,
            view=view,
            place=place,
        )
        async with probe:
            watching = asyncio.create_task(lost_time.watch(), name="time that the machine takes")
            try:
                yield stage
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                stage.keep_logs()
    finally:
        await supervisor.close()
        place.leave()


class Stage:
    """One plugin and one kubelet. `resources` are those that registered, and are checked."""

    def __init__(
        self,
        target: Target,
        timing: CheckTiming,
        notes: Notes,
        *,
        probe: Probe,
        supervisor: Supervisor,
        lost_time: LostTime,
        place: Workplace,
        view: View,
    ) -> None:
        self.target, self.timing, self.notes = target, timing, notes
        self.probe, self.supervisor, self.lost_time = probe, supervisor, lost_time
        self.place, self.view = place, view
        self.resources = notes.resources
        self.checking = ""  # the ID of the check that is tried now
        self.process: Process | None = None
        self.launched_at = 0.0
        self.allocates: dict[str, bool] = {}  # by resource: whether Allocate ever worked
        self.is_suspect = False  # a check failed: whatever it left behind must not fail others
        self.memory: dict[type, object] = {}  # what one check measured for others, by its class
        self._launched: list[tuple[str, Process]] = []  # with the check that did it

    def __repr__(self) -> str:
        return f"<Stage {' '.join(self.target.command) or self.target.directory} {self.probe!r}>"

    # ------------------------------------------------------------ processes

    def need_command(self) -> None:
        """Skip the check unless the plugin is ours to start."""
        if not self.target.command:
            raise NotTried("needs a plugin that the check may start and end: -- COMMAND")

    async def launch(self) -> Process:
        """Start one more process of the plugin."""
        placeholders = self.place.placeholders()
        words = []
        for word in self.target.command:
            for name, value in placeholders.items():
                word = word.replace(name, value)  # noqa: PLW2901
            words.append(word)
        self.launched_at = asyncio.get_running_loop().time()
        log = self.place.log(len(self._launched) + 1)
        process = await self.supervisor.start(words, env=os.environ, log=log)
        self._launched.append((self.checking, process))
        return process

    def keep_logs(self) -> None:
        """Note what the processes printed, before their directory is gone."""
        for check, process in self._launched:
            self.notes.keep_log(check, process.end_text(), self.tidy(process.output()))

    def tidy(self, text: str) -> str:
        """Leave the directories of the run out of a text; they mean nothing to anybody."""
        place = self.place
        for directory in (self.probe.socket_dir, place.sockets, place.registry, place.cdi):
            text = text.replace(f"{directory}/", "")
        return text

    async def launch_another(self) -> Process:
        """Start a process beside or after another, but not in the same second: no node does."""
        await asyncio.gather(asyncio.sleep(ANOTHER_SECOND), self.wait_after_register())
        return await self.launch()

    async def start_fresh(
        self, *, kubelet: bool = True, behavior: RegisterBehavior = LIKE_A_KUBELET
    ) -> Process:
        """End whatever runs, clean up, and start one process, with or without a kubelet."""
        self.need_command()
        await self.end_processes()
        self.clean_directories()
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
        """Return the end of what the plugin wrote, if its process has ended."""
        return self.process.last_words() if self.process and not self.process.running else ""

    async def end_processes(self) -> None:
        """Kill the plugin, everything it started, and the kubelet."""
        await self.supervisor.kill_all()
        await self.probe.stop()
        self.process = None

    def clean_directories(self) -> None:
        """Remove what a plugin left in its directories; only our own are ever cleaned so."""
        for directory in (self.place.sockets, self.place.registry, self.place.cdi):
            for path in directory.iterdir():
                if not path.is_dir():
                    path.unlink()

    # ------------------------------------------------------------ registration

    async def ready(self) -> None:
        """Have the plugin registered, with a fresh start if need be; raises `PluginLost`."""
        if self.is_ready():
            return
        if self.target.command:
            await self.start_fresh()
        elif not self.probe.is_running:
            self.probe.behavior = LIKE_A_KUBELET
            await self.probe.start()
        self.is_suspect = False
        began = asyncio.get_running_loop().time()
        if not await self.wait_for(self.is_connected, self.timing.start):
            raise PluginLost(self.why_missing(self.spent(began), began))

    async def wait_after_register(self) -> None:
        """Let a moment pass since Register: some plugins begin to watch only then.

        A resource that comes meanwhile belongs to the plugin as well.
        """
        accepted = [each.accepted_at or 0 for each in self.probe.accepted().values()]
        past = self.spent(max(accepted, default=0))
        if past < self.timing.after_register:
            await self.pause(self.timing.after_register - past)
        self.resources = tuple(sorted({*self.resources, *self.late_resources()}))

    def is_ready(self) -> bool:
        """Whether everything is as a peaceful check needs it."""
        return (
            not self.is_suspect
            and self.probe.is_running
            and self.probe.behavior is LIKE_A_KUBELET
            and (self.process is None or self.process.running)
            and self.is_connected()
        )

    def is_connected(self) -> bool:
        """Whether there is a living connection to every resource."""
        sessions = [self.probe.plugins.get(name) for name in self.resources]
        return all(session and session.is_alive for session in sessions)

    async def start_first(self) -> None:
        """Start the plugin for the first time and learn what it registers."""
        if self.target.command:
            await self.start_fresh()
        elif not self.probe.is_running:
            await self.probe.start()
        began = asyncio.get_running_loop().time()
        answered = self._answered

        def came() -> bool:
            return answered() or bool(self.probe.old_calls and not self.probe.arrivals)

        if not await self.wait_for(came, self.timing.start) and not self.probe.arrivals:
            waited = self.spent(began)
            if self.process and not self.process.running:
                words = self.process.last_words()
                raise PluginNotStarted(f"{self.process.end_text()} after {waited:.1f} s\n{words}")
            raise Broken(f"nothing called Register within {waited:.0f} s")
        if not self.probe.arrivals:
            await self.pause(self.timing.settle)
            raise Broken(
                "it calls deviceplugin.Registration (v1alpha), which no kubelet serves any more",
                self.last_words(),
            )
        # The process may have died of what the kubelet asks before it answers.
        await self.until(answered, self.timing.dial)
        wanted = self.target.resource
        if wanted:
            await self.wait_for(lambda: wanted in self._names(), self.timing.start)
        else:
            while await self._another_arrives():
                pass
        names = self._names()
        if wanted and wanted not in names:
            raise Broken(f"{wanted} did not register, only {', '.join(sorted(names))}")
        await self.until(lambda: self._answered(all), self.timing.dial)
        self.resources = (wanted,) if wanted else tuple(sorted(names))
        notes = self.notes
        notes.resources = self.resources
        if self.target.command:
            notes.usual_start = min(each.at for each in self.probe.arrivals) - self.launched_at
            notes.work_of_start = worked_below(self.supervisor.pid)
        notes.is_watched = all(arrival.info for arrival in self.probe.arrivals)

    async def _another_arrives(self) -> bool:
        known = self._names()
        return await self.wait_for(lambda: self._names() != known, self.timing.settle)

    def _names(self) -> set[str]:
        return {arrival.resource for arrival in self.probe.arrivals}

    def late_resources(self) -> tuple[str, ...]:
        """Return resources that registered after we believed to know them all."""
        if self.target.resource:
            return ()
        return tuple(sorted(self.probe.accepted().keys() - {*self.resources}))

    def _answered(self, which: Callable[[Iterable[object]], bool] = any) -> bool:
        return which(each.answered_at or each.gave_up_after for each in self.probe.arrivals)

    async def wait_for(self, condition: Callable[[], object], timeout: float) -> bool:
        """Wait until `condition()`, but no longer than the plugin's process lives."""
        process = self.process

        def over() -> bool:
            return bool(condition()) or (process is not None and not process.running)

        await self.until(over, timeout)
        return bool(condition())

    async def until(self, condition: Callable[[], object], limit: float) -> bool:
        """Wait until `condition()`, but no longer than `limit` of the plugin's own seconds."""
        return await self.lost_time.wait(partial(self.probe.change_signal.until, condition), limit)

    async def until_ended(self, process: Process, limit: float) -> bool:
        """Wait for the end of a process, for `limit` of its own seconds."""
        return await self.lost_time.wait(process.wait, limit)

    async def pause(self, seconds: float) -> None:
        """Let a time of the plugin pass, as long as its process lives; at most twice as long."""
        began, process = asyncio.get_running_loop().time(), self.process

        def over() -> bool:
            return process is not None and not process.running

        if seconds > 0 and not await self.probe.change_signal.until(over, seconds):
            await self.probe.change_signal.until(over, max(seconds - self.spent(began), 0))

    async def steady(self) -> None:
        """Wait until the checks of changes let the devices be; not for ever, they may need long."""
        await until_set(self.notes.changes.steady, 2 * self.timing.change)

    def spent(self, since: float, until: float | None = None) -> float:
        """Return the plugin's own seconds between two times of the loop, until now by default."""
        return self.lost_time.spent(since, until)

    async def until_registered(self, timeout: float, *, since: float = 0) -> float:
        """Wait until every resource registered (again); return how long it took, or be `Broken`."""
        began = asyncio.get_running_loop().time()
        if await self.wait_for(lambda: not self.missing(since), timeout):
            return self.spent(began)
        raise Broken(self.why_missing(self.spent(began), since))

    def missing(self, since: float = 0) -> list[str]:
        """Return the resources that did not register `since` a time of the loop.

        What came just before the kubelet went, went with it.
        """
        let_in = [each.session for each in self.probe.arrivals if each.is_accepted(since)]
        return [name for name in self.resources if self.probe.plugins.get(name) not in let_in]

    def why_missing(self, waited: float, since: float = 0) -> str:
        """Say in one line what the plugin did instead of registering."""
        if self.process and not self.process.running:
            return f"its process ended ({self.process.end_text()}) after {waited:.1f} s"
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
            did += f" and was told: {'; '.join(sorted(answers))}" if answers else ""
        return f"not registered within {waited:.1f} s; {did}"

    def last_arrival(self, resource: str) -> Arrival:
        """Return the last accepted attempt of a resource to register, or its last one."""
        accepted = self.probe.accepted().get(resource)
        if accepted:
            return accepted
        return [each for each in self.probe.arrivals if each.resource == resource][-1]

    # ------------------------------------------------------------ looking

    def cdi_dirs(self) -> tuple[Path, ...]:
        """Return the CDI directories of the plugin's view, lowest priority first."""
        if any("{cdi_dir}" in word for word in self.target.command):
            return (STATIC_CDI_DIR, self.place.cdi)
        return (self.view.outside(str(STATIC_CDI_DIR)), self.view.outside(str(CDI_DIR)))

    def may_wipe_everything(self) -> bool:
        """Whether no file in the plugin directory could be dear to somebody."""
        if self.target.command:
            return True
        return all(
            path.name == CHECKPOINT_NAME or stat.S_ISSOCK(path.lstat().st_mode)
            for path in self.probe.socket_dir.iterdir()
        )

    async def missing_paths(self, paths: Sequence[str]) -> list[str]:
        """Return those of the plugin's host paths that do not exist."""
        return await self.supervisor.missing(sorted(set(paths)))
