"""What a plugin is asked before devices are chosen, and how its answer is used."""

import pytest

from kubedevices.node.admission.device_choice import Chosen, check_preference
from kubedevices.values.allocation import ContainerPreferredRequest
from tests.allocator_rig import THREE_EACH, Node, Nodes, R


@pytest.mark.parametrize(
    ("affinity", "count", "answer", "chosen"),
    [
        ((0,), 2, ("d1", "d2"), ("d1", "d2")),
        ((0,), 2, ("d3", "d2"), ("d2", "d0")),
        ((0,), 2, ("d5", "d4", "d3"), ("d0", "d1")),
        ((0,), 2, ("bogus", "d1"), ("d1", "d0")),
        ((0,), 4, ("d0", "d1", "d2", "d5"), ("d0", "d1", "d2", "d5")),
        ((0,), 4, ("d5", "bogus"), ("d0", "d1", "d2", "d5")),
        (None, 2, ("d5", "d3"), ("d5", "d3")),
        (None, 2, ("d5", "d3", "d1", "d0"), ("d5", "d3")),
        (None, 2, ("d5", "d5"), ("d5", "d0")),
        (None, 2, (), ("d0", "d1")),
    ],
)
def test_the_valid_part_of_a_preference_is_used(
    affinity: Nodes, count: int, answer: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    """TopologyAlignedAllocation: unaligned, unknown, double and surplus IDs are ignored."""
    node = Node(THREE_EACH, prefers=True)
    assert node.choose(count, affinity=affinity, answer=answer) == chosen


def test_parameters_of_the_preference_call() -> None:
    """GetPreferredAllocationParameters: available, must-include and size in its five cases."""
    on_zero = {f"d{n}": (0,) for n in range(8)}
    node = Node({f"d{n}": (0,) for n in range(4)}, prefers=True)
    asked = node.ask(1, affinity=(0,))
    assert asked == ContainerPreferredRequest(("d0", "d1", "d2", "d3"), (), 1)
    node = Node(on_zero, prefers=True)
    node.hold("d0", "d1", pod="p", container="init")
    asked = node.ask(4, affinity=(0,), reusable=("d0", "d1"))
    assert asked == ContainerPreferredRequest(tuple(on_zero), ("d0", "d1"), 4)
    node.hold("d6", "d7")
    asked = node.ask(4, affinity=(0,), reusable=("d0", "d1"))
    assert asked.available == ("d0", "d1", "d2", "d3", "d4", "d5")
    assert asked.must_include == ("d0", "d1")
    two_nodes = {f"d{n}": (n // 4,) for n in range(8)}
    node = Node(two_nodes, prefers=True)
    asked = node.ask(6, affinity=(0,))
    assert asked == ContainerPreferredRequest(tuple(two_nodes), ("d0", "d1", "d2", "d3"), 6)
    ten = {f"d{n}": (n // 5,) for n in range(10)}
    node = Node(ten, prefers=True)
    node.hold("d0", "d1", pod="p", container="init")
    node.hold("d5", "d6")
    asked = node.ask(6, affinity=(0,), reusable=("d0", "d1"))
    assert asked == ContainerPreferredRequest(
        ("d0", "d1", "d2", "d3", "d4", "d7", "d8", "d9"), ("d0", "d1", "d2", "d3", "d4"), 6
    )


def test_only_aligned_devices_are_offered_when_they_suffice() -> None:
    """The plugin chooses among devices on the wanted nodes if there are enough."""
    node = Node(THREE_EACH, prefers=True)
    assert node.ask(2, affinity=(1,)).available == ("d3", "d4", "d5")
    assert node.ask(4, affinity=(1,)).available == tuple(THREE_EACH)
    assert node.ask(2).available == tuple(THREE_EACH)


def test_the_plugin_is_asked_only_with_the_option_and_a_choice() -> None:
    """No call without the option, for reused devices only, or if there are just enough aligned
    devices.
    """
    assert isinstance(Node(THREE_EACH).plan(2), Chosen)
    node = Node(THREE_EACH, prefers=True)
    assert node.choose(3, affinity=(0,)) == ("d0", "d1", "d2")
    node.hold("d0", "d1", pod="p", container="init")
    assert node.choose(2, reusable=("d0", "d1")) == ("d0", "d1")


def test_a_bad_preference_is_reported() -> None:
    """Size, membership, doubles and must-include are checked and reported."""
    node = Node([f"d{n}" for n in range(9)], prefers=True)
    node.hold("d0", pod="p", container="init")
    node.hold("d8")

    def warnings(*answer: str) -> tuple[str, ...]:
        chosen = node.choose(2, reusable=("d0",), answer=answer)
        assert chosen[0] == "d0", "must-include is always included"
        assert len(chosen) == 2
        found = check_preference(R, node.ask(2, reusable=("d0",)), answer)
        return tuple(text.removeprefix(f"{R}: the preferred allocation ") for text in found)

    assert warnings("d0", "d5") == ()
    assert warnings() == ()
    assert warnings("d1", "d2") == ("leaves out devices it must include: d0",)
    assert warnings("d0", "d1", "d2") == ("names 3 devices instead of 2",)
    assert warnings("d0", "d1", "d1") == ("names a device twice",)
    assert warnings("d0", "d8") == ("names devices that are not available: d8",)
    bogus = [f"x{n}" for n in range(6)]
    assert warnings("d0", *bogus)[0].endswith("not available: x0, x1, x2, x3, x4 and 1 more")
