"""Faults that are planted into a small cluster: each is a function of the cluster."""

from collections.abc import Callable

from tests.explain.cluster_rig import DRIVER, LONG_AGO, SmallCluster, gpu

Planted = Callable[[SmallCluster], None]
MODEL = f'device.attributes["{DRIVER}"].model == "H100"'
R = "example.com/nic"


def wrong_model(c: SmallCluster) -> None:
    c.claim("train-gpu", c.request(f'device.driver == "{DRIVER}"', MODEL))


def missing_attribute(c: SmallCluster) -> None:
    c.claim("train-gpu", c.request(f'device.attributes["{DRIVER}"].memory == "80Gi"'))


def attribute_missing_on_one_node(c: SmallCluster) -> None:
    for number, node in enumerate(("node1", "node2")):
        memory = {"memory": {"string": "80Gi"}} if number == 0 else {}
        c.publish(node, gpu("gpu-0", attributes=memory))
    c.claim("train-gpu", c.request(f'device.attributes["{DRIVER}"].memory == "80Gi"'))


def all_held(c: SmallCluster) -> None:
    for node in ("node1", "node2"):
        for number in (1, 2):
            c.hold(node, f"{node}-user{number}")


def only_match_held(c: SmallCluster) -> None:
    c.publish("node1", gpu("gpu-0", "H100"), gpu("gpu-1"))
    c.hold("node1", "bert", c.request(MODEL))
    c.claim("train-gpu", c.request(MODEL))


def all_tainted(c: SmallCluster) -> None:
    taint = {"key": "example.com/ecc", "value": "lost", "effect": "NoSchedule"}
    for node in ("node1", "node2"):
        c.publish(node, gpu("gpu-0", taints=[taint]))


def held_and_tainted(c: SmallCluster) -> None:
    c.unpublish("node2")
    c.publish("node1", gpu("gpu-0"), gpu("gpu-1", taints=[{"key": "hot", "effect": "NoExecute"}]))
    c.hold("node1", "bert")


def too_many(c: SmallCluster) -> None:
    c.hold("node1", "bert")
    c.claim("train-gpu", c.request(count=3))


def incomplete_pool(c: SmallCluster) -> None:
    c.unpublish("node2")
    c.publish(
        "node1", gpu("gpu-0"), pool={"name": "node1", "generation": 4, "resourceSliceCount": 2}
    )


def no_slices(c: SmallCluster) -> None:
    c.unpublish("node1")
    c.unpublish("node2")


def only_another_driver(c: SmallCluster) -> None:
    no_slices(c)
    c.publish("node1", {"name": "nic-0"}, driver="nic.example.com")


def driver_not_on_the_pods_node(c: SmallCluster) -> None:
    c.unpublish("node2")
    c.pod("train", claims=["train-gpu"], nodeSelector={"zone": "2"})


def devices_where_the_pod_cannot_run(c: SmallCluster) -> None:
    c.unpublish("node2")
    node = c.get("nodes", "node1")
    node["spec"] = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
    c.put("nodes", node)


def slices_for_no_node(c: SmallCluster) -> None:
    c.unpublish("node2")
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["9"]}]}
    c.unpublish("node1")
    c.publish("node1", gpu("gpu-0"), nodeName=None, nodeSelector={"nodeSelectorTerms": [term]})


def devices_for_another_node(c: SmallCluster) -> None:
    no_slices(c)
    away = gpu("gpu-0", nodeName="node7")
    c.publish("node1", away, nodeName=None, perDeviceNodeSelection=True)


def requests_on_different_nodes(c: SmallCluster) -> None:
    c.publish("node1", gpu("gpu-0", "A100"))
    c.publish("node2", gpu("gpu-0", "H100"))
    a100 = f'device.attributes["{DRIVER}"].model == "A100"'
    c.claim("train-gpu", c.request(a100, name="a"), c.request(MODEL, name="b"))


def no_alternative(c: SmallCluster) -> None:
    c.unpublish("node2")
    c.publish("node1", gpu("gpu-0"))
    c.hold("node1", "bert")
    choices = [
        {"name": "big", **c.request(MODEL)["exactly"]},
        {"name": "small", **c.request()["exactly"]},
    ]
    c.claim("train-gpu", {"name": "gpu", "firstAvailable": choices})


def invalid_pool(c: SmallCluster) -> None:
    c.unpublish("node2")
    pool = {"name": "node1", "generation": 1, "resourceSliceCount": 2}
    for name in ("node1-gpu", "node1-more"):
        spec = {"driver": DRIVER, "pool": pool, "nodeName": "node1", "devices": [gpu("gpu-0")]}
        c.put("resourceslices", {"metadata": {"name": name}, "spec": spec})


