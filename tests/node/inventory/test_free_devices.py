"""Free devices in natural order, after any sequence of changes."""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.node.inventory import free_devices
from kubedevices.node.inventory.free_devices import FreeDevices, SortedIds
from kubedevices.values.device import natural_key

ids = st.integers(0, 40).map("dev{}".format)


@pytest.mark.parametrize("seed", range(20))
def test_ids_stay_sorted_in_blocks_of_any_size(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any additions and removals, the first IDs are the first in natural order."""
    monkeypatch.setattr(free_devices, "_BLOCK", 1 + seed % 4)
    random = Random(seed)
    sorted_ids, plain = SortedIds(), set[str]()
    for step in range(400):
        # The set fills and empties several times, so that blocks are split, shrink and vanish.
        fills = random.random() < (0.7 if step % 200 < 100 else 0.3)
        device_id = f"dev{random.randrange(40)}"
        (sorted_ids.add if fills else sorted_ids.discard)(device_id)
        (plain.add if fills else plain.discard)(device_id)
        assert len(sorted_ids) == len(plain)
        assert {each for each in (f"dev{n}" for n in range(40)) if each in sorted_ids} == plain
        if step > 10 * seed:  # the IDs are sorted at the first read only
            in_order = sorted(plain, key=natural_key)
            assert list(sorted_ids) == in_order
            for count in (-1, 0, 1, random.randrange(40), 50):
                first = [device_id for _, device_id in sorted_ids.first(count)]
                assert first == in_order[: max(count, 0)]
            assert all(
                1 <= len(each) <= 2 * free_devices._BLOCK for each in sorted_ids._blocks or []
            )


@pytest.mark.parametrize("seed", range(10))
def test_devices_of_several_groups_are_added_and_removed(seed: int) -> None:
    """After any sequence of changes, free devices are counted and listed by their NUMA nodes."""
    random = Random(seed)
    free, plain = FreeDevices(), dict[str, int]()
    masks = {f"dev{n}": random.choice([0, 1, 2, 3]) for n in range(12)}
    for _ in range(200):
        device_id = random.choice([*masks])
        if random.random() < 0.5:
            free.add(device_id, masks[device_id])
            plain[device_id] = masks[device_id]
        else:
            free.discard(device_id, masks[device_id])
            plain.pop(device_id, None)
        assert free.counts() == Counter(plain.values())
        assert {each for each in masks if free.contains(each, masks[each])} == {*plain}
        check_against(free, plain, random.randint(-2, 14))


def test_ten_thousand_ids_are_removed_and_added_in_order() -> None:
    """With blocks of full size too: all IDs are removed from the front, then added again."""
    every = [f"dev{i}" for i in range(10_000)]
    found = SortedIds()
    for device_id in reversed(every):
        found.add(device_id)
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


def free_of(masks: Mapping[str, int]) -> FreeDevices:
    free = FreeDevices()
    for device_id, mask in masks.items():
        free.add(device_id, mask)
    return free


def check_against(free: FreeDevices, masks: Mapping[str, int], count: int) -> None:
    assert len(free) == len(masks)
    for wanted in (lambda mask: True, lambda mask: mask & 1, lambda mask: mask == 0):
        expected = sorted((each for each in masks if wanted(masks[each])), key=natural_key)
        assert free.first(count, wanted) == expected[: max(count, 0)]
        assert free.all(wanted) == expected
        assert free.count(wanted) == len(expected)
    assert free.all() == sorted(masks, key=natural_key)
    assert free.first(count) == free.all()[: max(count, 0)]


@given(st.dictionaries(ids, st.sampled_from([0, 1, 2, 3]), max_size=12), st.integers(-1, 12))
def test_devices_of_several_groups_are_mixed_in_natural_order(
    masks: dict[str, int], count: int
) -> None:
    """Groups are only for counting; a request gets devices as from one list."""
    free = free_of(masks)
    check_against(free, masks, count)
    assert all(free.contains(each, mask) for each, mask in masks.items())
    assert not free.contains("dev0", 64)


def test_a_group_without_devices_is_removed() -> None:
    """The counts have only groups with a free device."""
    free = free_of({"a": 1, "b": 2})
    free.discard("a", 1)
    free.discard("b", 1)
    free.add("c", 4)
    assert free.counts() == {2: 1, 4: 1}
