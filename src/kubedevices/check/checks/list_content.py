"""Checks the content of the device lists, and when the first list arrives.

`list_streams` checks several streams, and streams over time.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from kubedevices.check.answers import shorten
from kubedevices.check.check import FAIL, WARN, Broken, Fragile, Harm, Theme
from kubedevices.check.plugin import Plugin
from kubedevices.errors.words import counted, some_of
from kubedevices.values.device import Health
from kubedevices.values.numa import BadNumaNodes, parse_numa_nodes

KUBELET_RECEIVES = 4 * 2**20
NEAR_THE_LIMIT = 3 * 2**20
SHORT = 1.0
"""Seconds. The kubelet reports the capacity every 10 s, so a capacity of 0 this short rarely
matters.
"""
ID_LIMIT = 63
ONLINE_NODES = "/sys/devices/system/node/online"

first = Theme("list", needs=("registration.options",), harm=Harm.ALL_DEVICES)


@first.check(
    "first-message",
    FAIL,
    suffers="Until the first list arrives, the resource has no devices and pods are rejected.",
    source="device plugin API: ListAndWatch returns the list, then every change",
    mend="Send the current list as soon as a stream opens.",
)
async def first_message(plugin: Plugin) -> str:
    """The first list comes within 2 s after the stream was opened."""
    stream = plugin.session.stream
    assert stream
    found = await plugin.first(stream, plugin.timing.late_list)
    if found is None:
        plugin.harness.shared.silent[plugin.resource].set()
        waited = plugin.harness.spent(stream.opened_at)
        raise Broken(f"no list within {waited:.0f} s {stream.end}".rstrip())
    took = plugin.harness.spent(stream.opened_at, found.at)
    if took > plugin.timing.first_list:
        raise Broken(f"the first list came after {took:.1f} s")
    return f"{counted(len(found.devices), 'device')} after {1000 * took:.0f} ms"


theme = Theme("list", needs=("registration.options",), harm=Harm.WRONG_DEVICE)


@theme.check(
    "complete",
    FAIL,
    suffers="After each start, the node's capacity is 0 until the second list: pods are rejected, "
    "and devices in use count as gone.",
    source="device plugin API: every message is the whole list and replaces the one before",
    mend="Find the devices before you open the socket, or send the first list only when they are "
    "known.",
    seen="Intel device plugins (an empty list, then the devices)",
)
async def complete(plugin: Plugin) -> str:
    """The first list is complete; it is not an empty list that is replaced within 2 s."""
    await plugin.device_list()
    lists = plugin.session.lists
    if not lists[0].devices:
        limit = plugin.timing.first_list
        await plugin.harness.until(lambda: len(plugin.session.lists) > 1, limit)
    spent = plugin.harness.spent
    early = [each for each in lists if spent(lists[0].at, each.at) < plugin.timing.first_list]
    for before, after in pairwise(early):
        if not before.devices and after.devices:
            lasted = spent(before.at, after.at)
            number = counted(len(after.devices), "device")
            text = f"an empty list, and {1000 * lasted:.0f} ms later a list of {number}"
            if lasted > SHORT:
                raise Broken(text)
            raise Fragile(text)
    return f"{counted(len(lists[0].devices), 'device')} in the first list"


# ---------------------------------------------------------------- content


@theme.check(
    "id-present",
    FAIL,
    suffers="The kubelet counts a device with an empty ID, and allocates it with the ID ''.",
    source="device plugin API: Device.ID; kubelet 1.32 accepts an empty ID",
    mend="Give every device an ID.",
)
async def id_present(plugin: Plugin) -> str:
    """No device ID is empty."""
    devices = (await plugin.device_list()).devices
    empty = sum(not device.id for device in devices)
    if empty:
        raise Broken(f"empty: {empty} of {counted(len(devices), 'ID')}")
    return counted(len(devices), "ID")


@theme.check(
    "id-unique",
    FAIL,
    suffers="The kubelet counts two devices with the same ID as one device. If one is healthy and "
    "the other is not, it counts both, so the capacity is too high.",
    source="device plugin API: Device.ID is unique; kubelet 1.32 adds healthy and unhealthy IDs",
    mend="Use something unique as the ID: serial number, PCI address, UUID.",
    seen="kubevirt kvm plugin",
)
async def id_unique(plugin: Plugin) -> str:
    """Every device ID appears once in a list."""
    devices = (await plugin.device_list()).devices
    doubled = [name for name, n in Counter(device.id for device in devices).items() if n > 1]
    if doubled:
        raise Broken(f"more than once: {shorten(doubled)}")
    return counted(len(devices), "different ID")


@theme.check(
    "id-length",
    WARN,
    suffers="A program that reads the API may rely on at most 63 characters.",
    source="device plugin API: comment of Device.ID (no kubelet enforces the limit)",
    mend="Shorten IDs, for example: replace the long part by a hash.",
)
async def id_length(plugin: Plugin) -> str:
    """Device IDs have at most 63 characters."""
    ids = [device.id for device in (await plugin.device_list()).devices]
    longest = max(ids, key=len, default="")
    if len(longest) > ID_LIMIT:
        raise Broken(f"{longest!r} has {len(longest)} characters")
    return f"the longest has {len(longest)} characters"


@theme.check(
    "health",
    FAIL,
    suffers='Every other word, for example "healthy" or "", counts as unhealthy: the kubelet never '
    "allocates the device.",
    source='device plugin API: "Healthy" and "Unhealthy"; kubelet 1.32 compares exactly',
    mend="Use the constants of the API.",
)
async def health(plugin: Plugin) -> str:
    """Health is exactly Healthy or Unhealthy."""
    devices = (await plugin.device_list()).devices
    odd = [device for device in devices if device.health not in tuple(Health)]
    if odd:
        number = counted(len(odd), "device")
        raise Broken(f'another health of {number}: {odd[0].id!r} is "{odd[0].health}"')
    counts = Counter(device.health for device in devices)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "no devices"


@theme.check(
    "numa",
    FAIL,
    suffers="A wrong NUMA node crashes or misleads the topology manager. With a negative NUMA "
    "node, aligned pods cannot use the device. If a device has a NUMA node twice, the kubelet's "
    "checkpoint has the device of a pod twice.",
    source="device plugin API: TopologyInfo.nodes; sysfs says -1 if the NUMA node is not known",
    mend="Send no topology if the NUMA node is not known.",
    seen="ROCm (sends numa_node from sysfs, also -1)",
)
async def numa(plugin: Plugin) -> str:
    """The NUMA nodes of a device are not negative, exist on this machine, and are not repeated."""
    devices = (await plugin.device_list()).devices
    nodes = {node for device in devices for node in device.numa_nodes or ()}
    if negative := sorted(node for node in nodes if node < 0):
        raise Broken(f"NUMA node {negative[0]}")
    online = _online_nodes(plugin)
    if online and (unknown := sorted(nodes - online)):
        known = _text(online)
        raise Fragile(f"NUMA node {unknown[0]} is not one of {known} in {ONLINE_NODES}")
    for device in devices:
        named = list(device.numa_nodes or ())
        if len(set(named)) < len(named):
            raise Fragile(f"{device.id!r} has a NUMA node twice: {_text(named)}")
    return f"NUMA nodes: {_text(nodes)}" if nodes else "no topology"


def _text(nodes: Iterable[int]) -> str:
    return some_of(map(str, sorted(nodes)))


def _online_nodes(plugin: Plugin) -> set[int]:
    """Return the NUMA nodes of this machine, an empty set if the kernel does not list them."""
    try:
        return {*parse_numa_nodes(plugin.harness.path_map.outside(ONLINE_NODES).read_text())}
    except (OSError, BadNumaNodes):
        return set()


@theme.check(
    "size",
    FAIL,
    suffers="The kubelet's gRPC library refuses a message above 4 MiB, and the kubelet drops the "
    "plugin without an error in the plugin.",
    source="kubelet 1.32: receive limit of grpc-go; kubernetes#109304",
    mend="Report fewer devices, use shorter IDs, or use several resources.",
    seen="volcano (#19), HAMi mock plugin (#1)",
)
async def size(plugin: Plugin) -> str:
    """A list is smaller than 4 MiB."""
    latest = await plugin.device_list()
    text = f"{counted(len(latest.devices), 'device')}, {latest.size:,} bytes"
    if latest.size > KUBELET_RECEIVES:
        raise Broken(text)
    if latest.size > NEAR_THE_LIMIT:
        raise Fragile(f"{text}, near the limit of 4 MiB")
    return text