def held_for_nobody(c: SmallCluster) -> None:
    c.unpublish("node2")
    c.publish("node1", gpu("gpu-0"))
    c.hold("node1", "bert")
    claim = c.get("resourceclaims", "bert-gpu", "other")
    claim["status"]["reservedFor"] = []
    c.put("resourceclaims", claim)


def all_wanted_one_held(c: SmallCluster) -> None:
    c.unpublish("node2")
    c.hold("node1", "bert")
    c.claim("train-gpu", c.request(allocationMode="All"))


def all_wanted_pool_incomplete(c: SmallCluster) -> None:
    pool = {"name": "nics", "generation": 1, "resourceSliceCount": 2}
    c.publish("node1", {"name": "n0"}, driver="nic.example.com", pool=pool)
    c.publish("node2", {"name": "n0"}, driver="nic.example.com", pool=pool)
    c.delete("resourceslices", "node2-nic")
    c.unpublish("node2")
    c.claim("train-gpu", c.request(allocationMode="All"))


def all_wanted_counters_of_another_node(c: SmallCluster) -> None:
    """The pool of node2 lacks a slice; its counters concern each node."""
    counters = [{"name": "card", "counters": {"memory": {"value": "1Gi"}}}]
    pool = {"name": "node2", "generation": 1, "resourceSliceCount": 2}
    c.publish("node2", pool=pool, sharedCounters=counters)
    c.pod("train", claims=["train-gpu"], nodeSelector={"zone": "1"})
    c.claim("train-gpu", c.request(allocationMode="All"))


def cordoned(c: SmallCluster) -> None:
    for name in ("node1", "node2"):
        c.put("nodes", {**c.get("nodes", name), "spec": {"unschedulable": True}})


def no_class(c: SmallCluster) -> None:
    c.delete("deviceclasses", DRIVER)


def misspelt_class(c: SmallCluster) -> None:
    c.claim("train-gpu", c.request(deviceClassName="gpus.example.com"))


def no_claim(c: SmallCluster) -> None:
    c.delete("resourceclaims", "train-gpu")


def no_template(c: SmallCluster) -> None:
    uses = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    c.pod("train", resourceClaims=uses)


def template_without_claim(c: SmallCluster) -> None:
    no_template(c)
    spec = {"spec": {"devices": {"requests": [c.request()]}}}
    c.put("resourceclaimtemplates", {"metadata": {"name": "one-gpu"}, "spec": spec})


def templates_forbidden(c: SmallCluster) -> None:
    template_without_claim(c)
    c.forbid("resourceclaimtemplates")


def claim_ends(c: SmallCluster) -> None:
    claim = c.get("resourceclaims", "train-gpu")
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    c.put("resourceclaims", claim)


def capacity_too_large(c: SmallCluster) -> None:
    c.unpublish("node2")
    memory = {"memory": {"value": "80Gi"}}
    c.publish("node1", gpu("gpu-0", capacity=memory, allowMultipleAllocations=True))
    c.claim("train-gpu", c.request(capacity={"requests": {"memory": "100Gi"}}))


def capacity_used(c: SmallCluster) -> None:
    c.unpublish("node2")
    memory = {"memory": {"value": "80Gi", "requestPolicy": {"default": "10Gi"}}}
    c.publish("node1", gpu("gpu-0", capacity=memory, allowMultipleAllocations=True))
    c.hold("node1", "bert", c.request(capacity={"requests": {"memory": "60Gi"}}))
    c.claim("train-gpu", c.request(capacity={"requests": {"memory": "40Gi"}}))


def counters_used(c: SmallCluster) -> None:
    c.unpublish("node2")
    pool = {"name": "node1", "generation": 1, "resourceSliceCount": 2}

    def part(name: str, model: str, memory: str) -> dict[str, object]:
        counters = {"memory": {"value": memory}}
        return gpu(name, model, consumesCounters=[{"counterSet": "card", "counters": counters}])

    c.publish("node1", part("whole", "A100", "40Gi"), part("half", "A30", "20Gi"), pool=pool)
    counters = {"name": "card", "counters": {"memory": {"value": "40Gi"}}}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "node1", "sharedCounters": [counters]}
    c.put("resourceslices", {"metadata": {"name": "node1-counters"}, "spec": spec})
    model = f'device.attributes["{DRIVER}"].model == '
    c.hold("node1", "bert", c.request(f'{model}"A30"'))
    c.claim("train-gpu", c.request(f'{model}"A100"'))


