"""The devices of one resource, and the changes of a new list."""

import time

from hypothesis import given
from hypothesis import strategies as st

from kubedevices.node.inventory.free_devices import mask_of_device
from kubedevices.node.inventory.list_plan import NO_CHANGE, ListChange
from kubedevices.node.inventory.resource_devices import ResourceDevices
from kubedevices.values.device import ReportedDevice, natural_key


def device(text: str) -> ReportedDevice:
    """`"a"` is healthy, `"!a"` is not, `"a@01"` is on NUMA nodes 0 and 1."""
    name, _, nodes = text.lstrip("!").partition("@")
    health = "Unhealthy" if text.startswith("!") else "Healthy"
    return ReportedDevice(name, health, tuple(map(int, nodes)) or None)


def listed(*texts: str) -> tuple[ReportedDevice, ...]:
    return tuple(map(device, texts))


def made(*texts: str) -> ResourceDevices:
    devices = ResourceDevices({})
    devices.replace(listed(*texts))
    return devices


def test_a_list_is_compared_with_the_previous_list() -> None:
    """The change has appeared, changed, moved and vanished devices."""
    devices = made("a", "b", "c@0", "!d")
    change = devices.replace(listed("a", "!b", "c@1", "e"))
    assert change == ListChange(
        appeared=("e",), changed=("b",), moved=("c",), vanished=("d",), duplicates=0
    )
    assert not change.is_empty
    assert devices.healthy == {"a", "c", "e"}
    assert devices.counts == {0: 3, 2: 1}


def test_the_same_list_again_changes_nothing() -> None:
    """Plugins that repeat equal lists cause neither events nor writes."""
    devices = made("a", "!b")
    assert devices.replace(listed("a", "!b")) == NO_CHANGE
    assert devices.replace(listed("a", "!b")).is_empty


def test_a_new_order_changes_only_the_order() -> None:
    """The same devices in another order are no change."""
    devices = made("a", "b")
    assert devices.replace(listed("b", "a")).is_empty
    assert list(devices.devices) == ["b", "a"]


def test_a_device_listed_twice_counts_once_and_unhealthy_wins() -> None:
    """Of two entries with one ID the unhealthy one counts, in any order."""
    for texts in (("a", "a", "!a", "b"), ("!a", "a", "a", "b")):
        devices = made(*texts)
        assert (devices.capacity, devices.allocatable) == (2, 1)
        assert devices.health("a") == "Unhealthy"
    assert devices.replace(listed("a", "a", "b")).duplicates == 1


def test_unusual_ids_and_health_words_are_accepted() -> None:
    """An empty ID is a device. Any word except Healthy is not healthy."""
    devices = ResourceDevices({})
    odd = (
        ReportedDevice("", "Healthy"),
        ReportedDevice("x" * 300, "healthy"),
        ReportedDevice("y", ""),
        ReportedDevice("9" * 5000, "Healthy", (-5, 2**62)),
    )
    devices.replace(odd)
    assert (devices.capacity, devices.allocatable) == (4, 2)
    assert devices.health("y") == "Unhealthy"
    assert len(devices.free.first(4)) == 2


def test_after_the_loss_of_a_plugin_all_health_is_unknown() -> None:
    """All devices stay known, and none is healthy. A kubelet says unhealthy and sends no update."""
    devices = made("a", "!b")
    assert devices.lose() == ListChange(changed=("a", "b"))
    assert (devices.capacity, devices.allocatable, len(devices.free)) == (2, 0, 0)
    assert devices.health("a") == "Unknown"
    assert devices.lose().is_empty, "only once"
    change = devices.replace(listed("a", "!b"))
    assert change.changed == ("a", "b"), "the same list means something now"
    assert devices.health("a") == "Healthy"


def test_the_health_of_an_unlisted_device_is_unknown() -> None:
    """A kubelet reports this device as healthy."""
    assert made("a").health("b") == "Unknown"


def test_devices_are_grouped_by_numa_node() -> None:
    """A device on several nodes is under each. A device without a node or a list is under -1."""
    devices = made("a@01", "b@1", "c")
    assert devices.per_numa(["a", "b", "c", "gone"]) == {
        0: ["a"],
        1: ["a", "b"],
        -1: ["c", "gone"],
    }


texts = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "!"]),
    st.sampled_from("abcdef"),
    st.sampled_from(["", "@0", "@01", "@1"]),
)
lists = st.lists(texts, max_size=8)


@given(st.lists(lists, min_size=1, max_size=5), st.sets(st.sampled_from("abcdef")), st.booleans())
def test_the_state_depends_on_the_last_list_only(
    history: list[list[str]], reserved: set[str], large: bool
) -> None:
    """Any sequence of lists leads to the same state, and the state is consistent."""
    padding = tuple(f"p{i}" for i in range(300)) if large else ()
    devices = ResourceDevices(dict.fromkeys(reserved, 1))
    for each in history:
        before = dict(devices.devices)
        change = devices.replace(listed(*padding, *each))
        assert set(change.appeared) == devices.devices.keys() - before.keys()
        assert set(change.vanished) == before.keys() - devices.devices.keys()
        both = {name for name in devices.devices if name in before}
        for name in both:
            old, new = before[name], devices.devices[name]
            assert (name in change.changed) == (old.health != new.health)
            assert (name in change.moved) == (old.health == new.health and old != new)
    fresh = ResourceDevices(dict.fromkeys(reserved, 1))
    fresh.replace(listed(*padding, *history[-1]))
    assert devices.devices == fresh.devices
    assert list(devices.devices) == list(fresh.devices)
    assert devices.healthy == fresh.healthy
    assert devices.counts == fresh.counts
    assert devices.free.all() == fresh.free.all()
    assert devices.free.counts() == fresh.free.counts()
    assert set(fresh.free.all()) == fresh.healthy - reserved
    assert fresh.free.all() == sorted(fresh.free.all(), key=natural_key)
    for name in fresh.free.all():
        assert fresh.free.contains(name, mask_of_device(fresh.devices[name]))


def test_a_change_among_100_000_devices_is_quick() -> None:
    """One changed device costs a comparison of two lists. The other devices are not touched."""

    def many(bad: int) -> tuple[ReportedDevice, ...]:
        return tuple(
            ReportedDevice(f"dev-{i}", "Unhealthy" if i == bad else "Healthy", (i % 8,))
            for i in range(100_000)
        )

    devices = ResourceDevices({})
    devices.replace(many(-1))
    second, third = many(5), many(-1)
    began = time.thread_time()
    assert devices.replace(second).changed == ("dev-5",)
    assert devices.replace(third).changed == ("dev-5",)
    assert time.thread_time() - began < 1
    assert devices.allocatable == 100_000
