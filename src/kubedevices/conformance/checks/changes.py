"""What becomes of changes, which only a trigger can make: who hears of them, and for how long."""

import asyncio
from contextlib import AsyncExitStack

from kubedevices.conformance.check import (
    Broken,
    Finding,
    NotTried,
    Phase,
    Severity,
    Status,
    Theme,
    Verdict,
    verdict_of,
)
from kubedevices.conformance.checks.restarts import Verdicts, list_of, restart_once
from kubedevices.conformance.checks.restarts import theme as restarts
from kubedevices.conformance.plugin import Plugin, shorten
from kubedevices.conformance.process_figures import listening_process
from kubedevices.conformance.stage import Stage
from kubedevices.conformance.trigger import Call
from kubedevices.device import Health, ReportedDevice
from kubedevices.errors import WireError
from kubedevices.probe.session import Stream

FAIL, WARN = Severity.FAIL, Severity.WARN

TRACK = "changes"
"""Runs when no other check compares lists of devices any more."""

theme = Theme(
    "list",
    needs=("list.first-message", "list.stays-open", "list.abandoned-stream"),
    phase=Phase.QUIET,
    track=TRACK,
    disturbs=True,
)

Content = frozenset[ReportedDevice]


def _content(stream: Stream | None) -> Content:
    return stream.latest.content if stream and stream.latest else frozenset()


def _need_trigger(stage: Stage) -> None:
    """Skip the check unless we know how to make devices change."""
    if not stage.target.trigger.command:
        raise NotTried("needs --trigger, a command that makes the devices change")


def _triggered(stage: Stage) -> tuple[str, ...]:
    """Return the resources that the trigger may change."""
    named = stage.target.trigger.resource
    return (named,) if named in stage.resources else stage.resources


def _no_change(stage: Stage) -> str:
    """Say why a trigger without effect proves nothing."""
    return (
        f"no stream saw a change within {stage.timing.change:g} s: the trigger did nothing, "
        "or the plugin looks rarely (--change-timeout)"
    )


async def _run_trigger(stage: Stage) -> None:
    """Make the plugin's devices change, in the way its author told us."""
    await _run_in_shell(stage, stage.notes.changes.next(), "trigger")


async def _undo(stage: Stage) -> None:
    """Bring the devices back to where they were before the triggers, as far as we know how."""
    before = {name: Plugin.of(stage, name).session.latest for name in _triggered(stage)}
    calls = stage.notes.changes.undoing()
    for call in calls:
        await _run_in_shell(stage, call, "undo")

    def noticed() -> bool:
        return any(Plugin.of(stage, name).session.latest is not old for name, old in before.items())

    if calls:  # what comes of it must not be taken for the next change
        await stage.wait_for(noticed, stage.timing.change / 3)
        await stage.pause(stage.timing.hold)


async def _run_in_shell(stage: Stage, call: Call, what: str) -> None:
    log = stage.place.root / f"{what}-output"
    process = await stage.supervisor.start(call.argv(), env=call.environment(), log=log)
    if not await stage.until_ended(process, stage.timing.call) or process.code != 0:
        raise NotTried(f"the {what} failed: {process.how_it_ended()} {process.last_words(1)}")


class Watched:
    """The streams of one resource while devices change."""

    def __init__(self, plugin: Plugin, main: Stream, second: Stream) -> None:
        self.plugin = plugin
        self.streams = {"kubelet's": main, "second": second}
        self._before: dict[str, Content] = {}

    def look(self) -> None:
        """Remember what every stream has said so far."""
        self._before = {name: _content(stream) for name, stream in self.streams.items()}

    def behind(self) -> list[str]:
        """Return the open streams that said nothing new since."""
        return [
            name
            for name, stream in self.streams.items()
            if stream.is_open and _content(stream) == self._before[name]
        ]

    def is_touched(self) -> bool:
        """Whether any stream said something new, or ended."""
        return len(self.behind()) < len(self.streams)

    def is_torn(self) -> bool:
        """Whether some streams know what others do not."""
        return self.is_touched() and bool(self.behind())


@theme.check(
    "change",
    FAIL,
    suffers="Updates get lost: the node offers devices that are gone or broken, and not those "
    "that came.",
    source="device plugin API: whenever a device changes, ListAndWatch returns the new list",
    mend="Give every stream its own cursor over one shared list, not one queue for all.",
    seen="Intel and generic-device-plugin (streams share one channel)",
)
async def change(stage: Stage) -> Verdicts:
    """A change of the devices reaches every open stream."""
    _need_trigger(stage)
    async with AsyncExitStack() as stack:
        watched = []
        for name in _triggered(stage):
            plugin = Plugin.of(stage, name)
            await plugin.device_list()
            assert plugin.session.stream
            second = await stack.enter_async_context(plugin.another_stream())
            await plugin.first_of(second, stage.timing.first_list)
            watched.append(Watched(plugin, plugin.session.stream, second))
        try:
            slowest = await _change_once(stage, watched)
            touched = [each for each in watched if each.is_touched()]
            if not touched:
                await _must_not_be_lost(stage, "a change reached no stream")
                raise NotTried(_no_change(stage))
            verdicts = {each.plugin.resource: await _judge(each, slowest) for each in touched}
            again = [each for each in touched if verdicts[each.plugin.resource].status == "pass"]
            slowest = max(slowest, await _change_once(stage, again)) if again else slowest
            for each in again:  # a trigger that works only once has been seen to work once
                if each.is_touched():
                    verdicts[each.plugin.resource] = await _judge(each, slowest, ", twice")
        finally:
            await _undo(stage)
    untouched = Verdict(Status.SKIP, "the trigger does not change it")
    return {name: verdicts.get(name, untouched) for name in stage.resources}