def no_match_between(c: SmallCluster) -> None:
    c.unpublish("node2")
    both = [gpu(f"gpu-{n}", attributes={"numa": {"int": n}}) for n in (0, 1)]
    c.publish("node1", *both)
    c.claim("train-gpu", c.request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/numa"}])


def two_claims_one_device(c: SmallCluster) -> None:
    c.publish("node1", gpu("gpu-0"))
    c.publish("node2", gpu("gpu-0"))
    c.claim("more-gpu")
    c.pod("train", claims=["train-gpu", "more-gpu"])


def claim_of_another_node(c: SmallCluster) -> None:
    c.allocate("train-gpu", "first", "node1")
    c.pod("first", claims=["train-gpu"], node="node1")
    c.pod("train", claims=["train-gpu"], nodeSelector={"zone": "2"})


def gated(c: SmallCluster) -> None:
    c.pod("train", claims=["train-gpu"], schedulingGates=[{"name": "example.com/quota"}])


def no_cpu(c: SmallCluster) -> None:
    said = "0/2 nodes are available: 2 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "message": said}
    c.pod("train", claims=["train-gpu"], status={"conditions": [condition]})


def too_little_cpu(c: SmallCluster) -> None:
    for name in ("node1", "node2"):
        c.limit(name, cpu="4", memory="8Gi", pods="110")
        c.pod(f"on-{name}", node=name, requests={"cpu": "2500m"})
    c.pod("train", claims=["train-gpu"], requests={"cpu": "2", "memory": "1Gi"})


def full_node(c: SmallCluster) -> None:
    c.unpublish("node2")
    c.limit("node1", cpu="4", pods="1")
    c.pod("other", node="node1")


def wrong_hostname(c: SmallCluster) -> None:
    for name in ("node1", "node2"):
        node = c.get("nodes", name)
        node["metadata"]["labels"]["kubernetes.io/hostname"] = name
        c.put("nodes", node)
    c.pod("train", claims=["train-gpu"], nodeSelector={"kubernetes.io/hostname": "nod1"})


def claim_of_somebody_else(c: SmallCluster) -> None:
    no_template(c)
    spec = {"spec": {"devices": {"requests": [c.request()]}}}
    c.put("resourceclaimtemplates", {"metadata": {"name": "one-gpu"}, "spec": spec})
    made = [{"name": "gpu", "resourceClaimName": "train-gpu"}]
    uses = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    c.pod("train", resourceClaims=uses, status={"resourceClaimStatuses": made})
    claim = c.get("resourceclaims", "train-gpu")
    claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "other", "uid": "other-uid"}]
    c.put("resourceclaims", claim)


def no_scheduler(c: SmallCluster) -> None:
    c.pod("train", claims=["train-gpu"], schedulerName="mine")
    c.seconds_later = 300


def incomplete_pool_without_devices(c: SmallCluster) -> None:
    c.unpublish("node2")
    c.publish("node1", pool={"name": "node1", "generation": 3, "resourceSliceCount": 2})


def held_for_pods_that_are_gone(c: SmallCluster) -> None:
    all_held(c)
    for node in ("node1", "node2"):
        for number in (1, 2):
            c.delete("pods", f"{node}-user{number}", "other")


def held_for_a_pod_that_does_not_end(c: SmallCluster) -> None:
    only_match_held(c)
    c.pod("bert", claims=["bert-gpu"], node="node1", namespace="other", deleted=LONG_AGO)


