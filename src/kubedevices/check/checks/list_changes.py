"""Checks that a change of the devices reaches every stream. The trigger makes the changes."""

import asyncio
from contextlib import AsyncExitStack

from kubedevices.check.answers import shorten
from kubedevices.check.check import (
    FAIL,
    WARN,
    Broken,
    Harm,
    NotPassed,
    NotTried,
    Phase,
    Status,
    Theme,
    Verdict,
    verdict_of,
)
from kubedevices.check.checks.life_restarts import Verdicts
from kubedevices.check.checks.run_trigger import (
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
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.check.process_figures import listening_process
from kubedevices.testing.kubelet.session import ListStream, ReceivedList
from kubedevices.values.device import Health

TRACK = "changes"
"""The track of checks that change devices; it runs after the checks that compare whole lists."""

theme = Theme(
    "list",
    needs=("list.first-message", "list.stays-open", "list.abandoned-stream"),
    phase=Phase.QUIET,
    track=TRACK,
    disturbs=True,
    harm=Harm.WRONG_DEVICE,
)


class WatchedStreams:
    """The two streams of one resource while devices change."""

    def __init__(self, plugin: Plugin, main: ListStream, second: ListStream) -> None:
        self.plugin = plugin
        self.streams = {"kubelet's": main, "second": second}
        self._before: dict[str, Content] = {}

    def remember(self) -> None:
        """Remember the last list of every stream."""
        self._before = {name: content_of(stream) for name, stream in self.streams.items()}

    def behind(self) -> list[str]:
        """Return the names of the open streams without a new list since `remember`."""
        return [
            name
            for name, stream in self.streams.items()
            if stream.is_open and content_of(stream) == self._before[name]
        ]

    def lists(self) -> list[ReceivedList]:
        """Return all lists of both streams."""
        return [received for stream in self.streams.values() for received in stream.lists]

    def is_touched(self) -> bool:
        """Whether at least one stream has a new list, or has ended."""
        return len(self.behind()) < len(self.streams)

    def is_uneven(self) -> bool:
        """Whether one stream has a new list and the other has not."""
        return self.is_touched() and bool(self.behind())


@theme.check(
    "change",
    FAIL,
    suffers="Updates get lost: the node offers devices that are gone or broken, and does not offer "
    "new devices.",
    source="device plugin API: whenever a device changes, ListAndWatch returns the new list",
    mend="Store one current list; each stream must compare it with the last list that it sent. Do "
    "not share one queue between streams.",
    seen="Intel and generic-device-plugin (streams share one channel)",
)
async def change(harness: Harness) -> Verdicts:
    """A change of the devices reaches every open stream."""
    need_trigger(harness)
    async with AsyncExitStack() as stack:
        watched = []
        for name in triggered(harness):
            plugin = Plugin.of(harness, name)
            await plugin.device_list()
            assert plugin.session.stream
            second = await stack.enter_async_context(plugin.another_stream())
            await plugin.first_of(second, harness.timing.first_list)
            watched.append(WatchedStreams(plugin, plugin.session.stream, second))
        harness.memory[WatchedStreams] = watched
        try:
            slowest = await _change_once(harness, watched)
            touched = [each for each in watched if each.is_touched()]
            if not touched:
                await must_not_be_lost(harness, "a change reached no stream")
                raise NotTried(no_change(harness))
            verdicts = {each.plugin.resource: await _judge(each, slowest) for each in touched}
            again = [each for each in touched if verdicts[each.plugin.resource].status == "pass"]
            slowest = max(slowest, await _change_once(harness, again)) if again else slowest
            for each in again:  # a trigger may work only once: then the first verdict stays
                if each.is_touched():
                    verdicts[each.plugin.resource] = await _judge(each, slowest, ", twice")
        finally:
            await undo(harness)
    untouched = Verdict(Status.SKIP, "the trigger does not change it")
    return {name: verdicts.get(name, untouched) for name in harness.resources}


async def _change_once(harness: Harness, watched: list[WatchedStreams]) -> float:
    """Trigger one change; return the own seconds until it had reached both streams."""
    for each in watched:
        each.remember()
    began = asyncio.get_running_loop().time()
    with changing(harness):
        await run_trigger(harness)
        limit = harness.timing.change
        await harness.until(lambda: any(each.is_touched() for each in watched), limit)
        took = harness.spent(began)
        # Other resources change at about the same time. A stream without the change may take the
        # rest of the limit.
        await harness.pause(harness.timing.hold)
        if any(each.is_uneven() for each in watched):
            rest = max(limit - harness.spent(began), limit / 3)
            await harness.until(lambda: not any(each.is_uneven() for each in watched), rest)
            took = harness.spent(began)
    return took


async def _judge(watched: WatchedStreams, slowest: float, often: str = "") -> Verdict:
    try:
        if late := watched.behind():
            raise Broken(f"a change did not reach the {late[0]} stream within {slowest:.1f} s")
        ended = [each for each in watched.streams.values() if not each.is_open]
        await _must_be_withdrawn(watched.plugin, ended)
    except NotPassed as finding:
        return verdict_of(finding, FAIL)
    return Verdict(Status.PASS, f"both streams had the change within {slowest:.2f} s{often}")


async def _must_be_withdrawn(plugin: Plugin, ended: list[ListStream]) -> None:
    """If the plugin ended its streams, it withdrew the resource: its socket must be closed, too.

    Raises `Broken` if the socket still accepts connections, else `NotTried`.
    """
    if not ended:
        return
    plugin.harness.shared.changes.withdrew = True
    await plugin.harness.pause(plugin.timing.hold)
    if not listening_process(plugin.socket):
        raise NotTried("the change withdrew the resource")
    raise Broken(f"the resource was withdrawn ({ended[0].end}), but its socket still accepts")


@theme.check(
    "replicas",
    WARN,
    suffers="The kubelet allocates replicas of a broken device.",
    source="NVIDIA/k8s-device-plugin#1929",
    mend="Apply the health of a device to all its replicas.",
    seen="NVIDIA k8s-device-plugin up to August 2026 (1 of 4 replicas marked)",
)
async def replicas(plugin: Plugin) -> str:
    """All replicas of one device (IDs like NAME::0) have the same health."""
    count, broken = 0, set()
    await plugin.device_list()
    for received in (*_lists_of_change(plugin), *plugin.session.lists):
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
        raise NotTried("no ID has the form of a replica (NAME::0)")
    if not broken:
        raise NotTried("no device with replicas was unhealthy; --trigger can make one unhealthy")
    return f"{shorten(sorted(broken))}: all replicas unhealthy together"


def _lists_of_change(plugin: Plugin) -> list[ReceivedList]:
    """Return the lists that `list.change` received; afterwards the plugin may be a new process."""
    watched = plugin.harness.memory.get(WatchedStreams, [])
    assert isinstance(watched, list)
    mine = [each for each in watched if each.plugin.resource == plugin.resource]
    return [received for each in mine for received in each.lists()]


@theme.check(
    "recovers",
    WARN,
    suffers="After a short failure, the device stays unhealthy until somebody restarts the plugin.",
    source="device plugin API: a device may become healthy again",
    mend="Test failed devices again from time to time, and report them as healthy when they work.",
    seen="NVIDIA k8s-device-plugin (unhealthy until a restart after an XID error)",
)
async def recovers(harness: Harness) -> str:
    """After a change of the devices is undone, the same devices are healthy as before."""
    need_trigger(harness)
    if not harness.target.trigger.undo:
        raise NotTried("needs --undo, a command that undoes the change of --trigger")
    plugins = [Plugin.of(harness, name) for name in triggered(harness)]
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
        with changing(harness):
            await run_trigger(harness)
            if not await harness.until(has_changed, harness.timing.change):
                raise NotTried(no_change(harness))
            await harness.pause(harness.timing.hold)
    finally:
        began = asyncio.get_running_loop().time()
        await undo(harness)
    if await harness.until(is_as_before, harness.timing.change):
        return f"the same devices as before, {harness.spent(began):.2f} s after the undo"
    limit = f"{harness.spent(began):.1f} s after the undo"
    for stream, old in zip(streams, before, strict=True):
        if lost := old - _healthy(stream):
            raise Broken(f"{shorten(sorted(lost))}: not healthy again {limit}")
        if left := _healthy(stream) - old:
            raise Broken(f"{shorten(sorted(left))}: still healthy {limit}")
    return f"the same devices as before, later than {limit}"


def _healthy(stream: ListStream | None) -> frozenset[str]:
    return frozenset(stream.latest.healthy if stream and stream.latest else ())
