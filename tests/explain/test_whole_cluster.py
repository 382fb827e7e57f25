"""`explain --kubeconfig` about a whole cluster, a node, or one resource or driver."""

import pytest

from kubedevices.explain.in_cluster import judge_cluster
from kubedevices.testing.api_server import ApiFault
from kubedevices.testing.api_server.http import ApiRequest
from tests.explain import planted_faults as plant
from tests.explain.cluster_rig import DRIVER, LONG_AGO, Ask, SmallCluster, gpu
from tests.explain.test_planted_faults import FAULTS, ended, name_of, starts

NIC = plant.R
AWAY = "its device plugin is away from node"
NOT_READY = f"not ready since {LONG_AGO}: Kubelet stopped posting node status."


def two_holders(c: SmallCluster) -> None:
    plant.two_holders(c)
    c.pod("train", claims=["train-gpu"], node="node1")


def tainted(c: SmallCluster) -> None:
    c.publish("node1", gpu("gpu-0", taints=[{"key": "ecc", "effect": "NoExecute"}]))
    c.delete("pods", "train")


def two_devices_of_one_name(c: SmallCluster) -> None:
    plant.invalid_pool(c)
    c.delete("pods", "train")


def no_plugin_any_more(c: SmallCluster) -> None:
    c.offer("node1", NIC, 0)


def partly_unhealthy(c: SmallCluster) -> None:
    c.offer("node1", NIC, 4, 3)


def refused_pod(c: SmallCluster) -> None:
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"}
    c.pod("train", node="node1", limits={NIC: "1"}, status=failed)


def driver_away(c: SmallCluster) -> None:
    c.hold("node1", "bert")
    c.unpublish("node1")
    c.delete("pods", "train")


SLICES_GONE = f"driver {DRIVER}: has no slice for node node1, where pod other/bert has its devices"
WRONG: dict[plant.Planted, str] = {
    plant.all_held: (f"problem  cluster: pod default/train: {FAULTS[plant.all_held]}"),
    plant.all_used: (f"problem  cluster: pod default/train: {FAULTS[plant.all_used]}"),
    plant.prepare_fails: (f"problem  cluster: pod default/train: {FAULTS[plant.prepare_fails]}"),
    plant.unhealthy_while_it_runs: (
        f"problem  cluster: pod default/train: {FAULTS[plant.unhealthy_while_it_runs]}"
    ),
    plant.ends_without_its_driver: (
        f"problem  cluster: pod default/train: {FAULTS[plant.ends_without_its_driver]}"
    ),
    plant.silent_kubelet: (f"problem  cluster: node node1: {NOT_READY}"),
    plant.all_unhealthy: (
        f"problem  cluster: pod default/train: all devices of {NIC} are unhealthy: 0 of 4 are "
        "allocatable"
    ),
    two_holders: (
        f"problem  cluster: device {DRIVER}/node1/gpu-0: 2 holders: pod default/train through "
        "claim default/copy; pod default/train through claim default/train-gpu"
    ),
    two_devices_of_one_name: (
        f"problem  cluster: pool {DRIVER}/node1: currently invalid: duplicate device name gpu-0"
    ),
    tainted: (f"warning  cluster: driver {DRIVER}: node1/gpu-0 is tainted ecc:NoExecute"),
    no_plugin_any_more: (f"warning  cluster: resource {NIC}: {AWAY} node1: capacity 0"),
    partly_unhealthy: (f"warning  cluster: resource {NIC}: 1 of 4 on node node1 are unhealthy"),
    plant.reserved_for_nobody: (
        "warning  cluster: claim default/train-gpu: reserved for pod default/train, which does not "
        "exist: its devices stay held"
    ),
    refused_pod: (
        "warning  cluster: pod default/train: the pod has failed: UnexpectedAdmissionError: no "
        "devices"
    ),
    driver_away: (f"warning  cluster: {SLICES_GONE}"),
}


@pytest.mark.parametrize("fault", WRONG, ids=name_of)
async def test_the_first_line_is_the_worst(
    fault: plant.Planted, cluster: SmallCluster, explain: Ask
) -> None:
    """What may pass by itself is a warning, with exit code 0."""
    fault(cluster)
    shown = await explain(code=int(WRONG[fault].startswith("problem")))
    assert shown.lines[0] == WRONG[fault]


def plain(c: SmallCluster) -> None:
    c.delete("pods", "train")
    for node in ("node1", "node2"):
        c.unpublish(node)
        c.offer(node, NIC, 4)
    c.pod("uses", node="node1", limits={NIC: "4"})


def dra_only(c: SmallCluster) -> None:
    c.hold("node1", "bert")


def both(c: SmallCluster) -> None:
    dra_only(c)
    c.offer("node1", NIC, 4)
    c.pod("uses", node="node1", limits={NIC: "1"})


def split(c: SmallCluster) -> None:
    """The device plugin has some devices of a node, the driver the others."""
    dra_only(c)
    c.offer("node1", f"{DRIVER.replace('.', '-', 1)}/gpu", 2)


def a_new_pool_beside_the_old(c: SmallCluster) -> None:
    """A driver that is updated writes the next generation; the older slices go later."""
    dra_only(c)
    pool = {"name": "node1", "generation": 2, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "node1", "devices": [gpu("gpu-0")]}
    c.put("resourceslices", {"metadata": {"name": "newer"}, "spec": spec})


