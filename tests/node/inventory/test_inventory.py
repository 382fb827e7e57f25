"""Resources, plugin instances and capacity. Time is an argument: no test waits."""

import pytest

from kubedevices.node.inventory.inventory import Capacity, Inventory
from kubedevices.node.pods.pod_devices import HeldDevices, PodDevices
from kubedevices.values.allocation import ContainerAllocateResponse
from kubedevices.values.device import ReportedDevice
from tests.golden_data import load
from tests.inventory_rig import Plugin, R, S, numbers

# ---------------------------------------------------------------- golden trace


def test_the_capacity_trace_is_that_of_the_kubelet(inventory: Inventory, plugin: Plugin) -> None:
    """Each step of the trace: capacity, allocatable and removed resources."""
    trace = load("capacity_trace")
    steps = iter(trace["sequence"])

    def check(event: str, now: float) -> None:
        expected = next(steps)
        assert expected["event"].startswith(event)
        found = inventory.get_capacity(now)
        assert found.capacity.get(R) == expected["capacity"], event
        assert found.allocatable.get(R) == expected["allocatable"], event
        assert list(found.removed) == expected["removed"], event

    check("connected, no list yet", 0)
    plugin.list("a", "b", "!c")
    check("list a,b healthy, c unhealthy", 1)
    plugin.end(2)
    check("disconnected", 3)
    check("stop time set to more than 5 min ago", 302.1)
    check("capacity asked again", 303)
    plugin = Plugin(inventory)
    check("new plugin connected, no list yet", 304)
    plugin.list("a")
    check("list a healthy", 305)
    plugin.end(306)
    plugin = Plugin(inventory)
    check("disconnected, then another plugin connected, no list yet", 99_999)
    plugin.list("a", "b")
    saved = inventory.registered_devices()
    assert saved == {R: ["a", "b"]}
    inventory = Inventory()
    for resource in saved:
        inventory.restore(resource, now=0)
    check("list a,b healthy; checkpoint written; state reloaded by a fresh manager", 1)
    check("fresh manager, stop time more than 5 min ago", 300.1)
    assert next(steps, None) is None


def test_unusual_lists_of_the_trace_count_as_in_the_kubelet() -> None:
    """Unusual health words and an empty list. Our numbers differ in rows 16 and 18."""
    early, twice, odd, empty = load("capacity_trace")["independent"]
    for step, devices in (
        (
            odd,
            (
                ReportedDevice("a", "healthy"),
                ReportedDevice("b", ""),
                ReportedDevice("", "Healthy"),
            ),
        ),
        (empty, ()),
    ):
        inventory = Inventory()
        plugin = Plugin(inventory)
        inventory.report(R, plugin.generation, devices)
        assert numbers(inventory) == (step["capacity"], step["allocatable"]), step["event"]
    assert (twice["capacity"], twice["allocatable"]) == (3, 2), "row 16"
    assert (early["capacity"], early["allocatable"]) == (0, None), "row 18"


def test_duplicate_devices_count_once(inventory: Inventory, plugin: Plugin) -> None:
    """A resource whose stream ended before its first list has zero devices."""
    assert numbers(inventory) == (None, None), "no list yet"
    plugin.list("a", "a", "!a", "b")
    assert numbers(inventory) == (2, 1)
    inventory = Inventory()
    Plugin(inventory).end(0)
    assert numbers(inventory) == (0, 0)


# ---------------------------------------------------------------- cases of the kubelet's own tests


@pytest.mark.parametrize("sockets", [("a", "b", "c"), ("a", "a", "a"), ("", "", "")])
def test_re_registration(inventory: Inventory, sockets: tuple[str, str, str]) -> None:
    """DevicePluginReRegistration: 2/2, the same from a second plugin, 1/1 from a third."""
    one = Plugin(inventory, socket=sockets[0])
    one.list("Dev1", "Dev2")
    assert numbers(inventory) == (2, 2)
    two = Plugin(inventory, socket=sockets[1])
    assert numbers(inventory) == (2, 2), "no dip before the first list"
    two.list("Dev1", "Dev2")
    assert numbers(inventory) == (2, 2)
    Plugin(inventory, socket=sockets[2]).list("Dev3")
    assert numbers(inventory) == (1, 1)
    assert list(inventory.devices(R)) == ["Dev3"]


def test_update_capacity_allocatable(inventory: Inventory) -> None:
    """UpdateCapacityAllocatable: devices and resources appear, change, expire, and are restored."""
    one = Plugin(inventory, R)
    one.list("a", "b", "!c")
    assert numbers(inventory) == (3, 2)
    one.list("a", "b")
    assert numbers(inventory) == (2, 2)
    one.list("a", "b", "!c")
    one.list("a", "!b", "!c")
    assert numbers(inventory) == (3, 1)
    one.list("!b", "!c")
    assert numbers(inventory) == (2, 0)
    two = Plugin(inventory, "resource2")
    two.list("a", "!b", "!c")
    assert numbers(inventory, resource="resource2") == (3, 1)
    one.end(0)
    assert inventory.get_capacity(301) == Capacity({"resource2": 3}, {"resource2": 1}, (R,))
    assert list(inventory) == ["resource2"]
    assert not inventory.is_known(R)
    two.end(301)
    assert numbers(inventory, 301, "resource2") == (3, 0)
    stopped = inventory.endpoint("resource2")
    assert stopped is not None
    assert not stopped.is_live, "calls to it fail"
    again = Inventory()
    for resource in inventory.registered_devices():
        again.restore(resource, 0)
    assert again.is_known("resource2")
    assert again.get_capacity(0) == Capacity({"resource2": 0}, {"resource2": 0}, ())


