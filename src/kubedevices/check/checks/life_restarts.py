"""Checks that the plugin registers again after all kinds of kubelet restarts. Most plugins fail."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kubedevices.check.busy_machine import ENOUGH
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
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.errors import WireError
from kubedevices.errors.words import counted
from kubedevices.testing.kubelet.arrival import LIKE_A_KUBELET, Arrival, RegisterBehavior
from kubedevices.testing.kubelet.session import ReceivedList

Verdicts = dict[str, Verdict]

T = TypeVar("T")

theme = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=("registration.options", "list.stays-open"),
    track=None,
    disturbs=True,
    harm=Harm.ALL_DEVICES,
)

LOST_DEVICES = (
    "The node's capacity falls to 0 and stays 0: pods are rejected until somebody restarts the "
    "plugin."
)
WATCH_BOTH = (
    "Watch the plugin directory. If your own socket is removed or replaced, bind again and "
    "register; if kubelet.sock is replaced, register."
)

SOON = 2
"""A plugin that exits after so many restarts or fewer relies on the kubelet to start it again."""

GAP = 0.05
"""Seconds in which a new kubelet.sock refuses connections; `--timeout-scale` does not change it."""

# ---------------------------------------------------------------- one restart


async def must_return(
    harness: Harness,
    happens: Callable[[], Awaitable[None]],
    *,
    soon: float | None = None,
    like: str = "",
) -> Verdicts:
    """Run `happens`, then judge each resource: does it register again, with devices and Allocate?

    The worst status here is `fail`; `CheckSequence` then caps each status at the severity of the
    check. A registration later than `soon` seconds is a warning. `like` is the ID of a similar
    check: if the plugin did not return after that check, this check waits less long.
    """
    loop = asyncio.get_running_loop()
    before = {}
    for name in harness.resources:
        plugin = Plugin.of(harness, name)
        before[name] = set((await plugin.device_list()).healthy)
        await plugin.can_allocate()
    changes = harness.shared.changes

    def expected(name: str) -> set[str]:
        return changes.untouched(before[name])

    since = loop.time()
    await happens()
    began = loop.time()
    await _return_or_give_up(harness, since, began, like)
    verdicts = {}
    for name in harness.resources:
        try:
            evidence = await _is_whole(harness, name, since, began, partial(expected, name))
        except NotPassed as finding:
            verdicts[name] = _exited_without_crash(harness) or verdict_of(finding, FAIL)
            continue
        except WireError as error:
            verdicts[name] = Verdict(Status.FAIL, str(error))
            continue
        took = harness.spent(began, _accepted(harness, name, since))
        late = took > (harness.timing.registered_soon if soon is None else soon)
        late = late and not changes.withdrew  # the resource may wait for its devices
        verdicts[name] = Verdict(Status.WARN if late else Status.PASS, evidence)
    return verdicts


async def _return_or_give_up(harness: Harness, since: float, began: float, like: str) -> None:
    """Wait until every resource has registered; record in `stays_away` if the limit passes."""
    timing, away = harness.timing, harness.shared.stays_away
    limit = timing.registered_at_all
    while harness.missing(since) and (not harness.process or harness.process.running):
        left = limit - harness.spent(began)
        if left < limit * (1 - ENOUGH):
            away.add(harness.checking)
            break
        # By the clock, not in own seconds: the check `like` has already waited for the full limit.
        if like in away and asyncio.get_running_loop().time() > began + timing.registered_soon:
            break
        await harness.until(lambda: not harness.missing(since), min(left, timing.hold))


def _exited_without_crash(harness: Harness) -> Verdict | None:
    """Return a warning if the plugin exited but did not crash: the kubelet starts it again."""
    if harness.process and harness.process.exited_without_crash():
        how = harness.process.end_text()
        text = f"exited without a crash ({how}), so a supervisor must restart it"
        return Verdict(Status.WARN, text, harness.last_words(), harness.cause())
    return None


def _accepted(harness: Harness, resource: str, since: float) -> float:
    return harness.probe.accepted(since)[resource].accepted_at or 0.0


async def _is_whole(
    harness: Harness, resource: str, since: float, began: float, expected: Callable[[], set[str]]
) -> str:
    """Return the evidence that a resource is registered, has its list, and answers Allocate.

    Raises `Broken` if not. `expected` returns the IDs of devices that must be in the list now, an
    empty set while devices change.
    """
    waited = harness.spent(began)
    if resource in harness.missing(since):
        raise Broken(harness.why_missing(waited, since), harness.last_words(), harness.cause())

    async def judge(plugin: Plugin) -> str:
        took = harness.spent(began, plugin.arrival.accepted_at)
        stream = plugin.session.stream
        limit = harness.timing.late_list
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

    return await _on_the_last(harness, resource, judge, began)


async def _on_the_last(
    harness: Harness, resource: str, ask: Callable[[Plugin], Awaitable[T]], since: float
) -> T:
    """Call `ask` on the last registration of a resource; repeat it if the resource registers again.

    A plugin that dials the kubelet in a loop may register before it sees the new kubelet.sock. Then
    it binds again and registers a second time, and the first connection ends. This is correct.
    """
    while True:
        plugin = Plugin.of(harness, resource)
        try:
            return await ask(plugin)
        except (NotPassed, WireError):
            if not await harness.until(partial(_is_over, plugin), harness.timing.hold):
                raise
            left = harness.timing.registered_at_all - harness.spent(since)
            if not await harness.until(partial(_is_back, plugin), max(left, 0)):
                raise


def _is_over(plugin: Plugin) -> bool:
    stream = plugin.session.stream
    return stream is None or not stream.is_open or _is_back(plugin)


def _is_back(plugin: Plugin) -> bool:
    return plugin.harness.last_arrival(plugin.resource) is not plugin.arrival


@theme.check(
    "sockets-wiped",
    FAIL,
    suffers=LOST_DEVICES,
    source="kubelet 1.33 and newer: a starting kubelet deletes the sockets in its directory",
    mend=WATCH_BOTH,
    seen="simple-device-plugin, fake-gpu-operator, Akri (never register again); ROCm, kubevirt "
    "(exit or panic)",
)
async def sockets_wiped(harness: Harness) -> Verdicts:
    """After a kubelet restart that removes all sockets, the plugin registers within 8 s."""
    return await must_return(harness, lambda: harness.probe.restart(wipe="sockets"))


@theme.check(
    "all-wiped",
    FAIL,
    until="1.32",
    suffers=LOST_DEVICES,
    source="kubelet up to 1.32: a starting kubelet deletes every file but its checkpoint",
    mend=WATCH_BOTH + " Store no other file in this directory.",
    seen="simple-device-plugin (never registers again), generic-device-plugin (5 to 6 s), Intel "
    "(no devices after 15 s)",
)
async def all_wiped(harness: Harness) -> Verdicts:
    """After a kubelet restart that removes all files, the plugin registers within 8 s."""
    if not harness.may_wipe_everything():
        raise NotTried(f"{harness.probe.socket_dir} has files that are not sockets")
    return await must_return(harness, lambda: harness.probe.restart(wipe="everything"))


@theme.check(
    "kubelet-socket-replaced",
    WARN,
    suffers=LOST_DEVICES,
    source="a kubelet that cannot clean its directory would do this; no kubelet was seen to do it",
    mend=WATCH_BOTH,
    seen="simple, generic, Intel, SR-IOV (never register again)",
)
async def kubelet_socket_replaced(harness: Harness) -> Verdicts:
    """If only kubelet.sock is replaced, the plugin registers within 8 s."""
    return await must_return(harness, lambda: harness.probe.restart(wipe="nothing"))


@theme.check(
    "stream-cancelled",
    FAIL,
    until="1.35",
    suffers="When the old instance of a rolling update ends, a kubelet such as 1.32 closes the "
    "connection of the new instance: allocatable is 0 although the plugin is healthy.",
    source="kubernetes#127803, #121994, fixed by #135437; measured with kubelet 1.32",
    mend="Register again if no ListAndWatch stream has been open for some seconds.",
    seen="all plugins that were tried (ROCm exits, the others stay unregistered)",
)
async def stream_cancelled(harness: Harness) -> Verdicts:
    """If the kubelet closes the stream and all sockets stay, the plugin registers again."""
    if harness.shared.is_watched:
        raise NotTried("it registers through the plugin watcher, which reconnects by itself")
    return await must_return(
        harness, harness.probe.drop_connections, soon=harness.timing.noticed_soon
    )


@theme.check(
    "own-socket-removed",
    WARN,
    suffers="The kubelet's connection stays open, but no other client can connect. After its next "
    "restart the kubelet finds no socket to dial.",
    source="cleanup jobs and second instances remove sockets",
    mend=WATCH_BOTH,
    seen="simple, smarter, NVIDIA, ROCm (never bind again)",
)
async def own_socket_removed(harness: Harness) -> Verdicts:
    """If the plugin's own socket is removed, the plugin binds again and registers."""

    async def remove() -> None:
        harness.probe.remove_plugin_sockets()

    return await must_return(harness, remove)


