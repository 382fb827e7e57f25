"""Free devices in natural order, whatever happened before."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubedevices.device import natural_key
from kubedevices.node import free_devices
from kubedevices.node.free_devices import FreeDevices, SortedIds

ids = st.integers(0, 40).map("dev{}".format)


class SortedIdsMachine(RuleBasedStateMachine):
    """A set with an order, beside a plain set."""

    def __init__(self) -> None:
        super().__init__()
        self.sorted, self.plain = SortedIds(), set[str]()

    @rule(device_id=ids)
    def add(self, device_id: str) -> None:
        self.sorted.add(device_id)
        self.plain.add(device_id)

    @rule(device_id=ids)
    def discard(self, device_id: str) -> None:
        self.sorted.discard(device_id)
        self.plain.discard(device_id)

    @rule(count=st.integers(-1, 50))
    def first(self, count: int) -> None:
        expected = sorted(self.plain, key=natural_key)[: max(count, 0)]
        assert [device_id for _, device_id in self.sorted.first(count)] == expected

    @invariant()
    def is_the_same_set(self) -> None:
        assert len(self.sorted) == len(self.plain)
        assert all(device_id in self.sorted for device_id in self.plain)


def test_ids_stay_sorted_in_blocks_of_any_size() -> None:
    """Whatever is added and discarded between, the first ids are the first in natural order."""
    size = free_devices._BLOCK
    free_devices._BLOCK = 3
    try:
        SortedIdsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
        SortedIdsMachine.TestCase("runTest").runTest()
    finally:
        free_devices._BLOCK = size


def test_ten_thousand_ids_come_and_go_in_order() -> None:
    """With full-sized blocks too: everything is taken from the front, then put back."""
    every = [f"dev{i}" for i in range(10_000)]
    found = SortedIds(reversed(every))
    taken = []
    while found:
        [(_, device_id)] = found.first(1)
        found.discard(device_id)
        taken.append(device_id)
    assert taken == every
    for device_id in reversed(taken):
        found.add(device_id)
    assert list(found) == every
    assert max(map(len, found._blocks or [])) <= 2 * free_devices._BLOCK, "blocks stay short"


@given(st.dictionaries(ids, st.sampled_from([0, 1, 2, 3]), max_size=12), st.integers(0, 12))
def test_devices_of_several_groups_are_mixed_in_natural_order(
    masks: dict[str, int], count: int
) -> None:
    """Groups are for counting; who asks for devices gets them as if there was one list."""
    free = FreeDevices.of(masks.items())
    for wanted in (lambda mask: True, lambda mask: mask & 1, lambda mask: mask == 0):
        expected = sorted((each for each in masks if wanted(masks[each])), key=natural_key)
        assert free.first(count, wanted) == expected[:count]
        assert free.all(wanted) == expected
        assert free.count(wanted) == len(expected)
    assert len(free) == len(masks)
    assert all(free.contains(each, mask) for each, mask in masks.items())
    assert not free.contains("dev0", 64)


def test_a_group_without_devices_is_gone() -> None:
    """Counts name only the groups that have a free device."""
    free = FreeDevices.of([("a", 1), ("b", 2)])
    free.discard("a", 1)
    free.discard("b", 1)
    free.add("c", 4)
    assert free.counts() == {2: 1, 4: 1}