def test_allocatable_devices_of_several_resources(inventory: Inventory) -> None:
    """GetAllocatableDevicesMultipleResources: each resource has its own healthy devices."""
    Plugin(inventory, R).list("a", "b", "!c")
    Plugin(inventory, S).list("!a", "d")
    assert set(inventory.healthy(R)) == {"a", "b"}
    assert set(inventory.healthy(S)) == {"d"}
    assert not inventory.healthy("v.example/unknown")


def test_a_device_that_recovers_is_allocatable(inventory: Inventory, plugin: Plugin) -> None:
    """GetAllocatableDevicesHealthTransition: from unhealthy to healthy."""
    plugin.list("!a")
    assert plugin.list("a").changed == ("a",)
    assert set(inventory.healthy(R)) == {"a"}


def test_after_a_disconnect_all_devices_stay_known_for_the_grace_period() -> None:
    """EndpointSyncOnDisconnect: all devices are unhealthy but known, then completely removed."""
    inventory = Inventory(grace_period=10)
    plugin = Plugin(inventory)
    plugin.list("a", "b", "!c")
    plugin.end(100)
    assert numbers(inventory, 110) == (3, 0), "at the end of the grace period, not after it"
    assert inventory.is_known(R)
    assert inventory.get_capacity(110.01).removed == (R,)
    assert not inventory.is_known(R)
    assert inventory.record(R) is None
    assert inventory.endpoint(R) is None
    assert inventory.get_capacity(120) == Capacity({}, {}, ())


def test_each_change_of_health_concerns_exactly_one_of_two_hundred_pods(
    inventory: Inventory, plugin: Plugin
) -> None:
    """FeatureGateResourceHealthStatus: a list with equal health concerns no pod."""
    pod_devices = PodDevices(inventory)
    names = [f"d{i}" for i in range(200)]
    plugin.list(*names)
    for name in names:
        held = HeldDevices({-1: [name]}, ContainerAllocateResponse())
        pod_devices.insert(f"pod-{name}", "c", R, held)
    assert plugin.list(*names).is_empty
    for number, name in enumerate(names):
        change = plugin.list(
            *(f"!{each}" if at <= number else each for at, each in enumerate(names))
        )
        assert pod_devices.owners(R, change.changed) == {f"pod-{name}"}


# ---------------------------------------------------------------- known resources


def test_a_resource_is_known_from_its_registration_on(inventory: Inventory, plugin: Plugin) -> None:
    """A kubelet admits pods without devices until the first list."""
    assert inventory.is_known(R)
    assert not inventory.has_reported(R)
    plugin.list()
    assert inventory.is_known(R)
    assert inventory.has_reported(R)


def test_a_resource_with_held_devices_only_is_known(inventory: Inventory) -> None:
    """A pod of a restored checkpoint holds devices of a resource without a plugin."""
    assert not inventory.is_known(R)
    inventory.reserve(R, ["a"])
    assert inventory.is_known(R)
    inventory.unreserve(R, ["a"])
    assert not inventory.is_known(R)


def test_a_restored_resource_has_not_reported(inventory: Inventory) -> None:
    """Devices of an earlier start are not healthy until a plugin lists them."""
    inventory.restore(R, 0)
    inventory.restore(R, 100)
    assert inventory.is_known(R)
    assert not inventory.has_reported(R)
    endpoint = inventory.endpoint(R)
    assert endpoint is not None
    assert endpoint.options is None
    assert numbers(inventory, 300) == (0, 0)
    Plugin(inventory).list("a")
    assert inventory.has_reported(R)
    assert numbers(inventory, 9999) == (1, 1)


def test_health_of_an_unlisted_device_is_unknown() -> None:
    """Without a plugin the health of a device is Unknown; a kubelet says Healthy."""
    assert Inventory().health(R, "a") == "Unknown"
    assert Inventory().per_numa(R, ["a"]) == {-1: ["a"]}


def test_reserved_devices_survive_their_resource(inventory: Inventory, plugin: Plugin) -> None:
    """A held device is not free when its plugin registers again after the grace period."""
    plugin.list("a", "b")
    inventory.reserve(R, ["a"])
    plugin.end(0)
    inventory.get_capacity(301)
    Plugin(inventory).list("a", "b")
    record = inventory.record(R)
    assert record is not None
    assert record.devices.free.all() == ["b"]
    inventory.unreserve(R, ["a"])
    assert record.devices.free.all() == ["a", "b"]
    assert repr(inventory) == "<Inventory of 1 resources>"


def test_removed_resources_leave_nothing_behind() -> None:
    """A plugin may register under another name every minute, for years."""
    inventory = Inventory(grace_period=1)
    for n in range(1000):
        plugin = Plugin(inventory, f"v.example/r{n}")
        plugin.list("a")
        inventory.reserve(plugin.resource, ["a"])
        if n % 2:
            inventory.unreserve(plugin.resource, ["a"])
        plugin.end(now=n)
        inventory.get_capacity(now=n + 2)
        if not n % 2:
            inventory.unreserve(plugin.resource, ["a"])
    assert not [*inventory]
    assert sum(len(each) for each in vars(inventory).values() if isinstance(each, dict)) < 100
