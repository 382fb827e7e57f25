"""Checks starts of the plugin under unusual conditions; each check starts the plugin itself."""

import asyncio
import math
import re
import socket
import time
from pathlib import Path

from kubedevices.check.check import FAIL, WARN, Broken, Fragile, Harm, NotTried, Phase, Theme
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.errors import UnsupportedVersion
from kubedevices.errors.words import counted
from kubedevices.testing.kubelet.arrival import LIKE_A_KUBELET, RegisterBehavior

STORM = 3.0
"""More registrations per second than this, after `QUICK_TRIES`, are a storm."""

QUICK_TRIES = 8

SPARE_SECONDS = 5
"""`same_second` leaves sockets for the seconds of the second start, and for so many more."""

theme = Theme(
    "registration",
    phase=Phase.PROCESS,
    needs=("registration.options",),
    track=None,
    harm=Harm.ALL_DEVICES,
)


@theme.check(
    "slow-kubelet",
    FAIL,
    slow=True,
    suffers="The kubelet registers the plugin later anyway, so each early retry adds a stream.",
    source="kubelet 1.32: Register dials for up to 10 s before it answers",
    mend="Give Register a deadline of 30 s.",
)
async def slow_kubelet(harness: Harness) -> str:
    """The plugin waits for a kubelet that takes 7.5 s to answer Register."""
    _by_register(harness)
    delay = harness.timing.slow_register
    await harness.start_fresh(behavior=RegisterBehavior(delay=delay))
    await harness.until(lambda: harness.probe.arrivals, harness.timing.start)

    def gave_up() -> list[float]:
        return [each.gave_up_after for each in harness.probe.arrivals if each.gave_up_after]

    async def one_more() -> bool:
        known = len(harness.probe.accepted())
        return await harness.until(
            lambda: gave_up() or len(harness.probe.accepted()) > known,
            delay + harness.timing.registered_soon,
        )

    # Many plugins register their resources one after another; each resource has its own limit.
    while harness.missing() and not gave_up() and await one_more():
        pass
    if gave_up():
        if min(gave_up()) > delay:
            raise NotTried(f"the check was delayed: it did not answer after {delay:g} s")
        raise Broken(f"gave up after {gave_up()[0]:.1f} s; the answer takes {delay:g} s")
    if harness.missing() or harness.how_ended():
        raise Broken(harness.why_missing(harness.age()), harness.last_words())
    for name in harness.resources:
        tries = Plugin.of(harness, name).times_registered()
        if tries > 1:
            raise Broken(f"called Register {counted(tries, 'time')} for {name}, not once")
    return f"waited {delay:g} s"


@theme.check(
    "absent-kubelet",
    FAIL,
    slow=True,
    suffers="At boot the plugin may start before the kubelet listens. A plugin that gives up "
    "silently never registers; a plugin that exits waits for its restart back-off.",
    source="Kubernetes: containers of a DaemonSet start while the kubelet still starts",
    mend="Wait for kubelet.sock without a limit.",
    seen="GCE (never registers), Intel (exits 1), SR-IOV (exits 2)",
)
async def absent_kubelet(harness: Harness) -> str:
    """A plugin that starts before the kubelet waits for the kubelet, and registers once."""
    process = await harness.start_fresh(kubelet=False)
    if await harness.until_ended(process, harness.timing.absent + 2 * harness.shared.usual_start):
        raise Fragile(f"ended without a kubelet: {process.end_text()}", process.last_words())
    await harness.probe.start()
    began = asyncio.get_running_loop().time()
    await harness.until_registered(harness.timing.registered_at_all)
    took = harness.spent(began)
    text = f"registered {took:.2f} s after the kubelet appeared"
    await harness.pause(harness.timing.overlap)
    if ended := harness.how_ended():
        harness.record_end(f"{text}, then {ended}")
        raise Broken(f"{text}, then {ended}", harness.last_words())
    for name in harness.resources:
        times = Plugin.of(harness, name).times_registered()
        if times > 1:
            raise Fragile(f"{text}, and {times} times within {harness.spent(began):.0f} s: {name}")
    # A plugin that tries again from time to time needs up to one period of its retries.
    if took > harness.timing.noticed_soon:
        raise Fragile(text)
    return text