def pods_are_ending(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.pod("train", claims=["train-gpu"], node="node1", deleted="2999-01-01T00:00:00Z")


def foreign_drivers(c: SmallCluster) -> None:
    c.publish("node1", {"name": "nic-0"}, driver="nic.other.example")
    dra_only(c)


def nothing(c: SmallCluster) -> None:
    c.delete("pods", "train")
    c.delete("resourceclaims", "train-gpu")
    for node in ("node1", "node2"):
        c.unpublish(node)


OK = "ok       cluster: nothing is wrong; "
RIGHT: dict[plant.Planted, str] = {
    plain: f"devices: 8 {NIC}; 1 pod has devices",
    dra_only: f"devices: 4 {DRIVER}; 1 pod has devices",
    both: f"devices: 4 {NIC}, 4 {DRIVER}; 2 pods have devices",
    split: f"devices: 2 gpu-example.com/gpu, 4 {DRIVER}; 1 pod has devices",
    a_new_pool_beside_the_old: f"devices: 3 {DRIVER}; 1 pod has devices",
    starts: f"devices: 4 {DRIVER}; 0 pods have devices",
    ended: f"devices: 4 {DRIVER}; 0 pods have devices",
    pods_are_ending: f"devices: 4 {DRIVER}; 0 pods have devices",
    foreign_drivers: f"devices: 4 {DRIVER}, 1 nic.other.example; 1 pod has devices",
    nothing: "this cluster has no devices: no driver or plugin offers one",
}


@pytest.mark.parametrize("situation", RIGHT, ids=name_of)
async def test_a_healthy_cluster_is_no_problem(
    situation: plant.Planted, cluster: SmallCluster, explain: Ask
) -> None:
    """One line says how much there is; the same holds for its node."""
    situation(cluster)
    assert (await explain()).out == f"{OK}{RIGHT[situation]}\n"
    out = (await explain("node", "node1")).out
    assert out.startswith("ok       node node1: nothing is wrong; ")


async def test_without_any_right_nothing_is_said_to_be_right(
    cluster: SmallCluster, explain: Ask
) -> None:
    """Exit code 3, with the right that is missing."""
    cluster.fault = lambda _: ApiFault(403, "no")
    assert (await explain(code=3)).out.startswith("unknown  cluster: nodes cannot be read: ")


async def test_of_many_problems_each_has_a_line(cluster: SmallCluster, explain: Ask) -> None:
    """Problems before warnings; then what helps against the first."""
    plant.all_used(cluster)
    cluster.offer("node2", "example.com/fpga", 0)
    cluster.silence("node2")
    assert (await explain(code=1)).lines == [
        f"problem  cluster: node node2: {NOT_READY}",
        "",
        f"  pod default/train          {FAULTS[plant.all_used]}",
        f"  resource example.com/fpga  warning: {AWAY} node2: capacity 0",
        "",
        "→ until its kubelet answers, its devices cannot be used",
        "$ kubectl describe node node2",
    ]


async def test_a_node_is_judged_alone(cluster: SmallCluster, explain: Ask) -> None:
    """What is wrong elsewhere does not count; its own state stands without its name."""
    plant.silent_kubelet(cluster)
    cluster.offer("node2", NIC, 0)
    shown = (await explain("node", "node1", code=1)).lines
    assert shown[0] == f"problem  node node1: {NOT_READY}"
    assert [line.split("  ")[1] for line in shown if line.startswith("  ")] == ["pod default/train"]
    assert "its device plugin is away" in (await explain("node", "node2")).out
    first = (await explain("node", "nod1", code=1)).lines[0]
    assert first == "problem  node nod1: it does not exist, did you mean 'node1'?"


async def test_a_resource_or_a_driver_is_judged_alone(cluster: SmallCluster, explain: Ask) -> None:
    """Also by the name of its class; a name that nobody offers is a problem."""
    plant.all_held(cluster)
    cluster.offer("node1", NIC, 2)
    assert (await explain(NIC)).out == (
        f"ok       {NIC}: nothing is wrong; devices: 2 {NIC}; 0 pods have devices\n"
    )
    assert FAULTS[plant.all_held] in (await explain(DRIVER, code=1)).lines[0]
    first = (await explain("gpus.example.com", code=1)).lines[0]
    assert first == (
        f"problem  gpus.example.com: nobody in this cluster offers it, did you mean '{DRIVER}'?"
    )


async def test_of_many_pods_of_one_owner_one_is_explained(
    cluster: SmallCluster, explain: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of all owners a limited number; the others are counted."""
    monkeypatch.setattr(judge_cluster, "MOST_PODS", 3)
    plant.all_held(cluster)
    owner = [{"kind": "Job", "name": "j", "uid": "job-uid", "controller": True}]
    for number in range(4):
        cluster.pod(f"one-{number}", claims=["train-gpu"])
        pod = cluster.get("pods", f"one-{number}")
        cluster.put("pods", {**pod, "metadata": {**pod["metadata"], "ownerReferences": owner}})
        cluster.pod(f"other-{number}", claims=["train-gpu"])
    found = (await explain("-o", "json", code=1)).data
    assert len(found["evidence"]) == 3
    assert found["evidence"][-1]["reason"] == (
        "3 more pods of other owners wait too, and were not looked at"
    )


async def test_events_are_read_of_pods_that_are_stuck(cluster: SmallCluster, explain: Ask) -> None:
    """Not of those that run or wait for a node; without the right this is said."""

    def events() -> list[ApiRequest]:
        return [each for each in cluster.requests if "events" in each.path]

    cluster.hold("node2", "bert")
    await explain()
    assert not events()
    plant.prepare_fails(cluster)
    cluster.forbid("events")
    shown = await explain()
    assert len(events()) == 1
    assert "  not read: events: you need the RBAC rule" in shown.out
