"""The writes to the API server: as few as possible, in the right order."""

import copy
from typing import Any

import pytest

from kubedevices.dra.slice_writes import Object, Pool, SlicePlan, StoredForms, plan_writes

POOL = Pool("example.com", "node1", "node-uid")


def devices(*names: str, **more: Any) -> list[Object]:
    return [{"name": name, **more} for name in names]


class Server:
    """Slices as an API server stores them."""

    def __init__(self, *wanted: list[Object]) -> None:
        self.slices: list[Object] = []
        self.count = 0
        self.apply(plan_writes([], wanted, POOL))

    def apply(self, plan: SlicePlan) -> None:
        for each in plan.delete:
            self.slices.remove(each)
        for each in plan.update:
            (at,) = [
                i
                for i, known in enumerate(self.slices)
                if known["metadata"]["name"] == each["metadata"]["name"]
            ]
            self.slices[at] = copy.deepcopy(each)
        for each in plan.create:
            made = copy.deepcopy(each)
            self.count += 1
            made["metadata"]["name"] = made["metadata"]["generateName"] + f"{self.count:05}"
            self.slices.append(made)

    @property
    def generations(self) -> list[tuple[int, int]]:
        return [
            (each["spec"]["pool"]["generation"], each["spec"]["pool"]["resourceSliceCount"])
            for each in self.slices
        ]


def test_the_first_slices_are_created_complete() -> None:
    """With node, pool, owner and an index that sorts."""
    (first, second) = plan_writes([], [devices("a"), devices("b")], POOL).create
    assert first["metadata"] == {
        "generateName": "00000-example.com-node1-",
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": "node1",
                "uid": "node-uid",
                "controller": True,
            }
        ],
    }
    assert first["spec"] == {
        "driver": "example.com",
        "nodeName": "node1",
        "pool": {"name": "node1", "generation": 1, "resourceSliceCount": 2},
        "devices": [{"name": "a"}],
    }
    assert second["metadata"]["generateName"].startswith("00001-")