def no_two_differ(c: SmallCluster) -> None:
    c.unpublish("node2")
    both = (gpu(f"gpu-{n}", attributes={"switch": {"int": 7}}) for n in (0, 1))
    c.publish("node1", *both)
    c.claim(
        "train-gpu", c.request(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/switch"}]
    )


# ---------------------------------------------------------------- pods with a node, claims


def bound_to_no_node(c: SmallCluster) -> None:
    c.pod("train", claims=["train-gpu"], node="node3", status={"phase": "Pending"})


def bound_without_scheduler(c: SmallCluster) -> None:
    c.pod("train", claims=["train-gpu"], node="node1", status={"phase": "Pending"})


def silent_kubelet(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.pod("train", claims=["train-gpu"], node="node1", status={"phase": "Pending"})
    c.silence("node1")


def ends_on_a_silent_node(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.pod("train", claims=["train-gpu"], node="node1", deleted=LONG_AGO)
    c.silence("node1")


def ends_without_its_driver(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.pod("train", claims=["train-gpu"], node="node1", deleted=LONG_AGO)
    c.unpublish("node1")


def kept_by_a_finalizer(c: SmallCluster) -> None:
    c.pod("train", node="node1", deleted=LONG_AGO, status={"phase": "Succeeded"},
          finalizers=["example.com/backup"])  # fmt: skip


def containers_do_not_stop(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.pod("train", claims=["train-gpu"], node="node1", deleted=LONG_AGO)


def driver_away_from_the_node(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.pod("train", claims=["train-gpu"], node="node1", status={"phase": "Pending"})
    no_slices(c)


def prepare_fails(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.pod("train", claims=["train-gpu"], node="node1", status={"phase": "Pending"})
    for number, text in enumerate(("old", "prepare: the firmware is \x1b[31mbroken\nok fine")):
        event = {"metadata": {"name": f"e{number}", "namespace": "default"}, "type": "Warning"}
        event["involvedObject"] = {"kind": "Pod", "name": "train", "uid": "train-uid"}
        event |= {"reason": "FailedPrepareDynamicResources", "message": text}
        c.put("events", event | {"lastTimestamp": f"2026-01-0{number + 1}T00:00:00Z"})


def refused_by_the_kubelet(c: SmallCluster) -> None:
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"}
    c.pod("train", node="node1", status=failed)


def unhealthy_while_it_runs(c: SmallCluster) -> None:
    health = {"name": R, "resources": [{"resourceID": "nic-0", "health": "Unhealthy"}]}
    container = {"name": "main", "allocatedResourcesStatus": [health]}
    c.pod("train", node="node1", limits={R: "1"}, status={"containerStatuses": [container]})


def two_holders(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.claim("copy")
    c.put("resourceclaims", {**c.get("resourceclaims", "copy"),
                             "status": c.get("resourceclaims", "train-gpu")["status"]})  # fmt: skip


def reserved_for_nobody(c: SmallCluster) -> None:
    c.allocate("train-gpu", "train", "node1")
    c.delete("pods", "train")


def missing_pod(c: SmallCluster) -> None:
    c.delete("pods", "train")
    c.pod("trainer")


# ---------------------------------------------------------------- extended resources


def wants(c: SmallCluster, number: int = 1, resource: str = R, **spec: object) -> None:
    c.pod("train", limits={resource: str(number)}, **spec)  # type: ignore[arg-type]


def nobody_offers(c: SmallCluster) -> None:
    c.offer("node1", "example.com/nics", 2)
    wants(c)


def plugin_away(c: SmallCluster) -> None:
    c.offer("node1", R, 0)
    wants(c)


def all_unhealthy(c: SmallCluster) -> None:
    c.offer("node1", R, 4, 0)
    wants(c)


def too_large(c: SmallCluster) -> None:
    c.offer("node1", R, 4, 3)
    c.offer("node2", R, 2)
    wants(c, 4)


def used_or_unhealthy(c: SmallCluster) -> None:
    c.offer("node1", R, 4, 3)
    c.pod("a", node="node1", limits={R: "3"})
    wants(c)


def no_plugin_on_the_only_node(c: SmallCluster) -> None:
    c.offer("node1", R, 3)
    c.put("nodes", {**c.get("nodes", "node1"), "spec": {"unschedulable": True}})
    wants(c)


def all_used(c: SmallCluster) -> None:
    c.offer("node1", R, 3)
    c.pod("a", node="node1", limits={R: "2"})
    c.pod("b", node="node1", limits={R: "1"})
    wants(c)


def free_where_the_pod_cannot_run(c: SmallCluster) -> None:
    c.offer("node1", R, 3)
    wants(c, nodeSelector={"zone": "2"})


def class_with_the_name_is_used_up(c: SmallCluster) -> None:
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    c.put(
        "deviceclasses", {"metadata": {"name": DRIVER}, "spec": {**spec, "extendedResourceName": R}}
    )
    all_held(c)
    wants(c)


def partly_broken(c: SmallCluster) -> None:
    """What one sees in a cluster on a bad day."""
    only_match_held(c)
    c.offer("node1", R, 4, 3)
    c.silence("node2")


# ---------------------------------------------------------------- rights


def slices_forbidden(c: SmallCluster) -> None:
    c.forbid("resourceslices")


def claims_forbidden(c: SmallCluster) -> None:
    c.forbid("resourceclaims")