@theme.check(
    "wiped-before-register",
    FAIL,
    needs=("life.sockets-wiped",),
    suffers="If the plugin and the kubelet start at the same time, the kubelet removes the socket "
    "before the plugin registers. The kubelet cannot dial the plugin, and the resource never "
    "appears.",
    source="measured with kubelet 1.32: it wiped the directory between bind and Register",
    mend="Before and after Register, test if your socket file is still your own; if not, bind and "
    "register again.",
)
async def wiped_before_register(harness: Harness) -> Verdicts:
    """If the plugin's socket is removed between bind and Register, the plugin binds again."""
    if harness.shared.is_watched:
        raise NotTried("it registers through the plugin watcher, whose directory is never wiped")
    left = {*harness.resources}

    def remove_socket(arrival: Arrival) -> None:
        if arrival.resource in left:
            left.discard(arrival.resource)
            if not left:
                harness.probe.behavior = LIKE_A_KUBELET  # later registrations are as usual
            (harness.probe.socket_dir / (arrival.request.endpoint or "-")).unlink(missing_ok=True)

    async def restart() -> None:
        await harness.probe.restart(wipe="sockets")

    # A real kubelet tries to dial for 10 s. A shorter limit here makes no difference to the plugin.
    behavior = RegisterBehavior(on_arrival=remove_socket, dial_limit=harness.timing.hold)
    with harness.probe.behaving(behavior):
        return await must_return(harness, restart)


