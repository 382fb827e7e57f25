"""`explain pod` and `explain claim`: the first line is the cause of a planted fault.

Every fault and every healthy situation goes the whole way: objects on the stand-in for an API
server, the command line, HTTP, the printed line and the exit code.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from kubedevices.dra import api_client
from kubedevices.errors import UsageError
from kubedevices.explain.in_cluster import read_objects
from kubedevices.explain.in_cluster.device_reason import UNKNOWN_MATCHES
from kubedevices.host import terminal
from kubedevices.testing.api_server import HANG_UP, SILENCE, ApiFault
from kubedevices.testing.api_server.http import ApiRequest
from kubedevices.values.selectors import Selector
from tests.command_line import CommandLine
from tests.explain import planted_faults as plant
from tests.explain.cluster_rig import DRIVER, LONG_AGO, Ask, SmallCluster, gpu, named

NIC = "example.com/nic"
GPU = "request gpu of claim default/train-gpu"
HELD = "held by pod other/bert through claim other/bert-gpu"
CANNOT = "but the pod cannot run there"
BOTH = "repair the device, or let the request tolerate the taint; or end a pod that holds one"
ZONE = "the pod's nodeSelector wants zone=2, it has 1"

FAULTS: dict[plant.Planted, str] = {
    plant.wrong_model: (
        f"no device of 4 matches {GPU}: "
        f'`device.attributes["{DRIVER}"].model == "H100"` is false: model is "A100"'
    ),
    plant.missing_attribute: (
        f'{GPU}: the selector `device.attributes["{DRIVER}"].memory == "80Gi"` fails: no such '
        "key: memory; a scheduler then gives up the claim"
    ),
    plant.attribute_missing_on_one_node: (
        f'{GPU}: the selector `device.attributes["{DRIVER}"].memory == "80Gi"` fails: no such '
        "key: memory; a scheduler then gives up the claim"
    ),
    plant.all_held: f"no device is free for {GPU}: all 4 that match are held",
    plant.only_match_held: f"no device is free for {GPU}: gpu-0 alone matches: {HELD}",
    plant.all_tainted: (
        f"no device is free for {GPU}: all 2 that match are tainted example.com/ecc=lost:NoSchedule"
    ),
    plant.held_and_tainted: (
        f"no device is free for {GPU}: of 2 that match, 1 is tainted hot:NoExecute, 1 is held"
    ),
    plant.too_many: (
        f"{GPU} wants 3 devices of one node, the most that are free are 2, on node2 (of 4 that "
        "match, 1 is held)"
    ),
    plant.incomplete_pool: (
        f"no device is free for {GPU}: gpu-0 alone matches: the pool {DRIVER}/node1 is "
        "incomplete: 1 of 2 slices of generation 4"
    ),
    plant.no_slices: "no ResourceSlice exists: no DRA driver has published a device",
    plant.only_another_driver: (
        f'no device of 1 matches {GPU}: `device.driver == "{DRIVER}"` is false: device.driver is '
        '"nic.example.com"'
    ),
    plant.driver_not_on_the_pods_node: (
        f"no ResourceSlice has a device for node node2 ({GPU}); known: 1 slice for another node; "
        f"node node1 has the devices, {CANNOT}: {ZONE}"
    ),
    plant.devices_where_the_pod_cannot_run: (
        f"node node1 has the devices, {CANNOT}: the pod does not tolerate the taint "
        f"gpu=yes:NoSchedule; no ResourceSlice has a device for node node2 ({GPU}); known: 1 "
        "slice for another node"
    ),
    plant.slices_for_no_node: (
        f"no ResourceSlice has a device for any of the nodes node1, node2 ({GPU}); known: 1 slice "
        "with a nodeSelector that does not match"
    ),
    plant.devices_for_another_node: (
        f"no ResourceSlice has a device for any of the nodes node1, node2 ({GPU}); known: 1 slice "
        "with devices for other nodes"
    ),
    plant.requests_on_different_nodes: (
        "no node has the devices of all requests: each has those of some"
    ),
    plant.no_alternative: (
        "no device is free for request gpu/small of claim default/train-gpu: gpu-0 alone matches: "
        f"{HELD}"
    ),
    plant.invalid_pool: (
        f"no device is free for {GPU}: gpu-0 alone matches: the pool {DRIVER}/node1 is currently "
        "invalid: duplicate device name gpu-0"
    ),
    plant.held_for_nobody: (
        f"no device is free for {GPU}: gpu-0 alone matches: held by the claim other/bert-gpu, "
        "which no pod uses"
    ),
    plant.all_wanted_one_held: (
        f"{GPU} wants all devices that match, and of 2 that match, 1 is held"
    ),
    plant.all_wanted_pool_incomplete: (
        "on node node1, request gpu: asks for all devices, but the pool nic.example.com/nics is "
        "currently being updated"
    ),
    plant.all_wanted_counters_of_another_node: (
        f"on node node1, request gpu: asks for all devices, but the pool {DRIVER}/node2 is "
        "currently being updated"
    ),
    plant.cordoned: f"node node1 has the devices, {CANNOT}: the node is cordoned",
    plant.no_class: f"the DeviceClass {DRIVER} does not exist ({GPU})",
    plant.misspelt_class: (
        f"the DeviceClass gpus.example.com does not exist, did you mean '{DRIVER}'? ({GPU})"
    ),
    plant.no_claim: "the claim default/train-gpu does not exist",
    plant.no_template: "the ResourceClaimTemplate default/one-gpu does not exist",
    plant.template_without_claim: (
        "no claim was made from the template default/one-gpu yet: the controller manager makes "
        "it within seconds"
    ),
    plant.templates_forbidden: "no claim was made from the template default/one-gpu",
    plant.claim_ends: "the claim default/train-gpu is being deleted",
    plant.capacity_too_large: (
        f"no device is free for {GPU}: gpu-0 alone matches: capacity memory: 100Gi wanted, it "
        "has 80Gi"
    ),
    plant.capacity_used: (
        f"no device is free for {GPU}: gpu-0 alone matches: too little capacity is left: memory: "
        f"40Gi wanted; the rest is {HELD}"
    ),
    plant.counters_used: (
        f"no device is free for {GPU}: whole alone matches: counter memory of card: needs 40Gi, "
        "20Gi of 40Gi left beside half"
    ),
    plant.no_match_between: (
        f"on node node1, no 2 free devices have the same {DRIVER}/numa: 1 with 0, 1 with 1"
    ),
    plant.two_claims_one_device: (
        "no node has the devices of all claims of the pod: default/train-gpu, default/more-gpu"
    ),
    plant.claim_of_another_node: f"the pod can run on no node: {ZONE}, and 1 other reason",
    plant.gated: (
        "the pod has the scheduling gate example.com/quota: nobody schedules it before the gate "
        "is removed"
    ),
    plant.no_cpu: (
        "the cause is not a device (node node1 has its devices free); the scheduler says: 0/2 "
        "nodes are available: 2 Insufficient cpu."
    ),
    plant.too_little_cpu: (
        f"node node1 has the devices, {CANNOT}: too little cpu: the pod asks for 2, 1500m of 4 left"
    ),
    plant.full_node: (
        f"node node1 has the devices, {CANNOT}: the node is full: it has 1 pods, the most that "
        f"it may; no ResourceSlice has a device for node node2 ({GPU}); known: 1 slice for "
        "another node"
    ),
    plant.wrong_hostname: (
        "no node is called nod1, which the pod's nodeSelector wants, did you mean 'node1'?"
    ),
    plant.claim_of_somebody_else: (
        "the claim default/train-gpu was not made for this pod, but for Pod other"
    ),
    plant.no_scheduler: (
        "no scheduler has looked at the pod since its creation: mine does not run (node node1 has "
        "its devices free)"
    ),
    plant.incomplete_pool_without_devices: (
        f"no device is free for {GPU}: the pool {DRIVER}/node1 is incomplete: 1 of 2 slices of "
        "generation 3"
    ),
    plant.held_for_pods_that_are_gone: (
        f"no device is free for {GPU}: all 4 that match are held, and left behind by their pods"
    ),
    plant.held_for_a_pod_that_does_not_end: (
        f"no device is free for {GPU}: gpu-0 alone matches: held by pod other/bert (which does not "
        "end) through claim other/bert-gpu"
    ),
    plant.no_two_differ: (f"on node node1, no 2 free devices differ in {DRIVER}/switch: 2 with 7"),
    plant.bound_to_no_node: (
        "the pod is bound to node node3, which does not exist, did you mean 'node2'?"
    ),
    plant.bound_without_scheduler: (
        "the pod is bound to node node1, but its claim default/train-gpu has no devices: no "
        "scheduler chose the node"
    ),
    plant.silent_kubelet: (
        "node node1 is not ready since 2020-01-01T00:00:00Z: Kubelet stopped posting node status."
    ),
    plant.ends_on_a_silent_node: (
        "node node1 is not ready since 2020-01-01T00:00:00Z: Kubelet stopped posting node status."
    ),
    plant.ends_without_its_driver: (
        f"the pod does not end: the driver {DRIVER} has no slice for node node1, so it does not "
        "run there, and its claims cannot be unprepared"
    ),
    plant.kept_by_a_finalizer: (
        "the pod has ended, and is kept by the finalizer example.com/backup"
    ),
    plant.containers_do_not_stop: (
        f"the pod should have ended at {LONG_AGO}: its containers do not stop"
    ),
    plant.used_or_unhealthy: (
        f"all {NIC} of node1 are used: by pod default/a (3) (1 is unhealthy)"
    ),
    plant.no_plugin_on_the_only_node: (
        f"no device plugin offers {NIC} on node node2; node node1 has 3 {NIC} free, {CANNOT}: the "
        "node is cordoned"
    ),
    plant.driver_away_from_the_node: (
        f"{DRIVER}/node1/gpu-0 of node node1 does not exist any more: its driver has no slice, so "
        "the driver does not run there, or has lost the device"
    ),
    plant.prepare_fails: (
        r"FailedPrepareDynamicResources: prepare: the firmware is \x1b[31mbroken\nok fine"
    ),
    plant.refused_by_the_kubelet: "the pod has failed: UnexpectedAdmissionError: no devices",
    plant.unhealthy_while_it_runs: (
        "the pod runs on node node1, but has devices that are not healthy: nic-0 of "
        f"{NIC} (Unhealthy)"
    ),
    plant.missing_pod: "it does not exist, did you mean 'trainer'?",
    plant.nobody_offers: (
        f"no node offers {NIC}, and no DeviceClass has this name; did you mean example.com/nics?"
    ),
    plant.plugin_away: f"the device plugin of {NIC} is away: node node1 has capacity 0",
    plant.all_unhealthy: f"all devices of {NIC} are unhealthy: 0 of 4 are allocatable",
    plant.too_large: (
        f"the pod asks for 4 {NIC} of one node, and no node has more than 3 (1 is unhealthy)"
    ),
    plant.all_used: f"all {NIC} of node1 are used: by pod default/a (2), pod default/b (1)",
    plant.free_where_the_pod_cannot_run: (
        f"no device plugin offers {NIC} on node node2; node node1 has 3 {NIC} free, {CANNOT}: "
        f"{ZONE}"
    ),
    plant.class_with_the_name_is_used_up: (
        f"no device is free for {NIC} (DeviceClass {DRIVER}): all 4 that match are held"
    ),
}
FAULTS_OF_CLAIMS: dict[plant.Planted, str] = {
    plant.all_held: FAULTS[plant.all_held],
    plant.no_class: FAULTS[plant.no_class],
    plant.no_claim: "it does not exist",
    plant.driver_away_from_the_node: FAULTS[plant.driver_away_from_the_node],
    plant.two_holders: (
        f"{DRIVER}/node1/gpu-0 has 2 holders: pod default/train through claim default/copy; pod "
        "default/train through claim default/train-gpu"
    ),
    plant.reserved_for_nobody: (
        "the claim default/train-gpu is reserved for pod default/train, which does not exist: "
        "its devices stay held"
    ),
}


def name_of(fault: plant.Planted) -> str:
    return fault.__name__


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
async def test_the_first_line_is_the_cause(
    fault: plant.Planted, cluster: SmallCluster, explain: Ask
) -> None:
    """Of a pod that waits, does not start or has failed; the exit code is 1."""
    fault(cluster)
    shown = (await explain("pod", "train", code=1)).out
    assert shown.splitlines()[0] == f"problem  pod default/train: {FAULTS[fault]}"


@pytest.mark.parametrize("fault", FAULTS_OF_CLAIMS, ids=name_of)
async def test_the_first_line_about_a_claim_is_the_cause(
    fault: plant.Planted, cluster: SmallCluster, explain: Ask
) -> None:
    """That waits, or whose devices somebody else has too."""
    fault(cluster)
    first = (await explain("claim", "default/train-gpu", code=1)).lines[0]
    assert first == f"problem  claim default/train-gpu: {FAULTS_OF_CLAIMS[fault]}"


# ---------------------------------------------------------------- healthy situations


def just_created(_: SmallCluster) -> None:
    pass


def runs(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.pod("train", claims=["train-gpu"], node="node1")


def starts(c: SmallCluster) -> None:
    runs(c)
    c.pod("train", claims=["train-gpu"], node="node1", status={"phase": "Pending"})


def starts_after_a_failure(c: SmallCluster) -> None:
    plant.prepare_fails(c)
    event = {"metadata": {"name": "later", "namespace": "default"}, "type": "Normal"}
    event["involvedObject"] = {"kind": "Pod", "name": "train", "uid": "train-uid"}
    c.put("events", event | {"reason": "Pulling", "lastTimestamp": "2026-01-09T00:00:00Z"})


def runs_while_its_driver_is_away(c: SmallCluster) -> None:
    runs(c)
    plant.no_slices(c)


def runs_with_tainted_device(c: SmallCluster) -> None:
    runs(c)
    c.publish("node1", gpu("gpu-0", taints=[{"key": "bad", "effect": "NoSchedule"}]))


def ended(c: SmallCluster) -> None:
    c.delete("resourceclaims", "train-gpu")
    c.pod("train", claims=["train-gpu"], node="node1", status={"phase": "Succeeded"})


def needs_nothing(c: SmallCluster) -> None:
    c.pod("train")


def has_a_free_nic(c: SmallCluster) -> None:
    c.offer("node2", NIC, 2)
    c.pod("old", node="node2", limits={NIC: "2"}, status={"phase": "Failed"})
    c.pod("other", node="node2", limits={NIC: "1"})
    c.pod("train", limits={NIC: "1"})


def tolerates_all(c: SmallCluster) -> None:
    plant.all_tainted(c)
    c.claim("train-gpu", c.request(tolerations=[{"operator": "Exists"}]))


def shares_a_device(c: SmallCluster) -> None:
    plant.capacity_used(c)
    c.claim("train-gpu", c.request(capacity={"requests": {"memory": "20Gi"}}))


def watches_a_held_device(c: SmallCluster) -> None:
    plant.all_held(c)
    c.claim("train-gpu", c.request(adminAccess=True))


def has_a_second_choice(c: SmallCluster) -> None:
    first, second = (
        c.request(term, name=name)["exactly"] | {"name": name}
        for name, term in (("big", plant.MODEL), ("any", f'device.driver == "{DRIVER}"'))
    )
    c.claim("train-gpu", {"name": "gpu", "firstAvailable": [first, second]})


def old_generation(c: SmallCluster) -> None:
    pool = {"name": "node1", "generation": 2, "resourceSliceCount": 1}
    made = {"driver": DRIVER, "pool": pool, "nodeName": "node1", "devices": [gpu("gpu-0")]}
    c.put("resourceslices", named("newer", spec=made))


def foreign_driver_is_writing(c: SmallCluster) -> None:
    pool = {"name": "node1", "generation": 1, "resourceSliceCount": 3}
    c.publish("node1", {"name": "nic-0"}, driver="nic.example.com", pool=pool)


HEALTHY: dict[plant.Planted, str] = {
    just_created: "the pod waits for the scheduler; node node1 has its devices free",
    runs: f"the pod runs on node node1 with {DRIVER}/node1/gpu-0",
    starts: "the pod is on node node1 and is starting",
    starts_after_a_failure: "the pod is on node node1 and is starting",
    runs_while_its_driver_is_away: f"the pod runs on node node1 with {DRIVER}/node1/gpu-0",
    runs_with_tainted_device: f"the pod runs on node node1 with {DRIVER}/node1/gpu-0",
    ended: "the pod has ended (Succeeded) and holds no device",
    needs_nothing: "the pod waits for the scheduler; no device stops it",
    has_a_free_nic: "the pod waits for the scheduler; no device stops it",
    tolerates_all: "the pod waits for the scheduler; node node1 has its devices free",
    shares_a_device: "the pod waits for the scheduler; node node1 has its devices free",
    watches_a_held_device: "the pod waits for the scheduler; node node1 has its devices free",
    has_a_second_choice: "the pod waits for the scheduler; node node1 has its devices free",
    old_generation: "the pod waits for the scheduler; node node1 has its devices free",
    foreign_driver_is_writing: "the pod waits for the scheduler; node node1 has its devices free",
}


@pytest.mark.parametrize("situation", HEALTHY, ids=name_of)
async def test_a_healthy_pod_is_no_problem(
    situation: plant.Planted, cluster: SmallCluster, explain: Ask
) -> None:
    """The exit code is 0, and the line says how far the pod is."""
    situation(cluster)
    assert (await explain("pod", "train")).lines == [
        f"ok       pod default/train: {HEALTHY[situation]}"
    ]


async def test_a_healthy_claim_is_no_problem(cluster: SmallCluster, explain: Ask) -> None:
    """That no pod uses yet, that a pod waits with, that a pod has."""
    cluster.delete("pods", "train")
    unused = await explain("claim", "train-gpu")
    cluster.pod("train", claims=["train-gpu"])
    waits = await explain("claim", "train-gpu")
    runs(cluster)
    used = await explain("claim", "train-gpu")
    about = "ok       claim default/train-gpu: "
    assert [*unused.lines, *waits.lines, *used.lines] == [
        f"{about}no pod uses the claim yet; node node1 has its devices free",
        f"{about}the pod waits for the scheduler; node node1 has its devices free",
        f"{about}the claim has {DRIVER}/node1/gpu-0, for pod default/train",
    ]


# ---------------------------------------------------------------- what follows the first line


async def test_each_device_and_node_has_a_reason(cluster: SmallCluster, explain: Ask) -> None:
    """The nearest to success first; then what to do, and a command."""
    plant.held_and_tainted(cluster)
    cluster.publish("node2", gpu("gpu-0", "V100"))
    model = f'device.attributes["{DRIVER}"].model'
    cluster.claim("train-gpu", cluster.request("true", f'{model} == "A100"'))
    cluster.put("nodes", {**cluster.get("nodes", "node2"), "spec": {"unschedulable": True}})
    cluster.put("nodes", named("node3"))
    cluster.publish("node3", gpu("gpu-0", "L4"))
    assert (await explain("pod", "default/train", code=1)).lines[1:] == [
        "",
        f"  {DRIVER}/node1/gpu-1  taint hot:NoExecute, which the request does not tolerate",
        f"  {DRIVER}/node1/gpu-0  {HELD}",
        f'  {DRIVER}/node3/gpu-0  `{model} == "A100"` is false: model is "L4"',
        "  node node2                   the node is cordoned",
        "",
        f"→ {BOTH}",
        "$ kubectl get resourceslices -o yaml",
    ]


async def test_many_devices_are_counted(cluster: SmallCluster, explain: Ask) -> None:
    """Of those with the same reason, five are shown."""
    plant.wrong_model(cluster)
    cluster.publish("node1", *(gpu(f"gpu-{n}") for n in range(100)))
    shown = (await explain("pod", "train", code=1)).lines
    assert sum("model is" in line for line in shown[1:]) == 5
    assert any(line.strip() == "and 97 more devices for the same reason" for line in shown)


async def test_programs_get_the_same_answer(cluster: SmallCluster, explain: Ask) -> None:
    """The keys are public."""
    plant.only_match_held(cluster)
    found = (await explain("pod", "train", "-o", "json", code=1)).data
    keys = "subject result cause evidence advice command notes unread"
    assert [*found] == keys.split()
    assert (found["subject"], found["result"]) == ("pod default/train", "problem")
    assert found["cause"] == FAULTS[plant.only_match_held]
    assert found["evidence"][0] == {
        "kind": "HELD",
        "about": f"{DRIVER}/node1/gpu-0",
        "reason": HELD,
        "thing": "device",
    }


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (plant.all_tainted, "pod train"),
        (plant.driver_away_from_the_node, "pod train"),
        (plant.ends_without_its_driver, "pod train"),
        (plant.refused_by_the_kubelet, "pod train"),
        (plant.unhealthy_while_it_runs, "pod train"),
        (plant.partly_broken, "--kubeconfig ~/.kube/config"),
        (plant.driver_away_from_the_node, "node node1"),
    ],
)
async def test_the_page_shows_what_is_printed(
    fault: plant.Planted, words: str, cluster: SmallCluster, explain: Ask
) -> None:
    """The examples of the page on troubles are the output for planted faults."""
    fault(cluster)
    shown = await explain(*words.split()[: words.count("--") * -2 or None], code=1)
    page = (Path(__file__).parents[2] / "docs/troubleshoot.md").read_text()
    assert f"```text\n$ kubedevices explain {words}\n{shown.out}```" in page


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize("plural", ["resourceslices", "resourceclaims", "pods"])
async def test_without_the_decisive_right_there_is_no_answer(
    plural: str, cluster: SmallCluster, explain: Ask
) -> None:
    """Exit code 3, and the rule that is missing."""
    cluster.forbid(plural)
    shown = (await explain("pod", "train", code=3)).out
    assert shown.startswith("unknown  pod default/train: ")
    group = "" if plural == "pods" else "resource.k8s.io"
    rule = f'{{apiGroups: ["{group}"], resources: [{plural}], verbs: [list]}}'
    assert f"  not read: {plural}: you need the RBAC rule {rule}" in shown.splitlines()


async def test_without_nodes_and_templates_the_rest_works(
    cluster: SmallCluster, explain: Ask
) -> None:
    """The nodes are those that slices name."""
    plant.only_match_held(cluster)
    cluster.forbid("nodes", "resourceclaimtemplates", "events")
    shown = (await explain("pod", "train", code=1)).lines
    assert shown[0] == f"problem  pod default/train: {FAULTS[plant.only_match_held]}"
    assert sum("not read: " in line for line in shown) == 3


async def test_rights_in_one_namespace_are_used(cluster: SmallCluster, explain: Ask) -> None:
    """But who holds devices elsewhere is not seen, and the answer says so."""
    cluster.forbid("pods", "resourceclaims", only_wide=True)
    out = (await explain("pod", "train")).out
    notes = [line for line in out.splitlines() if "only those" in line]
    assert [line.split(":")[0].strip() for line in notes] == [
        "only those pods of the namespace default were read",
        "only those resourceclaims of the namespace default were read",
    ]


async def test_without_the_runtime_of_cel_selectors_are_not_evaluated(
    cluster: SmallCluster, explain: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds without them is said; a free device is no answer then."""

    def refuse(_: str) -> Selector:
        raise UsageError("device selectors need CEL")

    plant.all_held(cluster)  # its class asks for the driver alone, which needs no CEL
    monkeypatch.setattr(Selector, "compiled", refuse)
    shown = (await explain("pod", "train", code=1)).out
    assert shown.startswith(f"problem  pod default/train: {FAULTS[plant.all_held]}\n")
    monkeypatch.undo()
    plant.wrong_model(cluster)
    monkeypatch.setattr(Selector, "compiled", refuse)
    for words in (["pod", "train"], ["claim", "train-gpu"], []):
        first, *others = (await explain(*words, code=3)).lines
        assert first.startswith("unknown  ")
        assert first.endswith(UNKNOWN_MATCHES)
        blind = "  selectors were not evaluated, for want of CEL: pip install cel-expr-python"
        assert blind in others


