"""What becomes of changes, which only a trigger can make: who hears of them."""

import asyncio
from contextlib import AsyncExitStack

from kubedevices.conformance.check import (
    Broken,
    NotPassed,
    NotTried,
    Phase,
    Severity,
    Status,
    Theme,
    Verdict,
    verdict_of,
)
from kubedevices.conformance.checks.changing import (
    Content,
    changing,
    content_of,
    must_not_be_lost,
    need_trigger,
    no_change,
    run_trigger,
    triggered,
    undo,
)
from kubedevices.conformance.checks.restarts import Verdicts
from kubedevices.conformance.plugin import Plugin, shorten
from kubedevices.conformance.process_figures import listening_process
from kubedevices.conformance.stage import Stage
from kubedevices.device import Health
from kubedevices.probe.session import ListStream

FAIL, WARN = Severity.FAIL, Severity.WARN

TRACK = "changes"
"""Comes after all checks that compare whole lists."""

theme = Theme(
    "list",
    needs=("list.first-message", "list.stays-open", "list.abandoned-stream"),
    phase=Phase.QUIET,
    track=TRACK,
    disturbs=True,
)


class WatchedStreams:
    """The streams of one resource while devices change."""

    def __init__(self, plugin: Plugin, main: ListStream, second: ListStream) -> None:
        self.plugin = plugin
        self.streams = {"kubelet's": main, "second": second}
        self._before: dict[str, Content] = {}

    def look(self) -> None:
        """Remember what every stream has said so far."""
        self._before = {name: content_of(stream) for name, stream in self.streams.items()}

    def behind(self) -> list[str]:
        """Return the open streams that said nothing new since."""
        return [
            name
            for name, stream in self.streams.items()
            if stream.is_open and content_of(stream) == self._before[name]
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
    need_trigger(stage)
    async with AsyncExitStack() as stack:
        watched = []
        for name in triggered(stage):
            plugin = Plugin.of(stage, name)
            await plugin.device_list()
            assert plugin.session.stream
            second = await stack.enter_async_context(plugin.another_stream())
            await plugin.first_of(second, stage.timing.first_list)
            watched.append(WatchedStreams(plugin, plugin.session.stream, second))
        try:
            slowest = await _change_once(stage, watched)
            touched = [each for each in watched if each.is_touched()]
            if not touched:
                await must_not_be_lost(stage, "a change reached no stream")
                raise NotTried(no_change(stage))
            verdicts = {each.plugin.resource: await _judge(each, slowest) for each in touched}
            again = [each for each in touched if verdicts[each.plugin.resource].status == "pass"]
            slowest = max(slowest, await _change_once(stage, again)) if again else slowest
            for each in again:  # a trigger that works only once has been seen to work once
                if each.is_touched():
                    verdicts[each.plugin.resource] = await _judge(each, slowest, ", twice")
        finally:
            await undo(stage)
    untouched = Verdict(Status.SKIP, "the trigger does not change it")
    return {name: verdicts.get(name, untouched) for name in stage.resources}


async def _change_once(stage: Stage, watched: list[WatchedStreams]) -> float:
    """Trigger one change; return how long it took until no stream was behind another."""
    for each in watched:
        each.look()
    began = asyncio.get_running_loop().time()
    with changing(stage):
        await run_trigger(stage)
        limit = stage.timing.change
        await stage.wait_for(lambda: any(each.is_touched() for each in watched), limit)
        took = stage.spent(began)
        # What else changes comes at about the same time; who is behind gets the rest of the time.
        await stage.pause(stage.timing.hold)
        if any(each.is_torn() for each in watched):
            rest = max(limit - stage.spent(began), limit / 3)
            await stage.wait_for(lambda: not any(each.is_torn() for each in watched), rest)
            took = stage.spent(began)
    return took


async def _judge(watched: WatchedStreams, slowest: float, often: str = "") -> Verdict:
    try:
        if late := watched.behind():
            limit = watched.plugin.timing.change
            raise Broken(f"a change did not reach the {late[0]} stream within {limit:g} s")
        ended = [each for each in watched.streams.values() if not each.is_open]
        await _must_be_withdrawn(watched.plugin, ended)
    except NotPassed as finding:
        return verdict_of(finding, FAIL)
    return Verdict(Status.PASS, f"both streams had it within {slowest:.2f} s{often}")


async def _must_be_withdrawn(plugin: Plugin, ended: list[ListStream]) -> None:
    """Where the plugin ended its streams, the resource is gone: nobody may get in any more."""
    if not ended:
        return
    plugin.stage.notes.changes.withdrew = True
    await plugin.stage.pause(plugin.timing.hold)
    if not listening_process(plugin.socket):
        raise NotTried("the change withdrew the resource")
    raise Broken(f"the resource was withdrawn ({ended[0].end}), but its socket still accepts")


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
    need_trigger(stage)
    if not stage.target.trigger.undo:
        raise NotTried("needs --undo, a command that undoes what --trigger does")
    plugins = [Plugin.of(stage, name) for name in triggered(stage)]
    for plugin in plugins:
        await plugin.device_list()
    streams = [plugin.session.stream for plugin in plugins]
    before = [_healthy(stream) for stream in streams]
    known = [content_of(stream) for stream in streams]

    def is_as_before() -> bool:
        return all(_healthy(each) == old for each, old in zip(streams, before, strict=True))

    def has_changed() -> bool:
        return any(content_of(each) != old for each, old in zip(streams, known, strict=True))

    try:
        with changing(stage):
            await run_trigger(stage)
            if not await stage.wait_for(has_changed, stage.timing.change):
                raise NotTried(no_change(stage))
            await stage.pause(stage.timing.hold)
    finally:
        await undo(stage)
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


def _healthy(stream: ListStream | None) -> frozenset[str]:
    return frozenset(stream.latest.healthy if stream and stream.latest else ())
