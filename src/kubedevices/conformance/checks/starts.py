"""Starting a plugin where something is not as it should be; the check starts it itself."""

import asyncio
import math
import re
import socket
import time
from pathlib import Path

from kubedevices.conformance.check import Broken, Fragile, NotTried, Phase, Severity, Theme
from kubedevices.conformance.plugin import Plugin
from kubedevices.conformance.stage import Stage
from kubedevices.errors import UnsupportedVersion
from kubedevices.probe.arrival import LIKE_A_KUBELET, RegisterBehavior

FAIL, WARN = Severity.FAIL, Severity.WARN

STORM = 3.0
"""Registrations a second that no refused plugin needs, after the first quick ones."""

QUICK_TRIES = 8

SECONDS_MORE = 5
"""For so many seconds more than a plugin should need, what is named after them is there already."""

theme = Theme("registration", phase=Phase.PROCESS, needs=("registration.options",), track=None)


@theme.check(
    "slow-kubelet",
    FAIL,
    slow=True,
    suffers="The kubelet registers the plugin anyway, later: each impatient retry adds a stream.",
    source="kubelet 1.32: Register dials for up to 10 s before it answers",
    mend="Give Register a deadline of 30 s.",
)
async def slow_kubelet(stage: Stage) -> str:
    """The plugin waits for a kubelet that takes 7.5 s to answer Register."""
    _by_register(stage)
    delay = stage.timing.slow_register
    process = await stage.start_fresh(behavior=RegisterBehavior(delay=delay))
    await stage.wait_for(lambda: stage.probe.arrivals, stage.timing.start)

    def gave_up() -> list[float]:
        return [each.gave_up_after for each in stage.probe.arrivals if each.gave_up_after]

    async def one_more() -> bool:
        known = len(stage.probe.accepted())
        return await stage.wait_for(
            lambda: gave_up() or len(stage.probe.accepted()) > known,
            delay + stage.timing.registered_soon,
        )

    # Many plugins register their resources one after the other, and each gets its time.
    while stage.missing() and not gave_up() and await one_more():
        pass
    if gave_up():
        if min(gave_up()) > delay:
            raise NotTried(f"this machine did not answer after {delay:g} s, it stood still")
        raise Broken(f"gave up after {gave_up()[0]:.1f} s of {delay:g} s")
    if stage.missing() or not process.running:
        raise Broken(stage.why_missing(stage.age()), stage.last_words())
    for name in stage.resources:
        tries = Plugin.of(stage, name).times_registered()
        if tries > 1:
            raise Broken(f"called Register {tries} times for {name} meanwhile")
    return f"waited {delay:g} s"


@theme.check(
    "absent-kubelet",
    FAIL,
    slow=True,
    suffers="At boot the plugin may start before the kubelet listens. A plugin that gives up "
    "silently never registers; a plugin that exits waits for its restart back-off.",
    source="a DaemonSet's containers start while the kubelet still starts",
    mend="Wait for kubelet.sock as long as it takes.",
    seen="GCE (never registers), Intel (exits 1), SR-IOV (exits 2)",
)
async def absent_kubelet(stage: Stage) -> str:
    """Started without a kubelet, the plugin waits for a kubelet and registers."""
    process = await stage.start_fresh(kubelet=False)
    if await stage.until_ended(process, stage.timing.absent + 2 * stage.notes.usual_start):
        raise Fragile(f"ended without a kubelet: {process.end_text()}", process.last_words())
    await stage.probe.start()
    began = asyncio.get_running_loop().time()
    await stage.until_registered(stage.timing.registered_at_all)
    took = stage.spent(began)
    text = f"registered {took:.2f} s after the kubelet appeared"
    if took > stage.timing.noticed_soon:  # one that tries from time to time needs up to a period
        raise Fragile(text)
    return text


@theme.check(
    "refused",
    WARN,
    slow=True,
    suffers="A storm of registrations loads the kubelet; a plugin that stays up unregistered "
    "looks healthy and serves no pod.",
    source="device plugin API: a plugin that is refused should end",
    mend="Exit with an error and its text, or retry with a growing back-off.",
)
async def refused(stage: Stage) -> str:
    """A refused registration leads to an exit with an error or to a back-off, not to a storm."""
    _by_register(stage)
    text = str(UnsupportedVersion("v1beta1", "v1beta2"))
    process = await stage.start_fresh(behavior=RegisterBehavior(refusal=text))
    if not await stage.wait_for(lambda: stage.probe.arrivals, stage.timing.start):
        raise Broken(stage.why_missing(stage.age()), stage.last_words())
    ended = await stage.until_ended(process, stage.timing.refusing)
    tries = len(stage.probe.arrivals)
    if ended and process.code == 0:
        raise Broken("ended with exit code 0, as if nothing were wrong")
    if ended:
        return f"{process.end_text()} after {tries} tries"
    if _is_storm(tries, stage):
        raise Broken(f"{tries} registrations within {stage.timing.refusing:g} s")
    stage.probe.behavior = LIKE_A_KUBELET
    since, limit = asyncio.get_running_loop().time(), stage.timing.registered_at_all
    if not await stage.wait_for(lambda: not stage.missing(since), limit):
        raise Broken(f"{tries} tries, then it stays up and does not register within {limit:g} s")
    took = stage.spent(since)
    text = f"{tries} tries within {stage.timing.refusing:g} s, registered {took:.1f} s after that"
    if took > stage.timing.noticed_soon:
        raise Fragile(text)
    return text


