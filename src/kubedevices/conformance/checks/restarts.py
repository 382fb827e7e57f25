"""A kubelet that comes and goes, in every form there is; where most plugins of the field fail."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

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
from kubedevices.conformance.lost_time import ENOUGH
from kubedevices.conformance.plugin import Plugin
from kubedevices.conformance.stage import Stage
from kubedevices.errors import WireError
from kubedevices.probe.arrival import LIKE_A_KUBELET, Arrival, RegisterBehavior
from kubedevices.probe.session import ReceivedList
from kubedevices.words import counted

FAIL, WARN = Severity.FAIL, Severity.WARN

Verdicts = dict[str, Verdict]

T = TypeVar("T")

theme = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=("registration.options", "list.stays-open"),
    track=None,
    disturbs=True,
)

LOST_DEVICES = (
    "The node's capacity falls to 0 and stays there: pods are rejected until somebody restarts "
    "the plugin."
)
WATCH_BOTH = (
    "Watch the directory: when your own socket is gone or another file, bind anew and register; "
    "when kubelet.sock is another file, register."
)

SOON = 2
"""Restarts after which a plugin that decides to end has left them to its supervisor."""

GAP = 0.05
"""Seconds in which a new kubelet.sock refuses; clocks of kubelets do not scale."""

# ---------------------------------------------------------------- coming back


async def must_return(
    stage: Stage,
    happens: Callable[[], Awaitable[None]],
    *,
    soon: float | None = None,
    like: str = "",
) -> Verdicts:
    """Let something happen, then judge per resource whether the plugin comes back whole.

    What never came back after the check `like` is not waited for as long as there again.
    """
    loop = asyncio.get_running_loop()
    before = {}
    for name in stage.resources:
        plugin = Plugin.of(stage, name)
        before[name] = set((await plugin.device_list()).healthy)
        await plugin.can_allocate()
    changes = stage.notes.changes

    def expected(name: str) -> set[str]:
        return changes.untouched(before[name])

    since = loop.time()
    await happens()
    began = loop.time()
    await _return_or_give_up(stage, since, began, like)
    verdicts = {}
    for name in stage.resources:
        try:
            evidence = await _is_whole(stage, name, since, began, partial(expected, name))
        except NotPassed as finding:
            verdicts[name] = _left_to_supervisor(stage) or verdict_of(finding, FAIL)
            continue
        except WireError as error:
            verdicts[name] = Verdict(Status.FAIL, str(error))
            continue
        took = stage.spent(began, _accepted(stage, name, since))
        late = took > (stage.timing.registered_soon if soon is None else soon)
        late = late and not changes.withdrew  # it may have come back with its devices only
        verdicts[name] = Verdict(Status.WARN if late else Status.PASS, evidence)
    return verdicts


async def _return_or_give_up(stage: Stage, since: float, began: float, like: str) -> None:
    """Wait until every resource is back; note it, for the other stages, where that is in vain."""
    timing, away = stage.timing, stage.notes.stays_away
    limit = timing.registered_at_all
    while stage.missing(since) and (not stage.process or stage.process.running):
        left = limit - stage.spent(began)
        if left < limit * (1 - ENOUGH):
            away.add(stage.checking)
            break
        # By the clock: it decides nothing, the other check has waited long enough.
        if like in away and asyncio.get_running_loop().time() > began + timing.registered_soon:
            break
        await stage.wait_for(lambda: not stage.missing(since), min(left, timing.hold))


def _left_to_supervisor(stage: Stage) -> Verdict | None:
    """Return the verdict on a plugin that decided to end; a crash is another thing."""
    if stage.process and stage.process.gave_up():
        text = f"left it to its supervisor ({stage.process.end_text()})"
        return Verdict(Status.WARN, text, stage.last_words())
    return None


def _accepted(stage: Stage, resource: str, since: float) -> float:
    return stage.probe.accepted(since)[resource].accepted_at or 0.0


async def _is_whole(
    stage: Stage, resource: str, since: float, began: float, expected: Callable[[], set[str]]
) -> str:
    """Return the evidence that a resource is back with its list and its answers, or raise.

    `expected` returns the devices that must be there now, none while devices change.
    """
    waited = stage.spent(began)
    if resource in stage.missing(since):
        raise Broken(stage.why_missing(waited, since), stage.last_words())

    async def judge(plugin: Plugin) -> str:
        took = stage.spent(began, plugin.arrival.accepted_at)
        stream = plugin.session.stream
        limit = stage.timing.late_list
        offers = bool(expected())
        found = await plugin.first_of(stream, limit, offers=offers) if stream else None
        if found is None:
            raise Broken(f"registered after {took:.2f} s, but sent no list")
        before = expected()
        lost = before - set(found.healthy)
        if lost:
            latest = await plugin.device_list()
            raise Broken(
                f"registered after {took:.2f} s with {counted(len(found.devices), 'device')}, "
                f"{len(lost)} of {len(before)} missing"
                + ("" if lost - set(latest.healthy) else " in the first list")
            )
        text = f"registered after {took:.2f} s, {counted(len(found.devices), 'device')}"
        if not expected() or not await plugin.can_allocate():
            return text
        await plugin.answer_for(sorted(before)[:1])
        return f"{text}, Allocate works"

    return await _on_the_last(stage, resource, judge, began)


async def _on_the_last(
    stage: Stage, resource: str, ask: Callable[[Plugin], Awaitable[T]], since: float
) -> T:
    """Ask a resource that came back; again where it failed because it registers once more.

    A dial that waited for the kubelet may get through before the plugin is told of kubelet.sock.
    Then it binds anew, and what it registered first is over: right, and done in a moment.
    """
    while True:
        plugin = Plugin.of(stage, resource)
        try:
            return await ask(plugin)
        except (NotPassed, WireError):
            if not await stage.wait_for(partial(_is_over, plugin), stage.timing.hold):
                raise
            left = stage.timing.registered_at_all - stage.spent(since)
            if not await stage.wait_for(partial(_is_back, plugin), max(left, 0)):
                raise


def _is_over(plugin: Plugin) -> bool:
    stream = plugin.session.stream
    return stream is None or not stream.is_open or _is_back(plugin)


def _is_back(plugin: Plugin) -> bool:
    return plugin.stage.last_arrival(plugin.resource) is not plugin.arrival


@theme.check(
    "sockets-wiped",
    FAIL,
    suffers=LOST_DEVICES,
    source="kubelet 1.33 and newer: a starting kubelet deletes the sockets in its directory",
    mend=WATCH_BOTH,
    seen="simple-device-plugin, fake-gpu-operator, Akri (never); ROCm, kubevirt (exit or panic)",
)
async def sockets_wiped(stage: Stage) -> Verdicts:
    """After a kubelet restart that removed all sockets, the plugin registers within 8 s."""
    return await must_return(stage, lambda: stage.probe.restart(wipe="sockets"))


@theme.check(
    "all-wiped",
    FAIL,
    until="1.32",
    suffers=LOST_DEVICES,
    source="kubelet up to 1.32: a starting kubelet deletes every file but its checkpoint",
    mend=WATCH_BOTH + " Keep no file of your own in that directory.",
    seen="simple-device-plugin (never), generic-device-plugin (5 to 6 s), Intel (devices dead "
    "after 15 s)",
)
async def all_wiped(stage: Stage) -> Verdicts:
    """After a kubelet restart that removed all files, the plugin registers within 8 s."""
    if not stage.may_wipe_everything():
        raise NotTried(f"{stage.probe.socket_dir} holds files that are no sockets")
    return await must_return(stage, lambda: stage.probe.restart(wipe="everything"))


@theme.check(
    "kubelet-socket-replaced",
    WARN,
    suffers=LOST_DEVICES,
    source="no kubelet does so; one that could not clean its directory would",
    mend=WATCH_BOTH,
    seen="simple, generic, Intel, SR-IOV (never)",
)
async def kubelet_socket_replaced(stage: Stage) -> Verdicts:
    """If only kubelet.sock is replaced, the plugin registers again within 8 s."""
    return await must_return(stage, stage.probe.replace_socket)


@theme.check(
    "stream-cancelled",
    FAIL,
    until="1.35",
    suffers="When the old instance of a rolling update ends, a kubelet such as 1.32 hangs up on "
    "the new one: allocatable 0 beside a healthy plugin.",
    source="kubernetes#127803, #121994, fixed by #135437; kubelet 1.32 seen doing it",
    mend="Register again when no ListAndWatch stream has been open for some seconds.",
    seen="all that were tried (ROCm exits, the others stay unregistered)",
)
async def stream_cancelled(stage: Stage) -> Verdicts:
    """If the kubelet closes the stream and all sockets stay, the plugin registers again."""
    if stage.notes.is_watched:
        raise NotTried("it registers by the plugin watcher, which comes back by itself")
    return await must_return(stage, stage.probe.cancel_streams, soon=stage.timing.noticed_soon)


@theme.check(
    "own-socket-removed",
    WARN,
    suffers="The kubelet keeps its connection, but no other client can connect, and after its next "
    "restart the kubelet finds no socket to dial.",
    source="cleaning jobs and second instances remove sockets",
    mend=WATCH_BOTH,
    seen="simple, smarter, NVIDIA, ROCm (never)",
)
async def own_socket_removed(stage: Stage) -> Verdicts:
    """If its own socket is removed, the plugin binds again and registers."""

    async def remove() -> None:
        stage.probe.remove_plugin_sockets()

    return await must_return(stage, remove)


@theme.check(
    "wiped-before-register",
    FAIL,
    needs=("life.sockets-wiped",),
    suffers="A plugin that starts while the kubelet starts loses its socket before it registers: "
    "the kubelet cannot dial the plugin, which never registers.",
    source="kubelet 1.32, seen: the directory was wiped between bind and Register",
    mend="Look before and after Register whether your socket file is still yours; else start over.",
)
async def wiped_before_register(stage: Stage) -> Verdicts:
    """If its socket is removed between bind and Register, the plugin begins again."""
    if stage.notes.is_watched:
        raise NotTried("it registers by the plugin watcher, whose directory is never wiped")
    left = {*stage.resources}

    def remove_socket(arrival: Arrival) -> None:
        if arrival.resource in left:
            left.discard(arrival.resource)
            if not left:
                stage.probe.behavior = LIKE_A_KUBELET  # whoever comes now gets the usual time
            (stage.probe.socket_dir / (arrival.request.endpoint or "-")).unlink(missing_ok=True)

    async def restart() -> None:
        await stage.probe.restart(wipe="sockets")

    # A kubelet needs 10 s to find out that it cannot dial; to the plugin that makes no difference.
    behavior = RegisterBehavior(on_arrival=remove_socket, dial_limit=stage.timing.hold)
    with stage.probe.behaving(behavior):
        return await must_return(stage, restart)


@theme.check(
    "kubelet-away",
    FAIL,
    slow=True,
    suffers=LOST_DEVICES,
    source="an upgrade of the kubelet takes half a minute and more",
    mend="Wait for kubelet.sock as long as it takes, with a back-off of a few seconds.",
    seen="simple-device-plugin (never), GCE (exits 2), Intel and ROCm (exit 1), SR-IOV (exits 2)",
)
async def kubelet_away(stage: Stage) -> Verdicts:
    """After 20 s without a kubelet, the plugin registers again."""
    return await must_return(
        stage,
        lambda: stage.probe.restart(wipe="sockets", away=stage.timing.away),
        like="life.sockets-wiped",
    )


@theme.check(
    "refused-dial",
    FAIL,
    suffers=LOST_DEVICES,
    source="kubelet 1.32, seen: kubelet.sock is there a moment before it is listened on",
    mend="Take a refused dial for a kubelet that is still starting: try again a moment later.",
    seen="GCE (exits 2 in 5 of 10), host-device (1 of 2)",
)
async def refused_dial(stage: Stage) -> Verdicts:
    """If a new kubelet.sock refuses for 50 ms, the plugin registers after that."""
    if stage.notes.is_watched:
        raise NotTried("it registers by the plugin watcher and dials nobody")
    return await must_return(stage, lambda: stage.probe.restart(wipe="sockets", refusing=GAP))


# ---------------------------------------------------------------- again and again


async def restart_once(stage: Stage, number: int) -> None:
    """Restart the kubelet and have every resource back with a list, or be `Broken`."""
    await stage.wait_after_register()
    since = asyncio.get_running_loop().time()
    await stage.probe.restart(wipe="sockets")
    try:
        await stage.until_registered(stage.timing.registered_at_all, since=since)
        for name in stage.resources:
            await list_of(stage, name)
    except (Broken, NotTried) as error:
        if (left := _left_to_supervisor(stage)) and number <= SOON:
            raise NotTried(left.evidence) from error
        raise Broken(f"restart {number}: {error.evidence}", stage.last_words()) from error


async def list_of(stage: Stage, resource: str) -> ReceivedList:
    """Return the list of a resource that came back, waiting for it."""
    now = asyncio.get_running_loop().time()
    return await _on_the_last(stage, resource, Plugin.device_list, now)
