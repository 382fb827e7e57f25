"""NUMA nodes of a whole tree, looked up once per device."""

from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.host.sysfs import DeviceNumber
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.numa_lookup import NumaLookup
from kubedevices.values.cdi import CdiDevice, ContainerEdits, DeviceNode
from tests.host.fake_sysfs import FakeSysfs


class CountingSysfs(FakeSysfs):
    """Counts look-ups."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.look_ups: list[str] = []

    def stat(self, path: Path) -> DeviceNumber:
        self.look_ups.append(path.name)
        return super().stat(path)


@pytest.fixture
def sysfs(tmp_path: Path) -> CountingSysfs:
    """Give a machine with card0 on NUMA node 0 and card1 on NUMA node 1."""
    sysfs = CountingSysfs(tmp_path)
    for node in (0, 1):
        directory = sysfs.directory(f"pci0000:0{node}/card", str(node), "0-7")
        sysfs.device_file(f"card{node}", directory)
    return sysfs


def card(number: int, **parts: object) -> kd.Device:
    """Return a device over one card."""
    return kd.Device(f"card{number}", paths=[f"/dev/card{number}"], **parts)  # type: ignore[arg-type]


def nodes_in(tree: kd.DeviceTree) -> dict[str, object]:
    """Return the NUMA nodes by device ID."""
    return {
        device_id: device.numa_nodes
        for device_type in tree
        for device_id, device in tree.devices(device_type).items()
    }


def test_a_device_that_leaves_by_cdi_alone_has_nodes_too(sysfs: CountingSysfs) -> None:
    """By the device files of its edits; a name that others define says nothing."""
    edits = ContainerEdits(device_nodes=(DeviceNode("/dev/mine", "/dev/card1"),))
    tree = kd.DeviceTree(
        {
            "card": [
                kd.Device("edits", cdi=edits),
                kd.Device("named", cdi=CdiDevice("x", container_edits=edits)),
                kd.Device("foreign", cdi="vendor.com/class=x"),
                kd.Device("files", paths=["/dev/card0"], cdi=edits),
            ]
        }
    )
    assert nodes_in(NumaLookup(sysfs.reader()).complete(tree)) == {
        "edits": (1,),
        "named": (1,),
        "foreign": (),
        "files": (0,),
    }


def test_every_device_gets_its_nodes(sysfs: CountingSysfs) -> None:
    """Devices that left it to us get what /sys says, those that did not keep their own."""
    tree = kd.DeviceTree(
        {
            "card": [card(0), card(1), kd.Device("own", paths=["/dev/card0"], numa_nodes=[5])],
            "none": [kd.Device("no-files"), kd.Device("said-none", numa_nodes=())],
            "empty": [],
        }
    )
    completed = NumaLookup(sysfs.reader()).complete(tree)
    assert nodes_in(completed) == {
        "card0": (0,), "card1": (1,), "own": (5,), "no-files": (), "said-none": (),
    }  # fmt: skip
    assert list(completed) == ["card", "none", "empty"]
    assert sysfs.look_ups == ["card0", "card1"]


def test_the_rest_of_a_device_stays(sysfs: CountingSysfs) -> None:
    """Nothing but the NUMA nodes is changed, and the tree that was given not at all."""
    device = card(1, env={"A": "1"}, cdi="example.com/card=1")
    tree = kd.DeviceTree({"card": [device]})
    completed = NumaLookup(sysfs.reader()).complete(tree)
    assert completed.devices("card")["card1"] == card(
        1, env={"A": "1"}, cdi="example.com/card=1", numa_nodes=[1]
    )
    assert tree == kd.DeviceTree({"card": [device]})


def test_a_device_that_stays_is_not_looked_up_again(sysfs: CountingSysfs) -> None:
    """An unchanged device costs nothing and stays the same object, as does one that turned bad."""
    lookup, notifier = NumaLookup(sysfs.reader()), Notifier()
    notifier.notify(kd.DeviceTree({"card": [card(0), card(1)]}))
    first = lookup.complete(notifier.take()[0])
    notifier.notify(kd.DeviceTree({"card": [card(0), card(1, health=kd.Health.UNHEALTHY)]}))
    second = lookup.complete(notifier.take()[0])
    assert sysfs.look_ups == ["card0", "card1"]
    assert second.devices("card")["card0"] is first.devices("card")["card0"]
    assert second.devices("card")["card1"] == card(1, health=kd.Health.UNHEALTHY, numa_nodes=[1])


def test_a_device_that_comes_back_is_looked_up_again(sysfs: CountingSysfs) -> None:
    """Plugged in elsewhere, a device may have another NUMA node."""
    lookup = NumaLookup(sysfs.reader())
    tree = kd.DeviceTree({"card": [card(0)]})
    assert nodes_in(lookup.complete(tree)) == {"card0": (0,)}
    lookup.complete(kd.DeviceTree({"card": []}))
    sysfs.directory("pci0000:00/card", "3")
    assert nodes_in(lookup.complete(tree)) == {"card0": (3,)}


def test_a_device_that_recovers_is_looked_up_again(sysfs: CountingSysfs) -> None:
    """Its file may have been missing so far, or it was unplugged and is elsewhere now."""
    lookup = NumaLookup(sysfs.reader())

    def nodes_with(health: kd.Health) -> dict[str, object]:
        return nodes_in(lookup.complete(kd.DeviceTree({"card": [card(2, health=health)]})))

    assert nodes_with(kd.Health.UNHEALTHY) == {"card2": ()}
    sysfs.device_file("card2", sysfs.directory("pci0000:02/card", "1", "0-7"))
    assert nodes_with(kd.Health.HEALTHY) == {"card2": (1,)}
    sysfs.directory("pci0000:02/card", "0")
    assert nodes_with(kd.Health.UNHEALTHY) == {"card2": (1,)}
    assert nodes_with(kd.Health.HEALTHY) == {"card2": (0,)}


def test_other_paths_are_looked_up_again(sysfs: CountingSysfs) -> None:
    """A device whose files change is another matter."""
    lookup = NumaLookup(sysfs.reader())
    lookup.complete(kd.DeviceTree({"card": [kd.Device("c", paths=["/dev/card0"])]}))
    moved = lookup.complete(kd.DeviceTree({"card": [kd.Device("c", paths=["/dev/card1"])]}))
    assert nodes_in(moved) == {"c": (1,)}


def test_nodes_set_by_an_author_are_not_remembered(sysfs: CountingSysfs) -> None:
    """A device that first knew its nodes and then leaves it to us is looked up."""
    lookup = NumaLookup(sysfs.reader())
    lookup.complete(kd.DeviceTree({"card": [card(0, numa_nodes=[7])]}))
    assert nodes_in(lookup.complete(kd.DeviceTree({"card": [card(0)]}))) == {"card0": (0,)}


def test_replicas_are_looked_up_once(sysfs: CountingSysfs) -> None:
    """Many shares of one card cost one look-up, in one type or in several."""
    shares = [kd.Device(f"card1-{n}", paths=["/dev/card1"]) for n in range(100)]
    tree = kd.DeviceTree({"card": shares, "card.shared": shares})
    completed = NumaLookup(sysfs.reader()).complete(tree)
    assert set(nodes_in(completed).values()) == {(1,)}
    assert sysfs.look_ups == ["card1"]


def test_a_file_that_is_not_there(sysfs: CountingSysfs, caplog: pytest.LogCaptureFixture) -> None:
    """A missing device file is no topology and no noise."""
    tree = kd.DeviceTree({"card": [card(9), card(1)]})
    assert nodes_in(NumaLookup(sysfs.reader()).complete(tree)) == {"card9": (), "card1": (1,)}
    assert caplog.records == []
