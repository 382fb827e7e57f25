"""Several instances of one plugin: whose list and whose end counts."""

from kubedevices.node.inventory.inventory import Inventory
from tests.inventory_rig import OPTIONS, Plugin, R, S, listed, numbers, serving


def test_the_end_of_an_old_instance_changes_nothing(inventory: Inventory) -> None:
    """After a rolling update allocatable is the list of the new plugin."""
    old = Plugin(inventory, socket="old")
    old.list("a", "b")
    new = Plugin(inventory, socket="new")
    new.list("a", "b")
    assert old.end(1) is None
    assert numbers(inventory) == (2, 2)
    assert serving(inventory) == new.generation


def test_an_old_instance_serves_until_the_new_one_has_listed(inventory: Inventory) -> None:
    """The old list and the old endpoint count until the new instance has sent a list."""
    old = Plugin(inventory, socket="old")
    old.list("a")
    new = Plugin(inventory, socket="new")
    assert serving(inventory) == old.generation
    assert old.list("a", "b") is not None
    assert numbers(inventory) == (2, 2)
    new.list("c")
    assert old.list("a", "b", "d") is None, "the newer instance counts"
    assert list(inventory.devices(R)) == ["c"]


def test_a_new_instance_without_a_list_keeps_the_devices_of_the_old_one(
    inventory: Inventory,
) -> None:
    """The old plugin ends before the first list of the new one: allocatable does not fall."""
    old = Plugin(inventory, socket="old")
    old.list("a")
    new = Plugin(inventory, socket="new")
    old.end(1)
    assert numbers(inventory, 9999) == (1, 1)
    assert serving(inventory) == new.generation


def test_the_older_instance_takes_over_when_the_newer_one_ends(inventory: Inventory) -> None:
    """Only the end of the last instance loses the resource."""
    one, two = Plugin(inventory, socket="1"), Plugin(inventory, socket="2")
    one.list("a")
    two.list("b")
    assert one.list("a", "c") is None
    assert two.end(1).appeared == ("a", "c"), "its newest list counts"
    assert numbers(inventory, 9999) == (2, 2)
    assert one.end(2).changed == ("a", "c")
    assert numbers(inventory) == (2, 0)


def test_a_registration_on_the_same_socket_replaces_the_instance(inventory: Inventory) -> None:
    """Neither a list nor the end of the old stream counts any more."""
    old = Plugin(inventory, socket="x")
    old.list("a")
    connected = inventory.connect(R, OPTIONS, "x")
    assert connected.replaced == (old.generation,)
    assert numbers(inventory) == (1, 1)
    assert old.end(1) is None
    assert old.list("z") is None
    assert numbers(inventory, 9999) == (1, 1)
    inventory.report(R, connected.generation, listed("b"))
    assert list(inventory.devices(R)) == ["b"]


def test_twenty_registrations_leave_one_instance(inventory: Inventory) -> None:
    """The record of a resource does not grow with each registration."""
    for _ in range(200):
        Plugin(inventory, socket="x").list("a")
    record = inventory.record(R)
    assert record is not None
    assert len(record.instances) == 1
    for now in range(200):
        Plugin(inventory, socket=f"s{now}").end(now)
    assert len(record.instances) < 100


def test_a_stream_opened_again_is_the_same_instance(inventory: Inventory, plugin: Plugin) -> None:
    """After a loss, a list of the same registration brings all devices back."""
    plugin.list("a")
    plugin.end(1)
    assert plugin.list("a").changed == ("a",)
    assert numbers(inventory, 9999) == (1, 1)


def test_a_stream_opened_again_after_the_grace_period_still_counts(
    inventory: Inventory, plugin: Plugin
) -> None:
    """The record was removed, so the list creates a new record."""
    plugin.list("a")
    plugin.end(0)
    assert inventory.get_capacity(301).removed == (R,)
    assert plugin.list("a").appeared == ("a",)
    assert numbers(inventory, 302) == (1, 1)


def test_lists_of_a_forgotten_instance_are_ignored(inventory: Inventory, plugin: Plugin) -> None:
    """After the node has closed an endpoint, no list of this instance counts."""
    plugin.list("a")
    inventory.forget(R, plugin.generation)
    assert numbers(inventory) == (1, 1), "a connected instance is not forgotten"
    plugin.end(0)
    inventory.forget(R, plugin.generation)
    assert plugin.list("a") is None
    inventory.forget("v.example/unknown", 99)


def test_lists_of_unknown_generations_are_ignored(inventory: Inventory) -> None:
    """Neither an unknown resource nor an unknown generation creates a record."""
    assert inventory.report(R, 1, listed("a")) is None
    plugin = Plugin(inventory, R)
    assert inventory.report(S, plugin.generation, listed("a")) is None
    assert inventory.disconnect(S, 1, 0) is None
    assert list(inventory) == [R]