@theme.check(
    "kubelet-away",
    FAIL,
    slow=True,
    suffers=LOST_DEVICES,
    source="an upgrade of the kubelet takes half a minute and more",
    mend="Wait for kubelet.sock without a limit, with a back-off of a few seconds.",
    seen="simple-device-plugin (never registers again)",
)
async def kubelet_away(harness: Harness) -> Verdicts:
    """After 20 s without a kubelet, which removes all sockets when it starts, it registers."""
    return await must_return(
        harness,
        lambda: harness.probe.restart(wipe="sockets", away=harness.timing.away),
        like="life.sockets-wiped",
    )


@theme.check(
    "wiped-while-away",
    WARN,
    slow=True,
    suffers=LOST_DEVICES,
    source="no kubelet does this: it removes sockets when it starts; scripts of upgrades, and jobs "
    "that clean up, do it while the kubelet is away",
    mend="If your own socket is removed, bind again, and wait for kubelet.sock without a limit.",
    seen="GCE (exits 2), Intel and ROCm (exit 1), SR-IOV (exits 2)",
)
async def wiped_while_away(harness: Harness) -> Verdicts:
    """If all sockets are removed while the kubelet is away for 20 s, the plugin registers again."""
    away = harness.timing.away
    return await must_return(
        harness,
        lambda: harness.probe.restart(wipe="sockets", away=away, wiped_early=away / 2),
        like="life.sockets-wiped",
    )


@theme.check(
    "refused-dial",
    FAIL,
    needs=("life.sockets-wiped",),
    suffers=LOST_DEVICES,
    source="measured with kubelet 1.32: kubelet.sock exists shortly before the kubelet listens",
    mend="If a dial of kubelet.sock is refused, the kubelet may still be starting: try again after "
    "a short pause.",
    seen="GCE (exits 2 in 5 of 10 runs), host-device (fails in 1 of 2 runs)",
)
async def refused_dial(harness: Harness) -> Verdicts:
    """If a new kubelet.sock refuses connections for 50 ms, the plugin registers afterwards."""
    if harness.shared.is_watched:
        raise NotTried("it registers through the plugin watcher and does not dial the kubelet")
    return await must_return(harness, lambda: harness.probe.restart(wipe="sockets", refusing=GAP))


# ---------------------------------------------------------------- many restarts


async def restart_once(harness: Harness, number: int) -> None:
    """Restart the kubelet; raises `Broken` unless all resources register and send a list."""
    await harness.wait_after_register()
    since = asyncio.get_running_loop().time()
    await harness.probe.restart(wipe="sockets")
    try:
        await harness.until_registered(harness.timing.registered_at_all, since=since)
        for name in harness.resources:
            await list_of(harness, name)
    except (Broken, NotTried) as error:
        if (left := _exited_without_crash(harness)) and number <= SOON:
            raise NotTried(left.evidence) from error
        text = f"restart {number}: {error.evidence}"
        raise Broken(text, harness.last_words(), error.cause) from error


async def list_of(harness: Harness, resource: str) -> ReceivedList:
    """Wait for the list of a resource that registered again, and return it."""
    now = asyncio.get_running_loop().time()
    return await _on_the_last(harness, resource, Plugin.device_list, now)
