"""What is written to the API server: as little as possible, in the right order."""

import copy
from typing import Any

import pytest

from kubedevices.dra.reconcile import Adopted, Object, Pool, SlicePlan, decide

POOL = Pool("example.com", "node1", "node-uid")


def devices(*names: str, **more: Any) -> list[Object]:
    return [{"name": name, **more} for name in names]


class Server:
    """Slices as an API server keeps them."""

    def __init__(self, *wanted: list[Object]) -> None:
        self.slices: list[Object] = []
        self.count = 0
        self.apply(decide([], wanted, POOL))

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
    (first, second) = decide([], [devices("a"), devices("b")], POOL).create
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
    """Also with the times that the server put into taints."""
    wanted = devices("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    server = Server(wanted)
    server.slices[0]["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    assert decide(server.slices, [wanted], POOL).is_empty


def test_one_changed_slice_is_one_update_of_the_same_generation() -> None:
    """It replaces the slice in one step, so nobody sees half a pool."""
    server = Server(devices("a"), devices("b"))
    plan = decide(server.slices, [devices("a"), devices("b", x=1)], POOL)
    assert (len(plan.delete), len(plan.update), len(plan.create)) == (0, 1, 0)
    server.apply(plan)
    assert server.generations == [(1, 2), (1, 2)]


def test_two_changed_slices_are_a_new_generation() -> None:
    """Until both are written, consumers wait."""
    server = Server(devices("a"), devices("b"))
    server.apply(decide(server.slices, [devices("c"), devices("d")], POOL))
    assert server.generations == [(2, 2), (2, 2)]


def test_more_and_fewer_slices_are_a_new_generation() -> None:
    """Every slice says how many there are; what is left over goes first."""
    server = Server(devices("a"))
    server.apply(decide(server.slices, [devices("a"), devices("b")], POOL))
    assert server.generations == [(2, 2), (2, 2)]
    plan = decide(server.slices, [devices("a")], POOL)
    assert [each["spec"]["devices"] for each in plan.delete] == [devices("b")]
    server.apply(plan)
    assert server.generations == [(3, 1)]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_deleted_slice_comes_back_with_a_new_generation(lost: int) -> None:
    """A kubelet that starts deletes slices; who deletes one of two gets both again."""
    server = Server(devices("a"), devices("b"))
    del server.slices[lost]
    server.apply(decide(server.slices, [devices("a"), devices("b")], POOL))
    assert server.generations == [(2, 2), (2, 2)]
    assert decide(server.slices, [devices("a"), devices("b")], POOL).is_empty


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
def test_a_slice_that_cannot_be_mended_is_replaced(break_it: Any) -> None:
    """Pool and owner of a slice cannot be changed."""
    server = Server(devices("a"))
    break_it(server.slices[0])
    plan = decide(server.slices, [devices("a")], POOL)
    assert (len(plan.delete), len(plan.update), len(plan.create)) == (1, 0, 1)
    server.apply(plan)
    assert server.generations == [(2, 1)]


def test_leftovers_of_an_older_generation_and_doubles_go() -> None:
    """As a writer leaves them that died halfway."""
    server = Server(devices("a"))
    old, double = copy.deepcopy(server.slices[0]), copy.deepcopy(server.slices[0])
    old["spec"]["pool"]["generation"] = 0
    double["metadata"]["name"] += "x"
    server.slices += [old, double]
    plan = decide(server.slices, [devices("a")], POOL)
    assert plan == SlicePlan(delete=(old, double))


def test_a_taint_keeps_its_time_when_its_neighbour_changes() -> None:
    """The server would take the time of the update for a taint without one."""
    taint = {"key": "k", "effect": "NoSchedule"}
    server = Server([*devices("a", taints=[taint]), *devices("b")])
    server.slices[0]["spec"]["devices"][0]["taints"][0]["timeAdded"] = "then"
    wanted = [*devices("a", taints=[taint]), *devices("b", taints=[taint])]
    (update,) = decide(server.slices, [wanted], POOL).update
    assert [each["taints"] for each in update["spec"]["devices"]] == [
        [{**taint, "timeAdded": "then"}],
        [taint],
    ]


def test_what_the_server_made_of_a_slice_is_taken_as_it_is() -> None:
    """A dropped field is told, and is no reason to write again; new input is."""
    adopted = Adopted()
    wanted = devices("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    (sent,) = decide([], [wanted], POOL).create
    server = Server(devices("a"))
    assert adopted.note(sent, server.slices[0]) == {"taints"}
    assert decide(server.slices, [wanted], POOL, adopted).is_empty
    assert not decide(server.slices, [devices("b")], POOL, adopted).is_empty


def test_a_quantity_that_the_server_writes_differently_is_the_same() -> None:
    """1024Mi becomes 1Gi: nothing was dropped."""
    adopted = Adopted()
    wanted = devices("a", capacity={"memory": {"value": "1024Mi"}})
    (sent,) = decide([], [wanted], POOL).create
    server = Server(devices("a", capacity={"memory": {"value": "1Gi"}}))
    assert adopted.note(sent, server.slices[0]) == frozenset()
    assert decide(server.slices, [wanted], POOL, adopted).is_empty