async def _change_once(stage: Stage, watched: list[Watched]) -> float:
    """Trigger one change; return how long it took until no stream was behind another."""
    for each in watched:
        each.look()
    began = asyncio.get_running_loop().time()
    await _run_trigger(stage)
    await stage.wait_for(lambda: any(each.is_touched() for each in watched), stage.timing.change)
    took = stage.spent(began)
    # What else changes comes at about the same time; who is behind gets the rest of the time.
    await stage.pause(stage.timing.hold)
    if any(each.is_torn() for each in watched):
        rest = max(stage.timing.change - stage.spent(began), stage.timing.change / 3)
        await stage.wait_for(lambda: not any(each.is_torn() for each in watched), rest)
        took = stage.spent(began)
    return took


async def _judge(watched: Watched, slowest: float, often: str = "") -> Verdict:
    try:
        if late := watched.behind():
            limit = watched.plugin.timing.change
            raise Broken(f"a change did not reach the {late[0]} stream within {limit:g} s")
        ended = [each for each in watched.streams.values() if not each.is_open]
        await _must_be_withdrawn(watched.plugin, ended)
    except Finding as finding:
        return verdict_of(finding, FAIL)
    return Verdict(Status.PASS, f"both streams had it within {slowest:.2f} s{often}")


async def _must_be_withdrawn(plugin: Plugin, ended: list[Stream]) -> None:
    """Where the plugin ended its streams, the resource is gone: nobody may get in any more."""
    if not ended:
        return
    await plugin.stage.pause(plugin.timing.hold)
    if not listening_process(plugin.socket):
        raise NotTried("the change withdrew the resource")
    raise Broken(f"the resource was withdrawn ({ended[0].end}), but its socket still accepts")


async def _must_not_be_lost(stage: Stage, what: str) -> None:
    """Ask a new stream: what it knows and the kubelet's does not is lost, or else nothing is."""

    def is_behind(plugin: Plugin, found: Content) -> bool:
        return _content(plugin.session.stream) != found

    for name in _triggered(stage):
        plugin = Plugin.of(stage, name)
        try:
            async with plugin.another_stream() as stream:
                await plugin.first_of(stream, stage.timing.first_list)
                await stage.pause(stage.timing.hold)
                found = _content(stream)
        except WireError:
            continue
        if found and is_behind(plugin, found):
            raise Broken(
                f"{what} within {stage.timing.change:g} s, but a new stream of {name} shows it"
            )


@theme.check(
    "replicas",
    WARN,
    suffers="Replicas of a broken device are handed out.",
    source="NVIDIA/k8s-device-plugin#1929",
    mend="Apply the health of a device to all its replicas.",
    seen="NVIDIA k8s-device-plugin up to August 2026 (1 of 4 replicas marked)",
)
async def replicas(plugin: Plugin) -> str:
    """All replicas of one device (IDs like NAME::0) have the same health."""
    count, broken = 0, set()
    await plugin.device_list()
    for received in plugin.session.lists:
        healths: dict[str, list[str]] = {}
        for device in received.devices:
            base, mark, _ = device.id.rpartition("::")
            if mark:
                healths.setdefault(base, []).append(device.health)
        count = max(count, len(healths))
        mixed = [base for base, words in healths.items() if len(set(words)) > 1]
        if mixed:
            raise Broken(f"{shorten(mixed)}: some replicas healthy, some not")
        broken |= {
            base for base, words in healths.items() if Health.UNHEALTHY in words and len(words) > 1
        }
    if not count:
        raise NotTried("no ID looks like a replica (NAME::0)")
    if not broken:
        raise NotTried("no device with replicas was ever unhealthy; --trigger could make one so")
    return f"{shorten(sorted(broken))}: all replicas unhealthy together"