async def test_a_cluster_without_dra_is_named(cluster: SmallCluster, explain: Ask) -> None:
    """Extended resources are explained all the same."""

    def fault(request: ApiRequest) -> ApiFault | None:
        return ApiFault(404, "not found") if request.path.startswith("/apis/resource") else None

    plant.all_used(cluster)
    cluster.fault = fault
    shown = (await explain("pod", "train", code=1)).out
    assert shown.startswith(f"problem  pod default/train: {FAULTS[plant.all_used]}\n")
    gone = "the API server does not serve resource.k8s.io/v1"
    assert f"  not read: resourceslices: {gone}" in shown.splitlines()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (HANG_UP, "cannot be reached"),
        (SILENCE, "no answer in 0.2 s"),
        (ApiFault(404, "not found"), "what answers there has no /api/v1/"),
    ],
)
async def test_a_server_that_is_away_is_no_answer(
    fault: ApiFault, why: str, cluster: SmallCluster, explain: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3, within the deadline of a call."""
    monkeypatch.setattr(api_client.ApiClient.__init__, "__kwdefaults__", {"timeout": 0.2})
    cluster.fault = lambda _: fault
    assert why in (await explain("pod", "train", code=3)).err


async def test_lists_are_read_page_by_page(
    cluster: SmallCluster, explain: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that the server has forgotten meanwhile is read again."""
    monkeypatch.setattr(read_objects, "_PAGE", 1)
    forgotten = iter([ApiFault(410, "too old", "Expired")])

    def fault(request: ApiRequest) -> ApiFault | None:
        is_second = request.resource == "resourceslices" and "continue" in request.query
        return next(forgotten, None) if is_second else None

    plant.all_held(cluster)
    cluster.fault = fault
    shown = await explain("pod", "train", code=1)
    assert cluster.counts()["list", "resourceslices"] == 4
    assert shown.out.startswith(f"problem  pod default/train: {FAULTS[plant.all_held]}\n")


async def test_the_namespace_is_that_of_the_kubeconfig(
    tmp_path: Path, cli: CommandLine, cluster: SmallCluster
) -> None:
    """Unless the name has one."""
    cluster.hold("node1", "bert")
    config = json.loads(cluster.kubeconfig())
    config["contexts"][0]["context"]["namespace"] = "other"
    file = tmp_path / "other"
    file.write_text(json.dumps(config))
    for name, found in (("bert", "other/bert"), ("default/train", "default/train")):
        words = ("explain", "pod", name, "--kubeconfig", file)
        assert f"  pod {found}: " in (await asyncio.to_thread(cli, *words)).out


async def test_without_h11_the_message_names_the_extra(
    explain: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2: the user can install it."""
    monkeypatch.delitem(sys.modules, "kubedevices.dra.api_client")
    monkeypatch.setitem(sys.modules, "h11", None)
    err = (await explain("pod", "train", code=2)).err
    assert "needs h11: pip install 'kubedevices[dra]'" in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["pod"], "the name is missing: kubedevices explain pod NAME"),
        (["claim", "a/b/c"], "'a/b/c' is not [NAMESPACE/]NAME"),
        (["pod", "/b"], "'/b' is not [NAMESPACE/]NAME"),
        (["node", "a/b"], "'a/b' is not NAME"),
        (["deployment", "train"], "'deployment' is none of pod, claim, node: "),
    ],
    ids=str,
)
async def test_wrong_words_are_refused(
    words: list[str], problem: str, cluster: SmallCluster, explain: Ask
) -> None:
    """Exit code 2, before anybody is asked."""
    shown = await explain(*words, code=2)
    assert not cluster.requests
    assert problem in shown.err


@pytest.mark.parametrize(
    "words", [["pod/train"], ["pods", "train"], ["po", "train"], ["pod", "-o", "table", "train"]]
)
async def test_words_are_read_as_kubectl_reads_them(
    words: list[str], cluster: SmallCluster, explain: Ask
) -> None:
    """Whatever people type about a pod."""
    plant.all_held(cluster)
    assert (await explain(*words, code=1)).out.startswith(
        f"problem  pod default/train: {FAULTS[plant.all_held]}"
    )


async def test_a_pod_of_another_namespace_is_named(explain: Ask) -> None:
    """The namespace is the usual mistake."""
    first = (await explain("pod", "train", "-n", "lab", code=1)).lines[0]
    assert first == "problem  pod lab/train: it does not exist; there is default/train"


@pytest.mark.parametrize("width", [60, 80])
async def test_a_terminal_gets_lines_of_its_width(
    width: int, cluster: SmallCluster, explain: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only names that are longer, and commands to paste, are not broken."""
    monkeypatch.setattr(terminal, "wrap_width", lambda: width)
    plant.held_and_tainted(cluster)
    shown = (await explain("pod", "train", code=1)).out
    assert all(len(line) <= width for line in shown.splitlines() if not line.startswith("$"))
    assert "tolerate" in shown
