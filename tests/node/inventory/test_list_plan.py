"""A list that is processed in slices, while devices change between two slices."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.node.inventory import list_plan
from kubedevices.node.inventory.free_devices import mask_of_device
from kubedevices.node.inventory.resource_devices import ResourceDevices
from kubedevices.values.device import ReportedDevice

IDS = [f"d{n}" for n in range(12)]
devices = st.builds(
    ReportedDevice,
    st.sampled_from(IDS),
    st.sampled_from(["Healthy", "Unhealthy", "odd"]),
    st.sampled_from([None, (0,), (0, 1)]),
)
lists = st.lists(devices, max_size=14).map(tuple)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make slices of few devices, and let few changes count as many."""
    monkeypatch.setattr(list_plan, "AT_ONCE", 2)
    monkeypatch.setattr(list_plan, "IN_PLACE", 3)


def state(found: ResourceDevices) -> object:
    free = set(found.free.all())
    return list(found.devices.items()), found.healthy, +found.counts, free, found.is_live


def reserve(found: ResourceDevices, reserved: dict[str, int], device_id: str) -> None:
    if device_id in reserved:
        del reserved[device_id]
        found.unblock([device_id])
    else:
        reserved[device_id] = 1
        found.block([device_id])


@given(lists, lists, st.lists(st.tuples(st.integers(0, 30), st.sampled_from(IDS)), max_size=6))
def test_reservations_between_two_slices_count(
    before: Sequence[ReportedDevice],
    after: Sequence[ReportedDevice],
    reservations: list[tuple[int, str]],
) -> None:
    """The result is the same as without slices, although pods got devices meanwhile."""
    reserved: dict[str, int] = {}
    found = ResourceDevices(reserved)
    found.replace(before)
    plan = found.plan(after)
    for step, _ in enumerate(plan.steps()):
        for when, device_id in reservations:
            if when == step:
                reserve(found, reserved, device_id)
    change = found.replace(after, plan)
    assert change is plan.change
    fresh = ResourceDevices(dict(reserved))
    fresh.replace(before)
    assert fresh.replace(after) == change
    assert state(found) == state(fresh)
    free = found.healthy - reserved.keys()
    assert found.free.counts() == Counter(mask_of_device(found.devices[each]) for each in free)
    assert plan.healths.keys() == set(change.changed)
    assert plan.words == {found.devices[each].health for each in change.appeared + change.changed}


@given(lists, lists, lists, st.integers(0, 20), st.booleans())
def test_a_plan_is_not_used_if_the_devices_have_changed(
    before: Sequence[ReportedDevice],
    between: Sequence[ReportedDevice],
    after: Sequence[ReportedDevice],
    step: int,
    is_lost: bool,
) -> None:
    """Between two slices, another instance sent a list, or the plugin was lost."""
    found = ResourceDevices({})
    found.replace(before)
    plan = found.plan(after)
    fresh = ResourceDevices({})
    fresh.replace(before)
    for number, _ in enumerate(plan.steps()):
        if number == step:
            found.lose() if is_lost else found.replace(between)
            fresh.lose() if is_lost else fresh.replace(between)
    assert found.replace(after, plan) == fresh.replace(after)
    assert state(found) == state(fresh)


def test_the_old_list_is_freed_in_slices() -> None:
    """Deleting the objects of a hundred thousand devices takes as long as creating them."""
    found = ResourceDevices({})
    found.replace(tuple(ReportedDevice(f"a{n}", "Healthy") for n in range(20)))
    after = tuple(ReportedDevice(f"b{n}", "Healthy") for n in range(20))
    plan = found.plan(after)
    for _ in plan.steps():
        pass
    found.replace(after, plan)
    assert sum(1 for _ in plan.free_old()) >= 10