@theme.check(
    "refused",
    WARN,
    slow=True,
    suffers="A storm of registrations loads the kubelet; a plugin that runs without registration "
    "looks healthy and serves no pod.",
    source="device plugin API: a plugin that is refused should end",
    mend="Exit with an error and the text of the refusal, or retry with a growing back-off.",
)
async def refused(harness: Harness) -> str:
    """After a refused registration the plugin exits with an error, or retries with a back-off."""
    _by_register(harness)
    text = str(UnsupportedVersion("v1beta1", "v1beta2"))
    process = await harness.start_fresh(behavior=RegisterBehavior(refusal=text))
    if not await harness.until(lambda: harness.probe.arrivals, harness.timing.start):
        raise Broken(harness.why_missing(harness.age()), harness.last_words())
    ended = await harness.until_ended(process, harness.timing.refusing)
    tries = len(harness.probe.arrivals)
    if ended and process.code == 0:
        raise Broken("ended with exit code 0, which means success")
    if ended:
        return f"{process.end_text()} after {counted(tries, 'attempt')}"
    if _is_storm(tries, harness):
        raise Broken(f"{counted(tries, 'registration')} within {harness.timing.refusing:g} s")
    harness.probe.behavior = LIKE_A_KUBELET
    since, limit = asyncio.get_running_loop().time(), harness.timing.registered_at_all
    if not await harness.until(lambda: not harness.missing(since), limit):
        raise Broken(
            f"{counted(tries, 'attempt')}, then it runs and does not register within {limit:g} s"
        )
    took = harness.spent(since)
    within = f"{counted(tries, 'attempt')} within {harness.timing.refusing:g} s"
    text = f"{within}, registered {took:.1f} s after that"
    if took > harness.timing.noticed_soon:
        raise Fragile(text)
    return text


def _is_storm(tries: int, harness: Harness) -> bool:
    return tries / len(harness.resources) > QUICK_TRIES + STORM * harness.timing.refusing


def _by_register(harness: Harness) -> None:
    if harness.shared.is_watched:
        raise NotTried("it registers through the plugin watcher")


@theme.check(
    "stale-socket",
    FAIL,
    suffers="A plugin that was killed, for example for its memory, does not start again until "
    "somebody removes its socket.",
    source="SIGKILL leaves the socket file; the kubelet removes the file only at its own start",
    mend="Before you bind, remove an old socket if no process accepts connections on it.",
    seen="simple-device-plugin (the first start panics), GCE (fatal within the same second)",
)
async def stale_socket(harness: Harness) -> str:
    """The plugin starts although a killed process has left its socket."""
    process = await harness.start_fresh()
    await harness.until_registered(harness.timing.start)
    await harness.supervisor.kill_all()
    left = harness.left_sockets()
    await harness.probe.drop_connections()
    process = harness.process = await harness.launch_another()
    began = harness.launched_at
    try:
        await harness.until_registered(harness.timing.start, since=began)
    except Broken as error:
        if process.running:
            raise
        first = process.end_text()
        words = process.last_words()
        harness.process = await harness.launch()
        try:
            await harness.until_registered(harness.timing.start, since=began)
        except Broken:
            raise Broken(f"{error.evidence}, a second time as well", words) from None
        raise Fragile(f"the first start ended with {first}, the second worked", words) from None
    return f"registered after {harness.age():.2f} s ({counted(len(left), 'socket')} left behind)"


@theme.check(
    "same-second",
    WARN,
    needs=("registration.stale-socket",),
    track="registration.stale-socket",
    suffers="The kubelet starts an ended container again at once the first time. This start fails.",
    source="plugins seen: the socket has the second of the start in its name and is left behind",
    mend="Name the socket after the resource; remove an old socket if no process accepts on it.",
    seen="generic-device-plugin (never registers), GCE (exits 2)",
)
async def same_second(harness: Harness) -> str:
    """The plugin registers if it was killed and started again within the same second."""
    began = int(time.time())
    await harness.start_fresh()
    await harness.until_registered(harness.timing.start)
    await harness.supervisor.kill_all()
    await harness.probe.drop_connections()
    now = int(time.time())
    last = now + math.ceil(2 * harness.shared.usual_start) + SPARE_SECONDS
    for path in harness.left_sockets():
        if began <= (named := _second_in(path)) <= now:
            for second in range(began, last + 1):
                _leave_socket(path.with_name(path.name.replace(str(named), str(second))))
    harness.process = await harness.launch()
    took = await harness.until_registered(harness.timing.start, since=harness.launched_at)
    if any(_second_in(Plugin.of(harness, name).socket) > last for name in harness.resources):
        raise NotTried(f"its second start took more than {last - now} s")
    return f"registered {took:.2f} s after its second start"


def _second_in(path: Path) -> int:
    """Return the Unix time (seconds) in the name of a file, or 0."""
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
    suffers="If the kubelet refuses one resource, or registers it slowly, all other resources are "
    "missing on the node.",
    source="kubelet: ListAndWatch may come late, and never for a refused resource",
    mend="Register every resource independently; do not wait for a stream before the next one.",
)
async def unopened_stream(harness: Harness) -> str:
    """If the kubelet does not open the stream of one resource, the others register and serve."""
    _by_register(harness)
    if len(harness.resources) < 2:
        raise NotTried("it has only one resource")
    for silent in harness.resources:
        await harness.start_fresh(behavior=RegisterBehavior(unopened=silent))
        others = [name for name in harness.resources if name != silent]

        def is_held_up(others: list[str] = others) -> list[str]:
            plugins = harness.probe.plugins
            return [each for each in others if each not in plugins or not plugins[each].lists]

        began = asyncio.get_running_loop().time()
        served = await harness.until(lambda: not is_held_up(), harness.timing.registered_at_all)
        if served:  # some plugins wait for a stream, and exit later
            await harness.pause(harness.timing.overlap)
        if ended := harness.how_ended():
            raise Broken(f"without a stream of {silent}, {ended}", harness.last_words())
        if not served:
            waited = harness.spent(began)
            held_up = is_held_up()[0]
            raise Broken(
                f"without a stream of {silent}, {held_up} is not served within {waited:.0f} s"
            )
    return f"{len(harness.resources)} resources, each without the stream of another"


