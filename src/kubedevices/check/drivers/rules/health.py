"""The health of devices, for a driver that serves it."""

import asyncio
import contextlib

from kubedevices.check.check import FAIL, WARN, Broken, Harm, NotTried, Theme
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.target import TRIGGERED
from kubedevices.check.drivers.trigger_record import change_of
from kubedevices.errors import WireError
from kubedevices.errors.words import counted
from kubedevices.kubelet_api.dra import HEALTH_SERVICES, DeviceHealth
from kubedevices.testing.dra_kubelet.health import DEFAULT_TIMEOUT

theme = Theme("health", harm=Harm.OTHER)
apart = Theme("health", harm=Harm.OTHER, track=None)
triggered = Theme("health", harm=Harm.OTHER, track=TRIGGERED)
_LONGEST = 60
"""Seconds for which the check waits for the next list."""


@theme.check(
    "served",
    WARN,
    suffers="Kubelets from 1.36 on log an error each five seconds, and the status of a pod does not"
    " say that its device is bad.",
    source="KEP-4680: DRAResourceHealth v1alpha1, and v1 for kubelets from 1.37 on",
    mend="Serve NodeWatchResources, and name the service in GetInfo.",
)
async def served(node: DriverNode) -> str:
    """The driver serves the health of its devices."""
    versions = node.registry.arrivals[-1].info.supported_versions
    if not {*versions} & {*HEALTH_SERVICES}:
        raise Broken("GetInfo names no version of DRAResourceHealth")
    return ", ".join(each for each in versions if each in HEALTH_SERVICES)


@theme.check(
    "first",
    FAIL,
    suffers="The kubelet takes the health of the devices as unknown.",
    source="KEP-4680: the first message has all devices",
    mend="Send all devices at the start of each stream.",
)
async def first(node: DriverNode) -> str:
    """The first list of the stream comes soon and has each published device once."""
    devices = await _first(node)
    names = [(each.pool, each.device) for each in devices]
    if twice := [name for name in names if names.count(name) > 1]:
        raise Broken(f"{twice[0][1]} is twice in the list")
    missing = set(node.cluster.devices(node.driver)) - {each.device for each in devices}
    if missing:
        raise Broken(f"{min(missing)} is published, but not in the list")
    return counted(len(devices), "device")


@apart.check(
    "stays-open",
    FAIL,
    waits=True,
    suffers="Between two streams the health of all devices is unknown.",
    source="KEP-4680: the stream lasts as long as the connection",
    mend="Do not end the stream; send each change.",
)
async def stays_open(node: DriverNode) -> str:
    """The stream stays open while nothing changes."""
    await _first(node)

    def has_ended() -> bool:
        return any(devices is None for _, devices in node.health)

    began = node.health[0][0]
    await node.until(has_ended, node.timing.quiet)
    if has_ended():
        raise Broken("the stream ended", node.last_words())
    return f"open for {node.lost_time.spent(began):.0f} s"


@theme.check(
    "two-watchers",
    FAIL,
    suffers="After a restart of the kubelet, while its old stream is still open, the health of all"
    " devices is unknown.",
    source="KEP-4680: each stream begins with all devices; a kubelet opens one when it starts",
    mend="Keep a queue for each stream.",
)
async def two_watchers(node: DriverNode) -> str:
    """A second stream has all devices too, and both streams stay open."""
    wanted = {each.device for each in await _first(node)}
    since, lists = len(node.health), list[tuple[DeviceHealth, ...]]()

    async def read() -> None:
        async with node.connection().another_watch() as found:
            async for each in found:
                lists.append(each)

    reading = asyncio.create_task(read(), name="second health stream")
    try:
        await node.until(lambda: lists or reading.done(), node.timing.first_health)
        if not lists:
            raise Broken(f"the second stream has no list within {node.timing.first_health:g} s")
        if missing := wanted - {each.device for each in lists[0]}:
            raise Broken(f"the first list of the second stream has no {min(missing)}")
        await node.pause(node.timing.hold)
        if reading.done():
            raise Broken("the second stream ended")
        if any(devices is None for _, devices in node.health[since:]):
            raise Broken("the first stream ended when the second began")
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, WireError):
            await reading
    return f"both have {counted(len(wanted), 'device')}"


@apart.check(
    "refresh",
    FAIL,
    slow=True,
    suffers="The kubelet takes the health of a device as unknown when its timeout has passed, and"
    " the pod's status says so.",
    source="KEP-4680: health_check_timeout_seconds, 30 s if it is 0",
    mend="Send all devices again in less than half of their timeout.",
)
async def refresh(node: DriverNode) -> str:
    """While nothing changes each device is sent again before its timeout."""
    due = {
        each.device: each.timeout or DEFAULT_TIMEOUT
        for each in await _first(node)
        if (each.timeout or DEFAULT_TIMEOUT) <= _LONGEST
    }
    if not due:
        raise NotTried(f"its timeouts are longer than {_LONGEST} s")
    since = len(node.health)
    began = asyncio.get_running_loop().time()
    for name, timeout in sorted(due.items(), key=lambda each: each[1]):

        def came(name: str = name) -> bool:
            later = (devices or () for _, devices in node.health[since:])
            return any(each.device == name for devices in later for each in devices)

        if not await node.until(came, timeout - node.lost_time.spent(began)):
            raise Broken(f"{name} was not sent again within its timeout of {timeout} s")
    return f"all within {node.lost_time.spent(began):.1f} s, the timeout is {min(due.values())} s"


@triggered.check(
    "recovers",
    FAIL,
    suffers="The status of the pod calls a good device broken for ever; controllers replace pods.",
    source="KEP-4680: the stream has each change",
    mend="Send all devices again when one of them is good again.",
)
async def recovers(node: DriverNode) -> str:
    """A device that was reported as unhealthy is reported as healthy after the undo."""
    await _first(node)
    change = await change_of(node)
    new = change.after.sick.keys() - change.before.sick.keys()
    if not new:
        raise NotTried("the trigger makes no device unhealthy in the health list")
    if change.restored is None:
        raise NotTried("needs --undo, which makes the device good again")
    if still := new & change.restored.sick.keys():
        raise Broken(f"{min(still)} is unhealthy {node.timing.change:g} s after the undo")
    return f"{min(new)} is healthy again"


@triggered.check(
    "message",
    WARN,
    suffers="`kubectl describe pod` says that a device is unhealthy, but nobody sees why.",
    source="KEP-4680: message of DeviceHealth, in kubelets from 1.36 on",
    mend="Say in the message what is wrong, in at most 1024 characters.",
)
async def message(node: DriverNode) -> str:
    """An unhealthy device has a message."""
    await _first(node)
    sick = (await change_of(node)).after.sick
    if not sick:
        raise NotTried("the trigger makes no device unhealthy in the health list")
    if silent := sorted(name for name, text in sick.items() if not text.strip()):
        raise Broken(f"{silent[0]} is unhealthy without a message")
    return "; ".join(f"{name}: {text}" for name, text in sick.items())


async def _first(node: DriverNode) -> tuple[DeviceHealth, ...]:
    versions = node.registry.arrivals[-1].info.supported_versions
    if not {*versions} & {*HEALTH_SERVICES}:
        raise NotTried("it does not serve health")

    def last() -> tuple[DeviceHealth, ...] | None:
        return next((devices for _, devices in reversed(node.health) if devices), None)

    if not await node.until(last, node.timing.first_health):
        raise Broken(f"no list within {node.timing.first_health:g} s", node.last_words())
    found = last()
    assert found is not None
    return found