def _is_storm(tries: int, stage: Stage) -> bool:
    return tries / len(stage.resources) > QUICK_TRIES + STORM * stage.timing.refusing


def _by_register(stage: Stage) -> None:
    if stage.notes.is_watched:
        raise NotTried("it registers by the plugin watcher")


@theme.check(
    "stale-socket",
    FAIL,
    suffers="A plugin that was killed, for memory for instance, does not come back until "
    "somebody removes its socket.",
    source="SIGKILL leaves the socket file; the kubelet removes it only at its own start",
    mend="Remove your socket before you bind, when nobody accepts on it.",
    seen="simple-device-plugin (the first start panics), GCE (fatal within the same second)",
)
async def stale_socket(stage: Stage) -> str:
    """The plugin starts although a killed predecessor left its socket."""
    process = await stage.start_fresh()
    await stage.until_registered(stage.timing.start)
    await stage.supervisor.kill_all()
    left = [path.name for path in (*stage.probe.sockets(), *stage.place.registry.iterdir())]
    await stage.probe.drop_connections()
    process = stage.process = await stage.launch_another()
    began = stage.launched_at
    try:
        await stage.until_registered(stage.timing.start, since=began)
    except Broken as error:
        if process.running:
            raise
        first = process.end_text()
        words = process.last_words()
        stage.process = await stage.launch()
        try:
            await stage.until_registered(stage.timing.start, since=began)
        except Broken:
            raise Broken(f"{error.evidence}, a second time as well", words) from None
        raise Fragile(f"the first start ended with {first}, the second worked", words) from None
    return f"registered after {stage.age():.2f} s ({len(left)} socket left behind)"


@theme.check(
    "same-second",
    WARN,
    needs=("registration.stale-socket",),
    track="registration.stale-socket",
    suffers="A container that ended is started again at once the first time, and that start is "
    "lost.",
    source="plugins seen: sockets named after the second of the start, and left behind",
    mend="Name the socket after the resource, and remove a socket that nobody accepts on.",
    seen="generic-device-plugin (waits for ever), GCE (exits 2)",
)
async def same_second(stage: Stage) -> str:
    """Killed and started again within the same second, the plugin registers."""
    began = int(time.time())
    await stage.start_fresh()
    await stage.until_registered(stage.timing.start)
    await stage.supervisor.kill_all()
    await stage.probe.drop_connections()
    now = int(time.time())
    last = now + math.ceil(2 * stage.notes.usual_start) + SECONDS_MORE
    for path in [*stage.probe.sockets(), *stage.place.registry.iterdir()]:
        if began <= (named := _second_in(path)) <= now:
            for second in range(began, last + 1):
                _leave_socket(path.with_name(path.name.replace(str(named), str(second))))
    stage.process = await stage.launch()
    took = await stage.until_registered(stage.timing.start, since=stage.launched_at)
    if any(_second_in(Plugin.of(stage, name).socket) > last for name in stage.resources):
        raise NotTried(f"its second start took more than {last - now} s")
    return f"registered {took:.2f} s after its second start"


def _second_in(path: Path) -> int:
    """Return the second since 1970 that a file is named after, or 0."""
    found = re.search(r"(?<!\d)\d{10}(?!\d)", path.name)
    return int(found[0]) if found else 0


def _leave_socket(path: Path) -> None:
    """Leave a socket file behind, as a killed process does."""
    if not path.exists():
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))


@theme.check(
    "unopened-stream",
    WARN,
    suffers="One resource that a kubelet refuses or is slow with keeps all others from the node.",
    source="a kubelet opens ListAndWatch in its own time, and not for what it refused",
    mend="Register every resource by itself; wait for no stream before the next.",
)
async def unopened_stream(stage: Stage) -> str:
    """A resource whose stream is not opened holds up no other resource."""
    _by_register(stage)
    if len(stage.resources) < 2:
        raise NotTried("it has only one resource")
    for silent in stage.resources:
        others = {*stage.resources} - {silent}
        await stage.start_fresh(behavior=RegisterBehavior(unopened=silent))

        def is_held_up(others: set[str] = others) -> list[str]:
            plugins = stage.probe.plugins
            return [each for each in others if each not in plugins or not plugins[each].lists]

        if not await stage.wait_for(lambda: not is_held_up(), stage.timing.registered_at_all):
            raise Broken(f"without a stream of {silent}, {is_held_up()[0]} is not served")
    return f"{len(stage.resources)} resources, each without the stream of another"