def test_nothing_is_written_when_nothing_changed() -> None:
    """Also if the server has set the times of taints."""
    wanted = devices("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    server = Server(wanted)
    server.slices[0]["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    assert plan_writes(server.slices, [wanted], POOL).is_empty


def test_one_changed_slice_is_one_update_of_the_same_generation() -> None:
    """The update replaces the slice in one step, so no consumer sees half a pool."""
    server = Server(devices("a"), devices("b"))
    plan = plan_writes(server.slices, [devices("a"), devices("b", x=1)], POOL)
    assert (len(plan.delete), len(plan.update), len(plan.create)) == (0, 1, 0)
    server.apply(plan)
    assert server.generations == [(1, 2), (1, 2)]


def test_changes_of_devices_that_stay_in_their_slices_keep_the_generation() -> None:
    """However many: between the updates a consumer sees each device once."""
    wanted = [devices("a", "b"), devices("c"), devices("d")]
    server = Server(*wanted)
    wanted[0][1] |= {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    wanted[2][0] |= {"x": 1}
    plan = plan_writes(server.slices, wanted, POOL)
    assert (len(plan.delete), len(plan.update), len(plan.create)) == (0, 2, 0)
    server.apply(plan)
    assert server.generations == [(1, 3)] * 3
    assert plan_writes(server.slices, wanted, POOL).is_empty


def test_two_slices_with_other_devices_are_a_new_generation() -> None:
    """Consumers wait until both are written."""
    server = Server(devices("a"), devices("b"))
    server.apply(plan_writes(server.slices, [devices("c"), devices("d")], POOL))
    assert server.generations == [(2, 2), (2, 2)]


def test_more_and_fewer_slices_are_a_new_generation() -> None:
    """Each slice has the number of slices; obsolete slices are deleted first."""
    server = Server(devices("a"))
    server.apply(plan_writes(server.slices, [devices("a"), devices("b")], POOL))
    assert server.generations == [(2, 2), (2, 2)]
    plan = plan_writes(server.slices, [devices("a")], POOL)
    assert [each["spec"]["devices"] for each in plan.delete] == [devices("b")]
    server.apply(plan)
    assert server.generations == [(3, 1)]


def test_a_device_that_moves_to_another_slice_needs_a_new_generation() -> None:
    """Otherwise a consumer could see it twice."""
    server = Server(devices("a", "b"), devices("c"))
    server.apply(plan_writes(server.slices, [devices("a"), devices("b", "c")], POOL))
    assert server.generations == [(2, 2), (2, 2)]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_deleted_slice_comes_back_with_a_new_generation(lost: int) -> None:
    """A kubelet that starts deletes slices. If one of two is deleted, both are written."""
    server = Server(devices("a"), devices("b"))
    del server.slices[lost]
    server.apply(plan_writes(server.slices, [devices("a"), devices("b")], POOL))
    assert server.generations == [(2, 2), (2, 2)]
    assert plan_writes(server.slices, [devices("a"), devices("b")], POOL).is_empty


@pytest.mark.parametrize(
    "break_it",
    [
        lambda found: found["metadata"].update(name="no-index"),
        lambda found: found["metadata"].update(name="zzzzz-example.com-node1-abcde"),
        lambda found: found["spec"]["pool"].update(name="other"),
        lambda found: found["metadata"].update(ownerReferences=[]),
        lambda found: found["metadata"]["ownerReferences"][0].update(uid="an earlier node"),
    ],
)
def test_a_slice_with_a_wrong_immutable_field_is_replaced(break_it: Any) -> None:
    """Pool and owner of a slice cannot be changed."""
    server = Server(devices("a"))
    break_it(server.slices[0])
    plan = plan_writes(server.slices, [devices("a")], POOL)
    assert (len(plan.delete), len(plan.update), len(plan.create)) == (1, 0, 1)
    server.apply(plan)
    assert server.generations == [(2, 1)]


def test_slices_of_an_older_generation_and_duplicates_are_deleted() -> None:
    """A killed process may leave such slices."""
    server = Server(devices("a"))
    old, double = copy.deepcopy(server.slices[0]), copy.deepcopy(server.slices[0])
    old["spec"]["pool"]["generation"] = 0
    double["metadata"]["name"] += "x"
    server.slices += [old, double]
    plan = plan_writes(server.slices, [devices("a")], POOL)
    assert plan == SlicePlan(delete=(old, double))


def test_a_taint_keeps_its_time_when_another_device_changes() -> None:
    """For a taint without a time, the server would set the time of the update."""
    taint = {"key": "k", "effect": "NoSchedule"}
    server = Server([*devices("a", taints=[taint]), *devices("b")])
    server.slices[0]["spec"]["devices"][0]["taints"][0]["timeAdded"] = "then"
    wanted = [*devices("a", taints=[taint]), *devices("b", taints=[taint])]
    (update,) = plan_writes(server.slices, [wanted], POOL).update
    assert [each["taints"] for each in update["spec"]["devices"]] == [
        [{**taint, "timeAdded": "then"}],
        [taint],
    ]


def test_a_slice_with_dropped_fields_counts_as_equal() -> None:
    """A dropped field is reported, and is no reason to write again; a new device is."""
    adopted = StoredForms()
    wanted = devices("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    (sent,) = plan_writes([], [wanted], POOL).create
    server = Server(devices("a"))
    assert adopted.record(sent, server.slices[0]) == {"taints"}
    assert plan_writes(server.slices, [wanted], POOL, adopted).is_empty
    assert not plan_writes(server.slices, [devices("b")], POOL, adopted).is_empty


def test_a_rewritten_quantity_counts_as_equal() -> None:
    """1024Mi becomes 1Gi: nothing was dropped."""
    adopted = StoredForms()
    wanted = devices("a", capacity={"memory": {"value": "1024Mi"}})
    (sent,) = plan_writes([], [wanted], POOL).create
    server = Server(devices("a", capacity={"memory": {"value": "1Gi"}}))
    assert adopted.record(sent, server.slices[0]) == frozenset()
    assert plan_writes(server.slices, [wanted], POOL, adopted).is_empty