@theme.check(
    "recovers",
    WARN,
    suffers="After a short trouble the device is lost until the plugin is restarted.",
    source="device plugin API: a device may become healthy again",
    mend="Look again at devices that failed, and report them when they are back.",
    seen="NVIDIA k8s-device-plugin (unhealthy for ever after an XID error)",
)
async def recovers(stage: Stage) -> str:
    """When a change of the devices is undone, the same devices are healthy as before."""
    _need_trigger(stage)
    if not stage.target.trigger.undo:
        raise NotTried("needs --undo, a command that undoes what --trigger does")
    plugins = [Plugin.of(stage, name) for name in _triggered(stage)]
    for plugin in plugins:
        await plugin.device_list()
    streams = [plugin.session.stream for plugin in plugins]
    before = [_healthy(stream) for stream in streams]
    known = [_content(stream) for stream in streams]

    def is_as_before() -> bool:
        return all(_healthy(each) == old for each, old in zip(streams, before, strict=True))

    def has_changed() -> bool:
        return any(_content(each) != old for each, old in zip(streams, known, strict=True))

    try:
        await _run_trigger(stage)
        if not await stage.wait_for(has_changed, stage.timing.change):
            raise NotTried(_no_change(stage))
        await stage.pause(stage.timing.hold)
    finally:
        await _undo(stage)
    began = asyncio.get_running_loop().time()
    if await stage.wait_for(is_as_before, stage.timing.change):
        return f"as before {stage.spent(began):.2f} s after the undo"
    limit = f"{stage.timing.change:g} s after the undo"
    for stream, old in zip(streams, before, strict=True):
        if lost := old - _healthy(stream):
            raise Broken(f"{shorten(sorted(lost))}: not healthy again {limit}")
        if left := _healthy(stream) - old:
            raise Broken(f"{shorten(sorted(left))}: still healthy {limit}")
    return "as before in the end"


def _healthy(stream: Stream | None) -> frozenset[str]:
    return frozenset(stream.latest.healthy if stream and stream.latest else ())


# ---------------------------------------------------------------- restarts in between

often = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=(*restarts.needs, "life.sockets-wiped", "life.dies"),
    track=TRACK,
    slow=True,
)


@often.check(
    "lost-updates",
    FAIL,
    suffers="The node offers devices that are gone and not those that came, until the next change.",
    source="the most common defect of the field; squat/generic-device-plugin#37",
    mend="End the loop of a stream with its connection; let each stream compare with what it "
    "sent itself.",
    seen="generic-device-plugin (2 of 4 changes lost), Intel (panics at the second change)",
)
async def lost_updates(stage: Stage) -> str:
    """Kubelet restarts, each followed by a change: every change arrives."""
    _need_trigger(stage)
    slowest, number = 0.0, 0
    try:
        moved, _ = await _change_arrives(stage, _triggered(stage))
        if not moved:
            await _must_be_idle(stage, "a change", number)
            raise NotTried(_no_change(stage))
        began = asyncio.get_running_loop().time()
        while number < stage.timing.changes and _has_time(stage, number, stage.spent(began)):
            number += 1
            await restart_once(stage, number)
            arrived, took = await _change_arrives(stage, moved)
            if arrived != moved:
                late = ", ".join(name for name in moved if name not in arrived)
                await _must_be_idle(stage, f"the change after restart {number} of {late}", number)
                break
            slowest = max(slowest, took)
    finally:
        await _undo(stage)
    return f"{number} of {number}, the slowest in {slowest:.2f} s"


def _has_time(stage: Stage, done: int, took: float) -> bool:
    """Whether one more restart fits into the time of all; skips where not even two do."""
    fits = not done or took / done * (done + 1) <= stage.timing.often
    if done == 1 and not fits:
        raise NotTried(f"a restart and a change take {took:.1f} s: too long for several")
    return fits


async def _must_be_idle(stage: Stage, what: str, number: int) -> None:
    """Tell a change that was lost from one that never happened."""
    if not stage.is_connected():  # it withdrew the resource, or stopped to serve it
        await _undo(stage)
        if not await stage.wait_for(stage.is_connected, stage.timing.registered_at_all):
            if stage.process and not stage.process.running:
                raise Broken(f"{what}: its process ended", stage.last_words())
            raise Broken(f"{what} ended its connection, and it did not come back")
        raise NotTried(f"{what} withdrew the resource")
    await _must_not_be_lost(stage, f"{what} did not arrive")
    if number == 1:
        raise NotTried("the trigger changes the devices only once")


async def _change_arrives(stage: Stage, names: tuple[str, ...]) -> tuple[tuple[str, ...], float]:
    """Trigger a change; return the resources that it reached, and how long it took."""
    before = {name: (await list_of(stage, name)).content for name in names}
    began = asyncio.get_running_loop().time()

    def reached() -> tuple[str, ...]:
        latest = {name: Plugin.of(stage, name).session.latest for name in names}
        return tuple(
            name for name in names if (now := latest[name]) and now.content != before[name]
        )

    await _run_trigger(stage)
    await stage.wait_for(reached, stage.timing.change)
    if reached() and len(reached()) < len(names):
        await stage.wait_for(lambda: reached() == names, stage.timing.hold)
    return reached(), stage.spent(began)
