"""What `explain` says of a node agrees with the allocator of the scheduler's rules.

The reasons of devices are a second way to the same decision: random small clusters show whether
both ways agree.
"""

import random
from typing import Any

import pytest

from kubedevices.explain.in_cluster.device_reason import DeviceJudge
from kubedevices.explain.in_cluster.judge_claim_on_node import fit
from kubedevices.explain.in_cluster.objects import ClusterObjects
from kubedevices.values.scheduling.scheduler import NotAllocatable, allocate
from tests.explain.cluster_rig import DRIVER, IS_OURS, gpu, named

Object = dict[str, Any]
NODE = named("node1")
OTHER = "nic.example.com"
COUNTED = {"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}
SHARED = {
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "10Gi"}}},
    "allowMultipleAllocations": True,
}


def a_slice(driver: str, *devices: Object, of: int = 1, number: int = 0, **spec: Any) -> Object:
    pool = {"name": "node1", "generation": 1, "resourceSliceCount": of}
    made = {"driver": driver, "pool": pool, "nodeName": "node1", "devices": [*devices], **spec}
    return named(f"{driver}-{number}", spec=made)


def random_device(chance: random.Random, number: int) -> Object:
    more: Object = {}
    if chance.random() < 0.2:
        more["taints"] = [{"key": "bad", "effect": chance.choice(["NoSchedule", "None"])}]
    kind = chance.random()
    if kind < 0.3:
        more |= SHARED
    elif kind < 0.5:
        more["consumesCounters"] = [COUNTED]
    return gpu(f"gpu-{number}", chance.choice(["A100", "H100"]), **more)


def random_request(chance: random.Random, name: str) -> Object:
    exactly: Object = {"deviceClassName": DRIVER}
    if chance.random() < 0.3:
        exactly["allocationMode"] = "All"
    else:
        exactly["count"] = chance.choice([1, 1, 2, 3])
    if chance.random() < 0.4:
        text = f'device.attributes["{DRIVER}"].model == "H100"'
        exactly["selectors"] = [{"cel": {"expression": text}}]
    if chance.random() < 0.2:
        exactly["tolerations"] = [{"operator": "Exists"}]
    if chance.random() < 0.2:
        exactly["adminAccess"] = True
    if chance.random() < 0.3:
        exactly["capacity"] = {"requests": {"memory": chance.choice(["30Gi", "70Gi", "90Gi"])}}
    return {"name": name, "exactly": exactly}


def a_claim(name: str, *requests: Object) -> Object:
    return named(
        name, metadata={"namespace": "default"}, spec={"devices": {"requests": [*requests]}}
    )


def random_cluster(chance: random.Random) -> ClusterObjects:
    devices = [random_device(chance, number) for number in range(chance.randint(0, 5))]
    counters = {"name": "card", "counters": {"memory": {"value": "80Gi"}}}
    is_missing = chance.random() < 0.15
    slices = [
        a_slice(DRIVER, *devices, of=3 if is_missing else 2),
        a_slice(DRIVER, number=1, sharedCounters=[counters]),
        a_slice(OTHER, {"name": "nic-0"}, of=chance.choice([1, 1, 1, 2])),
    ]
    classes = [named(DRIVER, spec={"selectors": [IS_OURS]})]
    claims: list[Object] = []
    for number in range(chance.randint(0, 3)):
        made = a_claim(f"old-{number}", random_request(chance, "gpu"))
        try:
            allocation = allocate(
                made, node=NODE, slices=slices, claims=claims, classes={DRIVER: classes[0]}
            )
        except NotAllocatable:
            continue
        claims.append({**made, "status": {"allocation": allocation}})
    return ClusterObjects(claims=claims, classes=classes, slices=slices, listed_nodes=[NODE])


@pytest.mark.parametrize("seed", range(20))
def test_what_lacks_devices_is_not_allocated(seed: int) -> None:
    """And what the allocator takes has enough; 50 claims for each seed."""
    chance, answers = random.Random(seed), set()
    for _ in range(50):
        cluster = random_cluster(chance)
        claim = a_claim("new", random_request(chance, "one"))
        found = fit(cluster, claim, NODE, DeviceJudge(cluster))
        try:
            allocate(
                claim,
                node=NODE,
                slices=cluster.slices,
                claims=cluster.claims,
                classes=cluster.class_of,
            )
            is_allocated = True
        except NotAllocatable:
            is_allocated = False
        if found.lacking:
            reasons = [(d.device, why) for d, why in found.requests[0][0].devices]
            assert not is_allocated, (claim["spec"], reasons)
        assert bool(found.allocation) == is_allocated
        answers.add((is_allocated, bool(found.lacking)))
    assert {(True, False), (False, True)} <= answers


def test_two_requests_compete_for_devices() -> None:
    """Each alone has enough; together they have not, and no request is said to lack devices."""
    cluster = ClusterObjects(
        classes=[named(DRIVER, spec={"selectors": [IS_OURS]})],
        slices=[a_slice(DRIVER, gpu("gpu-0"))],
        listed_nodes=[NODE],
    )
    requests = ({"name": name, "exactly": {"deviceClassName": DRIVER}} for name in ("a", "b"))
    found = fit(cluster, a_claim("new", *requests), NODE, DeviceJudge(cluster))
    assert (found.allocation, found.lacking) == (None, [])
    assert found.problem == "no combination of devices fits all requests"


def test_too_many_combinations_are_not_tried() -> None:
    """The allocator has no deadline: nobody waits for it."""
    cluster = ClusterObjects(
        classes=[named(DRIVER, spec={"selectors": [IS_OURS]})],
        slices=[a_slice(DRIVER, *(gpu(f"gpu-{n}") for n in range(40)))],
        listed_nodes=[NODE],
    )
    request = {"name": "a", "exactly": {"deviceClassName": DRIVER, "count": 16}}
    claim = a_claim("new", request)
    claim["spec"]["devices"]["constraints"] = [{"distinctAttribute": f"{DRIVER}/model"}]
    found = fit(cluster, claim, NODE, DeviceJudge(cluster))
    assert (found.allocation, found.is_tried) == (None, False)