@theme.check(
    "two-instances",
    FAIL,
    needs=("list.stays-open", "list.abandoned-stream"),
    suffers="After a rolling update, or a second copy by mistake, no instance serves.",
    source="rolling updates with surge start the new instance before the old one ends",
    mend="Look whether somebody accepts on your socket; remove only a socket that is still yours.",
    seen="simple-device-plugin (the second panics and unlinks the first's socket), NVIDIA (the "
    "first's exit unlinks the second's socket)",
)
async def two_instances(stage: Stage) -> str:
    """Of two instances at once, one still serves in the end."""
    first = await stage.start_fresh()
    await stage.until_registered(stage.timing.start)
    second = await stage.launch_another()
    since = stage.launched_at
    await stage.until(
        lambda: not second.running or not stage.missing(since),
        stage.timing.overlap + 2 * stage.notes.usual_start,
    )
    await stage.pause(stage.timing.overlap / 3)  # what the second did may reach the first later
    while_both = f"the second {'runs' if second.running else second.end_text()}"
    await _must_be_served(stage, f"while both were started ({while_both})")
    if not second.running:
        return f"{while_both}, the first serves on"
    await first.send_signal(15)
    await stage.until_ended(first, 2 * stage.timing.stop)
    stage.process = second
    await stage.pause(stage.timing.hold)
    await _must_be_served(stage, "after the first ended")
    return "the second took over"


async def _must_be_served(stage: Stage, when: str) -> None:
    """Check that every resource has a stream, and a socket that can be dialled."""

    def served() -> bool:
        sessions = [stage.probe.plugins.get(name) for name in stage.resources]
        return all(each and each.stream and each.stream.is_open for each in sessions)

    if not await stage.until(served, stage.timing.registered_at_all):
        raise Broken(f"nobody serves {when}")
    for name in stage.resources:
        try:
            await Plugin.of(stage, name).must_still_work(when)
        except Broken as error:
            raise Fragile(f"the stream is open, but {error.evidence}") from error


# ---------------------------------------------------------------- the plugin watcher

watched = Theme("registration", needs=("registration.options",))


@watched.check(
    "watcher",
    FAIL,
    suffers="The kubelet refuses the plugin, or takes it for another type of plugin.",
    source="pluginregistration API: GetInfo; kubelet 1.32: plugin watcher",
    mend='Answer GetInfo with type "DevicePlugin", the resource name, and versions ["v1beta1"]; '
    "then answer NotifyRegistrationStatus.",
)
async def watcher(stage: Stage) -> str:
    """The plugin answers the plugin watcher: GetInfo, and the result of its registration."""
    for name in stage.resources:
        arrival = stage.last_arrival(name)
        if arrival.info is None:
            raise NotTried("it registers by itself")
        info = arrival.info
        if info.type != "DevicePlugin":
            raise Broken(f"type {info.type!r} instead of 'DevicePlugin'")
        if "v1beta1" not in info.supported_versions:
            raise Broken(f"supported versions {list(info.supported_versions)} without 'v1beta1'")
        if info.endpoint and not info.endpoint.startswith("/"):
            raise Broken(f"endpoint {info.endpoint!r} is not an absolute path")
        if arrival.notify_problem:
            raise Broken(f"NotifyRegistrationStatus: {arrival.notify_problem}")
    return "GetInfo and NotifyRegistrationStatus are answered"


@theme.check(
    "watcher-refused",
    WARN,
    slow=True,
    track="registration.refused",
    suffers="A plugin that runs without a registration looks healthy and serves no pod.",
    source="pluginregistration API: NotifyRegistrationStatus tells of a failure, too",
    mend="Exit with the error's text, or remove the socket and try again with a back-off.",
)
async def watcher_refused(stage: Stage) -> str:
    """The plugin answers the plugin watcher after a refusal, and does not crash."""
    if not stage.notes.is_watched:
        raise NotTried("it registers by itself")
    process = await stage.start_fresh(behavior=RegisterBehavior(refusal="refused by the check"))
    await stage.wait_for(
        lambda: any(a.answered_at for a in stage.probe.arrivals), stage.timing.start
    )
    await stage.until_ended(process, stage.timing.refusing)
    tries = stage.probe.arrivals
    if problems := [each.notify_problem for each in tries if each.notify_problem]:
        raise Broken(f"NotifyRegistrationStatus: {problems[0]}", process.last_words())
    if _is_storm(len(tries), stage):
        raise Broken(f"its socket appeared {len(tries)} times within {stage.timing.refusing:g} s")
    if process.code is not None and (process.code < 0 or process.code == 0):
        raise Broken(f"answered, then {process.end_text()}")
    return f"answered, then {process.end_text()}"
