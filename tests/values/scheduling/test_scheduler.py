"""The stand-in for a scheduler: which devices a claim gets, and what it refuses.

The answers are those of the allocator of Kubernetes 1.36 for the same objects.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kubedevices.values.scheduling.scheduler import NotAllocatable, allocate

Object = dict[str, Any]
A, B = "a.example.com", "b.example.com"
NODE: Object = {"metadata": {"name": "node1", "labels": {"zone": "1"}}}
CLASSES: Mapping[str, Object] = {
    "any": {},
    "a": {
        "spec": {
            "selectors": [{"cel": {"expression": f'device.driver == "{A}"'}}],
            "config": [{"opaque": {"driver": A, "parameters": {"from": "class"}}}],
        }
    },
}
EIGHT_SHARES = {"memory": {"value": "8", "requestPolicy": {"default": "1"}}}


def device(name: str, **more: Any) -> Object:
    return {"name": name, **more}


def numbered(name: str, **numbers: int) -> Object:
    return device(name, attributes={key: {"int": number} for key, number in numbers.items()})


def shared(name: str, capacity: Object, **more: Any) -> Object:
    return device(name, allowMultipleAllocations=True, capacity=capacity, **more)


def a_slice(*devices: Object, driver: str = A, pool: str = "p", of: int = 1, **spec: Any) -> Object:
    elsewhere = {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & {*spec}
    where = {} if elsewhere else {"nodeName": "node1"}
    made = {
        "driver": driver,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": of},
        "devices": list(devices),
        **where,
        **spec,
    }
    return {"metadata": {"name": f"{driver}-{pool}-{len(devices)}"}, "spec": made}


def exactly(name: str = "r", **spec: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": "any", **spec}}


def claim(*requests: Object, **devices: Any) -> Object:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [*requests], **devices}}}


def allocated(
    wanted: Object, slices: Sequence[Object], held: Sequence[Object] = (), node: Object = NODE
) -> Object:
    return allocate(wanted, node=node, slices=slices, claims=held, classes=CLASSES)


def results(*args: Any, **more: Any) -> list[Object]:
    found: list[Object] = allocated(*args, **more)["devices"]["results"]
    return found


def names(*args: Any, **more: Any) -> list[str]:
    return [each["device"] for each in results(*args, **more)]


def holding(wanted: Object, slices: Sequence[Object], held: Sequence[Object] = ()) -> Object:
    """Return a claim with its allocation."""
    return {**wanted, "status": {"allocation": allocated(wanted, slices, held)}}


# ---------------------------------------------------------------- constraints


def test_match_attribute_goes_back_to_find_a_fitting_pair() -> None:
    """The first device has no partner, so the second and the third are taken."""
    slices = [a_slice(numbered("x", numa=0), numbered("y", numa=1), numbered("z", numa=1))]
    wanted = claim(exactly(count=2), constraints=[{"matchAttribute": f"{A}/numa"}])
    assert names(wanted, slices) == ["y", "z"]


def test_match_attribute_holds_between_drivers() -> None:
    """As for a GPU and a NIC of one root; the attribute has a standard domain."""
    root = "resource.kubernetes.io/pcieRoot"

    def on(name: str, bus: str) -> Object:
        return device(name, attributes={root: {"string": bus}})

    slices = [
        a_slice(on("gpu0", "pci0"), on("gpu1", "pci1")),
        a_slice(on("nic1", "pci1"), driver=B),
    ]
    cel = [{"cel": {"expression": f'device.driver == "{B}"'}}]
    nic = exactly("nic", selectors=cel)
    wanted = claim(exactly("gpu", deviceClassName="a"), nic, constraints=[{"matchAttribute": root}])
    assert names(wanted, slices) == ["gpu1", "nic1"]


@pytest.mark.parametrize(
    ("constraint", "problem"),
    [
        ({"matchAttribute": f"{A}/numa"}, rf"constraints \(matchAttribute {A}/numa\)"),
        ({"new": "x"}, "of no kind that is known"),
    ],
    ids=["absent", "unknown"],
)
def test_a_constraint_that_cannot_be_met_is_never_ignored(constraint: Object, problem: str) -> None:
    """The attribute is absent, also if the device is the only one; the kind is unknown."""
    with pytest.raises(NotAllocatable, match=problem):
        allocated(claim(exactly(), constraints=[constraint]), [a_slice(device("x"))])


def test_a_constraint_may_be_for_some_requests() -> None:
    """The request that it does not name is free."""
    slices = [a_slice(numbered("x", numa=0), numbered("y", numa=1), numbered("z", numa=0))]
    both = [exactly("one"), exactly("other")]
    constraint = {"matchAttribute": f"{A}/numa", "requests": ["one"]}
    assert names(claim(*both, constraints=[constraint]), slices) == ["x", "y"]


def test_distinct_attribute_takes_devices_with_different_values() -> None:
    """The second device is skipped."""
    slices = [a_slice(numbered("x", numa=0), numbered("y", numa=0), numbered("z", numa=1))]
    wanted = claim(exactly(count=2), constraints=[{"distinctAttribute": f"{A}/numa"}])
    assert names(wanted, slices) == ["x", "z"]


# ---------------------------------------------------------------- capacities


def test_a_share_consumes_what_the_policy_says() -> None:
    """The value is rounded up to a valid one; the third claim gets nothing."""
    policy = {"default": "1", "validRange": {"min": "2", "step": "2"}}
    slices = [a_slice(shared("x", {"memory": {"value": "8", "requestPolicy": policy}}))]
    wanted = claim(exactly(capacity={"requests": {"memory": "3"}}))
    first = holding(wanted, slices)
    (result,) = results(wanted, slices)
    assert result["consumedCapacity"] == {"memory": "4"}
    second = holding(wanted, slices, [first])
    assert results(claim(exactly(capacity={"requests": {"memory": "1"}})), slices, [first])
    with pytest.raises(NotAllocatable, match="1 wanted, 0 free of 1 selected"):
        allocated(wanted, slices, [first, second])


def test_shares_have_different_ids() -> None:
    """In one claim and in several."""
    slices = [a_slice(shared("x", EIGHT_SHARES))]
    first = holding(claim(exactly("a"), exactly("b")), slices)
    ids = [each["shareID"] for each in first["status"]["allocation"]["devices"]["results"]]
    ids += [each["shareID"] for each in results(claim(exactly()), slices, [first])]
    assert len({*ids}) == 3


def test_one_request_gets_one_share_of_a_device() -> None:
    """Two devices are needed for a count of two."""
    with pytest.raises(NotAllocatable, match="2 wanted, 1 free"):
        allocated(claim(exactly(count=2)), [a_slice(shared("x", EIGHT_SHARES))])


def test_a_capacity_that_a_device_does_not_have_is_not_given() -> None:
    """A device of one claim may be asked for its capacity, too."""
    slices = [a_slice(device("x"), device("y", capacity={"memory": {"value": "8"}}), device("z"))]
    assert names(claim(exactly(capacity={"requests": {"memory": "8"}})), slices) == ["y"]
    with pytest.raises(NotAllocatable):
        allocated(claim(exactly(capacity={"requests": {"memory": "9"}})), slices)


# ---------------------------------------------------------------- modes of requests


def test_admin_access_needs_no_free_device() -> None:
    """But one request does not get a device twice."""
    slices = [a_slice(device("x"))]
    held = holding(claim(exactly()), slices)
    (result,) = results(claim(exactly(adminAccess=True)), slices, [held])
    assert result["adminAccess"] is True
    with pytest.raises(NotAllocatable):
        allocated(claim(exactly(adminAccess=True, count=2)), slices, [held])


def test_admin_access_holds_nothing() -> None:
    """The next claim gets the device."""
    slices = [a_slice(device("x"))]
    held = holding(claim(exactly(adminAccess=True)), slices)
    assert names(claim(exactly()), slices, [held]) == ["x"]


def test_all_wants_each_device_of_each_driver() -> None:
    """One that is held stops the claim."""
    slices = [a_slice(device("x"), device("y")), a_slice(device("z"), driver=B)]
    everything = claim(exactly(allocationMode="All"))
    assert names(everything, slices) == ["x", "y", "z"]
    held = holding(claim(exactly()), slices)
    with pytest.raises(NotAllocatable, match="2 of 3 devices are free"):
        allocated(everything, slices, [held])


def test_all_waits_for_an_incomplete_pool() -> None:
    """Another claim does not."""
    slices = [a_slice(device("x")), a_slice(device("z"), driver=B, of=2)]
    with pytest.raises(NotAllocatable, match=f"the pool {B}/p is currently being updated"):
        allocated(claim(exactly(allocationMode="All")), slices)
    assert names(claim(exactly()), slices) == ["x"]


def test_an_invalid_pool_is_not_used() -> None:
    """Two devices of one name; a counter that does not exist."""
    uses = [{"counterSet": "none", "counters": {"m": {"value": "1"}}}]
    for devices in ([device("x"), device("x")], [device("x", consumesCounters=uses)]):
        with pytest.raises(NotAllocatable, match="currently invalid"):
            allocated(claim(exactly()), [a_slice(*devices)])


def test_first_available_takes_the_first_alternative_that_fits() -> None:
    """Also if only a later request shows that the first does not."""
    slices = [a_slice(numbered("x", numa=0), numbered("y", numa=1))]
    two = {"name": "two", "deviceClassName": "any", "count": 2}
    one = {"name": "one", "deviceClassName": "any"}
    wanted = claim({"name": "r", "firstAvailable": [two, one]}, exactly("other"))
    assert [each["request"] for each in results(wanted, slices)] == ["r/one", "other"]


def test_the_configuration_is_that_of_the_chosen_alternative() -> None:
    """That of a class comes once, and that of another alternative not at all."""
    slices = [a_slice(device("x"))]
    two = {"name": "two", "deviceClassName": "a", "count": 2}
    one = {"name": "one", "deviceClassName": "a"}
    opaque = {"opaque": {"driver": A, "parameters": {}}}
    config = [{"requests": ["r/two"], **opaque}, {"requests": ["r"], **opaque}]
    made = allocated(claim({"name": "r", "firstAvailable": [two, one]}, config=config), slices)
    found = [(each["source"], each.get("requests")) for each in made["devices"]["config"]]
    assert found == [("FromClass", ["r/one"]), ("FromClaim", ["r"])]


def test_a_claim_has_at_most_32_devices() -> None:
    """More are refused with the number."""
    slices = [a_slice(*(device(f"d{i}") for i in range(40)))]
    assert len(results(claim(exactly(count=32)), slices)) == 32
    with pytest.raises(NotAllocatable, match="at most 32"):
        allocated(claim(exactly(count=33)), slices)


# ---------------------------------------------------------------- taints


@pytest.mark.parametrize(
    ("effect", "tolerations", "is_free"),
    [
        ("NoSchedule", [], False),
        ("NoSchedule", [{"operator": "Exists"}], True),
        ("NoSchedule", [{"key": "bad", "operator": "Equal", "value": "yes"}], True),
        ("NoSchedule", [{"key": "bad", "value": "no"}], False),
        ("NoSchedule", [{"key": "bad", "operator": "Exists", "effect": "NoExecute"}], False),
        ("None", [], True),
    ],
    ids=str,
)
def test_a_taint_needs_a_toleration(effect: str, tolerations: list[Object], is_free: bool) -> None:
    """The result has the tolerations. A taint with the effect `None` only informs."""
    wanted = claim(exactly(tolerations=tolerations))
    slices = [a_slice(device("x", taints=[{"key": "bad", "value": "yes", "effect": effect}]))]
    if is_free:
        assert results(wanted, slices)[0].get("tolerations", []) == tolerations
    else:
        with pytest.raises(NotAllocatable):
            allocated(wanted, slices)


# ---------------------------------------------------------------- counters


def counted(name: str, memory: int) -> Object:
    uses = [{"counterSet": "gpu", "counters": {"memory": {"value": str(memory)}}}]
    return device(name, consumesCounters=uses)


def partitions(*devices: Object, memory: int = 8) -> list[Object]:
    counters = [{"name": "gpu", "counters": {"memory": {"value": str(memory)}}}]
    return [a_slice(*devices, of=2), a_slice(of=2, sharedCounters=counters)]


def test_partitions_share_the_counters_of_their_pool() -> None:
    """The whole device and its half exclude each other."""
    slices = partitions(counted("whole", 8), counted("half0", 4), counted("half1", 4))
    held = holding(claim(exactly()), slices)
    with pytest.raises(NotAllocatable, match="0 free of 3 selected"):
        allocated(claim(exactly()), slices, [held])
    assert names(claim(exactly(count=2)), slices) == ["half0", "half1"]


def test_shares_of_a_partition_count_once() -> None:
    """A second share needs no counters."""
    half = {**counted("half", 4), **shared("half", EIGHT_SHARES)}
    slices = partitions(half, counted("other", 4), memory=4)
    held = holding(claim(exactly()), slices)
    assert names(claim(exactly()), slices, [held]) == ["half"]
    with pytest.raises(NotAllocatable):
        allocated(claim(exactly(count=2)), slices, [held])


# ---------------------------------------------------------------- nodes


@pytest.mark.parametrize(
    ("operator", "values", "is_here"),
    [
        ("In", ["1", "2"], True),
        ("In", ["2"], False),
        ("NotIn", ["2"], True),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
        ("Gt", ["0"], True),
        ("Lt", ["1"], False),
    ],
)
def test_a_slice_may_select_nodes_by_their_labels(
    operator: str, values: list[str] | None, is_here: bool
) -> None:
    """The allocation then has the same selector."""
    one = {"key": "zone", "operator": operator, **({"values": values} if values else {})}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
    slices = [a_slice(device("x"), nodeSelector=terms)]
    if is_here:
        assert allocated(claim(exactly()), slices)["nodeSelector"] == terms
    else:
        with pytest.raises(NotAllocatable, match="0 published"):
            allocated(claim(exactly()), slices)


def test_devices_may_select_their_node_themselves() -> None:
    """In one slice with others."""
    devices = [device("x", nodeName="node2"), device("y", nodeName="node1")]
    slices = [a_slice(*devices, perDeviceNodeSelection=True)]
    assert names(claim(exactly()), slices) == ["y"]


def test_devices_of_all_nodes_tie_a_claim_to_none() -> None:
    """The allocation has no node selector then."""
    assert "nodeSelector" not in allocated(claim(exactly()), [a_slice(device("x"), allNodes=True)])


# ---------------------------------------------------------------- order and refusals


def test_the_first_device_by_driver_pool_slice_and_list_is_taken() -> None:
    """As the scheduler tries them."""
    slices = [a_slice(device("z"), driver=B), a_slice(device("y"), pool="q"), a_slice(device("x"))]
    assert names(claim(exactly(count=3)), slices) == ["x", "y", "z"]


def test_a_selector_is_evaluated_only_for_devices_that_are_tried() -> None:
    """So its error for a later device does not show."""
    cel = [{"cel": {"expression": f'device.attributes["{A}"].numa == 1'}}]
    good, bad = numbered("x", numa=1), device("y")
    assert names(claim(exactly(selectors=cel)), [a_slice(good, bad)]) == ["x"]
    with pytest.raises(NotAllocatable, match="no such key: numa"):
        allocated(claim(exactly(selectors=cel)), [a_slice(bad, good)])


def test_binding_conditions_are_refused_with_a_message() -> None:
    """Nobody waits for them here; other devices are tried before."""
    waits = device("x", bindingConditions=["ready"])
    with pytest.raises(NotAllocatable, match="x has binding conditions"):
        allocated(claim(exactly()), [a_slice(waits)])
    slices = [a_slice(waits), a_slice(device("z"), driver=B)]
    assert names(claim(exactly()), slices) == ["z"]
