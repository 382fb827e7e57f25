"""The health of devices, for a driver that serves it."""

from kubedevices.check.check import Broken, Harm, NotTried, Severity, Theme
from kubedevices.check.drivers.node import DriverNode
from kubedevices.errors.words import counted
from kubedevices.kubelet_api.dra import HEALTH_SERVICES, DeviceHealth

FAIL, WARN = Severity.FAIL, Severity.WARN
theme = Theme("health", harm=Harm.OTHER)


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


@theme.check(
    "stays-open",
    FAIL,
    suffers="Between two streams the health of all devices is unknown.",
    source="KEP-4680: the stream lasts as long as the connection",
    mend="Do not end the stream; send each change.",
)
async def stays_open(node: DriverNode) -> str:
    """The stream stays open while nothing changes."""
    await _first(node)
    since = len(node.health) - 1
    await node.pause(node.timing.refusing)
    if any(devices is None for _, devices in node.health[since:]):
        raise Broken("the stream ended", node.last_words())
    return f"open for {node.timing.refusing:g} s"


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
