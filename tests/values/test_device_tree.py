"""Device trees: building, copying and comparing them."""

import re
from collections.abc import Callable

import pytest

from kubedevices.errors import InvalidDevice, InvalidResourceName
from kubedevices.values.device import Device, Health
from kubedevices.values.device_tree import DeviceTree, TreeChange, compare_trees


def test_adding_makes_the_type_known() -> None:
    """The first device of a type declares it; found twice, it counts once."""
    tree = DeviceTree()
    tree.add("widget", Device("w"))
    tree.add("widget", Device("w"))
    assert tree.count("widget") == 1


def test_two_devices_cannot_have_one_id() -> None:
    """One of them would be lost, such as two cards with one serial number."""
    tree = DeviceTree({"widget": [Device("w", paths=["/dev/w0"])]})
    with pytest.raises(InvalidDevice, match="two different devices of the type 'widget'") as caught:
        tree.add("widget", Device("w", paths=["/dev/w1"]))
    assert caught.value.device_id == "w"
    assert tree.devices("widget")["w"].paths == ("/dev/w0",)
    tree.add("gadget", Device("w", paths=["/dev/w1"]))
    with pytest.raises(InvalidDevice):
        DeviceTree({"widget": [Device("w"), Device("w", env={"A": "1"})]})


def test_a_type_may_have_no_devices() -> None:
    """A declared type is in the tree, unlike any other; to declare it again removes no device."""
    tree = DeviceTree({"widget": [Device("a"), Device("b")], "gadget": []})
    tree.declare("empty")
    tree.declare("widget")
    assert [(each, [*tree.devices(each)], tree.count(each)) for each in tree] == [
        ("widget", ["a", "b"], 2),
        ("gadget", [], 0),
        ("empty", [], 0),
    ]
    assert len(tree) == 3
    assert "other" not in tree
    assert (tree.count("other"), tree.devices("other")) == (0, {})
    assert DeviceTree({"gadget": []}) != DeviceTree()


@pytest.mark.parametrize("wrong", ["widget0", None, {"id": "w"}])
def test_only_devices_can_be_added(wrong: object) -> None:
    """What is no Device is refused by name of its type."""
    text = f"add() takes a Device, not {type(wrong).__name__}"
    with pytest.raises(InvalidDevice, match=re.escape(text)):
        DeviceTree().add("widget", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", None, 7])
def test_a_type_is_a_text(wrong: object) -> None:
    """What can be no part of a resource name is refused when it is said."""
    with pytest.raises(InvalidResourceName, match="a device type is a text, not empty"):
        DeviceTree().add(wrong, Device("w"))  # type: ignore[arg-type]


def test_views_are_read_only() -> None:
    """Nobody edits a tree through what it returns."""
    tree = DeviceTree({"widget": [Device("w")]})
    with pytest.raises(TypeError, match="does not support item assignment"):
        tree.devices("widget")["x"] = Device("x")  # type: ignore[index]


def test_a_snapshot_stays_as_it_is() -> None:
    """What happens to a tree after a snapshot does not reach the snapshot."""
    tree = DeviceTree({"widget": [Device("w")]})
    snapshot = tree.snapshot()
    tree.add("widget", Device("x"))
    tree.declare("gadget")
    assert snapshot == DeviceTree({"widget": [Device("w")]})


def test_changes_reach_no_other_of_the_trees_that_share_devices() -> None:
    """A tree, its snapshot and the snapshot of that share a dictionary until they change."""
    given = {"w": Device("w")}
    tree = DeviceTree()
    tree.put_list("widget", given, b"as sent")
    copy = tree.snapshot()
    second = copy.snapshot(reuse=tree)
    for number, each in enumerate((second, copy, tree)):
        each.add("widget", Device(f"new-{number}"))
    assert [[*each.devices("widget")] for each in (tree, copy, second)] == [
        ["w", "new-2"],
        ["w", "new-1"],
        ["w", "new-0"],
    ]
    assert [*given] == ["w"]
    assert tree.sent("widget") == b""


def test_a_snapshot_reuses_equal_devices() -> None:
    """An equal device of the tree before is taken as the same object; a changed one is not."""
    before = DeviceTree({"widget": [Device("same"), Device("other")]})
    now = DeviceTree({"widget": [Device("same"), Device("other", numa_nodes=[1]), Device("new")]})
    snapshot = now.snapshot(reuse=before)
    assert snapshot == now
    assert snapshot.devices("widget")["same"] is before.devices("widget")["same"]
    assert snapshot.devices("widget")["other"] is now.devices("widget")["other"]


def test_a_summary_for_people() -> None:
    """A tree prints as one line of counts."""
    assert repr(DeviceTree({"widget": [Device("w")], "gadget": []})) == (
        "<DeviceTree widget: 1, gadget: 0>"
    )
    assert repr(DeviceTree()) == "<DeviceTree empty>"


def changed_device(**parts: object) -> Callable[[DeviceTree], None]:
    """Return an edit that replaces the widget."""
    changed = Device("w", **parts)  # type: ignore[arg-type]

    def edit(tree: DeviceTree) -> None:
        tree.put_list("widget", {"w": changed})

    return edit


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda _tree: None, TreeChange()),
        (lambda tree: tree.declare("gadget"), TreeChange(added=("gadget",))),
        (lambda tree: tree.add("widget", Device("new")), TreeChange(updated=("widget",))),
        (changed_device(), TreeChange()),
        (changed_device(health=Health.UNHEALTHY), TreeChange(updated=("widget",))),
        (changed_device(paths=["/dev/w"]), TreeChange(updated=("widget",))),
        (changed_device(env={"A": "1"}), TreeChange(updated=("widget",))),
        (changed_device(numa_nodes=[1]), TreeChange(updated=("widget",))),
        (changed_device(cdi="example.com/w=w"), TreeChange(updated=("widget",))),
    ],
)
def test_changes_between_two_trees(
    edit: Callable[[DeviceTree], None], expected: TreeChange
) -> None:
    """The table of changes, per type; equal content is no change."""
    old = DeviceTree({"widget": [Device("w")]})
    new = old.snapshot()
    edit(new)
    assert compare_trees(old, new) == expected
    assert compare_trees(old, new).is_empty == (expected == TreeChange())


def test_a_type_that_is_gone() -> None:
    """A missing type is removed, a type without devices is only updated."""
    old = DeviceTree({"widget": [Device("w")], "gadget": [Device("g")]})
    new = DeviceTree({"gadget": []})
    assert compare_trees(old, new) == TreeChange(updated=("gadget",), removed=("widget",))


def test_everything_at_once() -> None:
    """One comparison may find all three kinds, in the order of the trees."""
    old = DeviceTree({"a": [], "b": [], "c": []})
    new = DeviceTree({"e": [], "b": [Device("b")], "d": [], "a": []})
    assert compare_trees(old, new) == TreeChange(added=("e", "d"), updated=("b",), removed=("c",))


def test_order_is_no_change() -> None:
    """The order in which devices were added does not matter."""
    old = DeviceTree({"widget": [Device("a"), Device("b")]})
    new = DeviceTree({"widget": [Device("b"), Device("a")]})
    assert compare_trees(old, new).is_empty
