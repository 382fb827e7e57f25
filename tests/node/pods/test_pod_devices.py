"""The pods that hold devices."""

from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod_devices import HeldDevices, Holder, PodDevices
from kubedevices.values.allocation import ContainerAllocateResponse

R, S = "example.com/widget", "example.com/gadget"


def held(*ids: str, **by_node: list[str]) -> HeldDevices:
    per_numa = {int(node[1:]): ids_there for node, ids_there in by_node.items()} or {-1: list(ids)}
    return HeldDevices(per_numa, ContainerAllocateResponse())


def test_a_device_on_two_nodes_is_held_once() -> None:
    """GetContainerDevices: the device keeps both nodes and is returned once."""
    pod_devices = PodDevices()
    pod_devices.insert("p", "c", R, held(n1=["d", "e"], n0=["d"]))
    found = pod_devices.get("p", "c", R)
    assert found is not None
    assert dict(found.devices_per_numa) == {1: ["d", "e"], 0: ["d"]}
    assert found.device_ids == ("d", "e")


def test_held_devices_of_containers_and_pods() -> None:
    """Holdings are found by container, by pod and by device."""
    pod_devices = PodDevices()
    pod_devices.insert("p", "a", R, held("d1", "d2"))
    pod_devices.insert("p", "a", S, held("d1"))
    pod_devices.insert("p", "b", R, held("d3"))
    pod_devices.insert("q", "a", R, held("d4"))
    assert set(pod_devices.of_container("p", "a")) == {R, S}
    assert pod_devices.of_pod("p", R) == {"d1", "d2", "d3"}
    assert pod_devices.device_ids("p", "b", R) == ("d3",)
    assert pod_devices.device_ids("p", "b", S) == ()
    assert pod_devices.reserved() == {R: {"d1", "d2", "d3", "d4"}, S: {"d1"}}
    assert pod_devices.holders(S, "d1") == (Holder("p", "a"),)
    assert pod_devices.holders(R, "d9") == ()
    assert list(pod_devices.pod_uids()) == ["p", "q"]
    assert [(h.pod_uid, h.container, h.resource) for h in pod_devices] == [
        ("p", "a", R),
        ("p", "a", S),
        ("p", "b", R),
        ("q", "a", R),
    ]
    assert len(pod_devices) == 4
    assert repr(pod_devices) == "<PodDevices of 2 pods>"


def test_owners_are_searched_within_the_resource() -> None:
    """The same ID of another resource has another owner. A kubelet mixes them up."""
    pod_devices = PodDevices()
    pod_devices.insert("p", "c", R, held("d1"))
    pod_devices.insert("q", "c", S, held("d1"))
    assert pod_devices.owners(R, ["d1", "d2"]) == {"p"}


def test_a_second_entry_replaces_the_first() -> None:
    """The earlier devices of the container for this resource are free again."""
    inventory = Inventory()
    pod_devices = PodDevices(inventory)
    pod_devices.insert("p", "c", R, held("d1", "d2"))
    pod_devices.insert("p", "c", R, held("d2", "d3"))
    assert pod_devices.reserved() == {R: {"d2", "d3"}}
    assert set(inventory.reserved(R)) == {"d2", "d3"}


def test_a_reused_device_stays_reserved_until_its_last_holder_is_gone() -> None:
    """Between an init container and an app container that reuses its device, the device is not
    free.
    """
    inventory = Inventory()
    pod_devices = PodDevices(inventory)
    pod_devices.insert("p", "init", R, held("d1"))
    pod_devices.insert("p", "app", R, held("d1"))
    assert pod_devices.holders(R, "d1") == (Holder("p", "init"), Holder("p", "app"))
    assert pod_devices.remove("p", "init", R) == held("d1")
    assert set(inventory.reserved(R)) == {"d1"}
    pod_devices.remove("p", "app", R)
    assert not inventory.reserved(R)
    assert not pod_devices.pod_uids()


def test_removing_a_pod_returns_and_frees_its_devices() -> None:
    """The devices of other pods stay reserved."""
    inventory = Inventory()
    pod_devices = PodDevices(inventory)
    for pod in ("p", "q"):
        pod_devices.insert(pod, "c", R, held(f"{pod}1"))
    assert [holding.pod_uid for holding in pod_devices.remove_pod("p")] == ["p"]
    assert set(inventory.reserved(R)) == {"q1"}
    assert pod_devices.remove_pod("p") == ()


def test_removing_an_unknown_entry_changes_nothing() -> None:
    """An unknown pod, container or resource has no devices to return."""
    pod_devices = PodDevices(Inventory())
    pod_devices.insert("p", "c", R, held("d1"))
    assert pod_devices.remove("p", "c", S) is None
    assert pod_devices.remove("p", "x", R) is None
    assert pod_devices.remove("x", "c", R) is None
    assert pod_devices.remove_pod("x") == ()
    assert pod_devices.reserved() == {R: {"d1"}}