@theme.check(
    "two-instances",
    FAIL,
    needs=("list.stays-open", "list.abandoned-stream"),
    suffers="After a rolling update, or if a second copy is started by mistake, no instance "
    "serves.",
    source="Kubernetes: a rolling update with maxSurge starts the new instance before the old ends",
    mend="At the start, test if a process accepts on your socket. At the end, remove the socket "
    "only if it is still your own.",
    seen="simple-device-plugin (the second instance panics and unlinks the socket of the first), "
    "NVIDIA (the first instance unlinks the socket of the second)",
)
async def two_instances(harness: Harness) -> str:
    """If two instances run at the same time, one of them serves in the end."""
    first = await harness.start_fresh()
    await harness.until_registered(harness.timing.start)
    second = await harness.launch_another()
    since = harness.launched_at
    await harness.until_true(
        lambda: not second.running or not harness.missing(since),
        harness.timing.overlap + 2 * harness.shared.usual_start,
    )
    # The first instance may notice later what the second has done, for example to its socket.
    await harness.pause(harness.timing.overlap / 3)
    while_both = f"second instance: {'running' if second.running else second.end_text()}"
    await _must_be_served(harness, f"after both had started ({while_both})")
    if not second.running:
        return f"{while_both}; the first instance still serves"
    await first.send_signal(15)
    await harness.until_ended(first, 2 * harness.timing.stop)
    harness.process = second
    await harness.pause(harness.timing.hold)
    await _must_be_served(harness, "after the first instance had ended")
    return "the second instance took over"


async def _must_be_served(harness: Harness, when: str) -> None:
    """Raise `Broken` unless every resource has an open stream; dial each socket as well."""

    def served() -> bool:
        sessions = [harness.probe.plugins.get(name) for name in harness.resources]
        return all(each and each.stream and each.stream.is_open for each in sessions)

    if not await harness.until_true(served, harness.timing.registered_at_all):
        raise Broken(f"no instance serves {when}")
    for name in harness.resources:
        try:
            await Plugin.of(harness, name).must_still_work(when)
        except Broken as error:
            raise Fragile(f"the stream is open, but {error.evidence}") from error


# ---------------------------------------------------------------- the plugin watcher

watched = Theme("registration", needs=("registration.options",), harm=Harm.ALL_DEVICES)


@watched.check(
    "watcher",
    FAIL,
    suffers="The kubelet refuses the plugin, or treats it as another type of plugin.",
    source="pluginregistration API: GetInfo; kubelet 1.32: plugin watcher",
    mend='Answer GetInfo with type "DevicePlugin", the resource name, and versions ["v1beta1"]; '
    "then answer NotifyRegistrationStatus.",
)
async def watcher(harness: Harness) -> str:
    """The plugin answers both calls of the plugin watcher: GetInfo and NotifyRegistrationStatus."""
    for name in harness.resources:
        arrival = harness.last_arrival(name)
        if arrival.info is None:
            raise NotTried("it calls Register itself")
        info = arrival.info
        if info.type != "DevicePlugin":
            raise Broken(f'type "{info.type}" instead of "DevicePlugin"')
        if "v1beta1" not in info.supported_versions:
            versions = ", ".join(info.supported_versions) or "no version"
            raise Broken(f"supports {versions}, not v1beta1")
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
    suffers="A plugin that runs without registration looks healthy and serves no pod.",
    source="pluginregistration API: NotifyRegistrationStatus also reports a failure",
    mend="Exit with the text of the error, or remove the socket and create it again after a "
    "back-off.",
)
async def watcher_refused(harness: Harness) -> str:
    """The plugin answers the plugin watcher after a refusal, and does not crash."""
    if not harness.shared.is_watched:
        raise NotTried("it calls Register itself")
    process = await harness.start_fresh(behavior=RegisterBehavior(refusal="refused by the check"))
    await harness.until(
        lambda: any(a.answered_at for a in harness.probe.arrivals), harness.timing.start
    )
    await harness.until_ended(process, harness.timing.refusing)
    tries = harness.probe.arrivals
    if problems := [each.notify_problem for each in tries if each.notify_problem]:
        raise Broken(f"NotifyRegistrationStatus: {problems[0]}", process.last_words())
    if _is_storm(len(tries), harness):
        times = counted(len(tries), "time")
        raise Broken(f"its socket appeared {times} within {harness.timing.refusing:g} s")
    if process.code is not None and (process.code < 0 or process.code == 0):
        raise Broken(f"answered, then {process.end_text()}")
    return f"answered, then {process.end_text()}"
