"""What a driver publishes, and how it keeps it right."""

import asyncio
from collections.abc import Callable
from functools import partial

from kubedevices.check.check import FAIL, WARN, Broken, Fragile, Harm, Theme
from kubedevices.check.drivers.claims import TestClaim
from kubedevices.check.drivers.cluster import everywhere, on_slices
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.node_setup import on_copies
from kubedevices.errors.words import counted
from kubedevices.testing.api_server.faults import HANG_UP, ApiFault
from kubedevices.testing.api_server.http import ApiRequest

theme = Theme("slices", harm=Harm.ALL_DEVICES)
waiting = Theme("slices", track=None, harm=Harm.ALL_DEVICES, waits=True)
apart = Theme("slices", needs=("slices.again",), track=None, harm=Harm.ALL_DEVICES, waits=True)
_STANDARD = "resource.kubernetes.io/"
_MOST_PER_SECOND = 1.0
_BURST = 6  # requests that may come at once when an error begins


@theme.check(
    "valid",
    FAIL,
    suffers="The scheduler ignores an incomplete pool; slices that the Node does not own stay for"
    " ever when the node is gone.",
    source="resource.k8s.io/v1 ResourceSlice; KEP-4381",
    mend="One pool with the name of the node, all slices of one generation, resourceSliceCount"
    " right, and the Node as owner.",
)
async def valid(node: DriverNode) -> str:
    """The server accepts each slice, one pool of the node is complete, and the Node owns it."""
    if node.cluster.store.refused:
        raise Broken(f"the server refused a slice: {node.cluster.store.refused[0]}")
    uid = node.cluster.api.get("nodes", node.node_name, "")["metadata"]["uid"]
    slices = node.cluster.slices()
    mine = [each for each in slices if each["spec"]["driver"] == node.driver]
    if not mine:
        raise Broken(f"no slice names the driver {node.driver}")
    for each in mine:
        name = each["metadata"]["name"]
        if each["spec"].get("nodeName") != node.node_name:
            raise Fragile(f"{name} is not for this node")
        owners = each["metadata"].get("ownerReferences", ())
        if not any(owner["kind"] == "Node" and owner["name"] == node.node_name for owner in owners):
            raise Broken(f"the Node does not own {name}")
        if strange := [owner for owner in owners if owner["uid"] != uid]:
            raise Broken(f"{name} belongs to {strange[0]['name']} with the UID of no Node")
    pools: dict[str, list[int]] = {}
    for each in mine:
        pool = each["spec"]["pool"]
        pools.setdefault(pool["name"], []).append(pool["generation"])
        if sum(one["spec"]["pool"] == pool for one in mine) != pool["resourceSliceCount"]:
            raise Broken(f"pool {pool['name']}: not all of its {pool['resourceSliceCount']} slices")
    if stale := [name for name, generations in pools.items() if len({*generations}) > 1]:
        raise Broken(f"pool {stale[0]} has slices of an older generation")
    devices = counted(len(node.cluster.devices(node.driver)), "device")
    return f"{devices} in {counted(len(mine), 'slice')}"


@theme.check(
    "standard-attributes",
    WARN,
    harm=Harm.OTHER,
    suffers="Selectors and constraints across drivers, for example GPU and NIC of one PCIe root,"
    " do not find the device.",
    source="KEP-4381: resource.kubernetes.io/pcieRoot and /pciBusID; a driver's domain is implied",
    mend="Use the names of k8s.io/dynamic-resource-allocation/deviceattribute; leave out your own"
    " domain.",
)
async def standard_attributes(node: DriverNode) -> str:
    """PCI devices have the standard attributes, and own names do not repeat the driver's domain."""
    for name, device in node.cluster.devices(node.driver).items():
        attributes = device.get("attributes", {})
        if repeated := [each for each in attributes if each.startswith(f"{node.driver}/")]:
            raise Broken(f"{name}: {repeated[0]} repeats the driver's name, which is implied")
        plain = {each.rpartition("/")[2].lower(): each for each in attributes}
        for standard in ("pciBusID", "pcieRoot"):
            own, full = plain.get(standard.lower()), _STANDARD + standard
            if own and full not in attributes:
                raise Broken(f"{name}: {own} is {full}")
            if own and "string" not in attributes[full]:
                raise Broken(f"{name}: {full} is no string")
    return "nothing to correct"


@waiting.check(
    "quiet",
    FAIL,
    suffers="Each write reaches all schedulers and the database of the cluster; with many nodes the"
    " API server gets slow.",
    source="k8s.io/dynamic-resource-allocation/resourceslice: equal content is not written",
    mend="Compare the content with what is published, in a stable order, before you write.",
    seen="a driver that writes the order of a hash map",
)
async def quiet(node: DriverNode) -> str:
    """While nothing changes the driver writes nothing."""
    process, since = node.process, len(node.cluster.api.requests)
    await node.pause(node.timing.quiet)
    if process is not None and not process.running:
        when = f"its process ended ({process.end_text()}) while nothing happened"
        node.shared.record_end(process, when, process.last_words())
    if writes := node.cluster.writes(since):
        raise Broken(f"{counted(len(writes), 'write')} of slices within {node.timing.quiet:g} s")
    return f"no write within {node.timing.quiet:g} s"


@waiting.check(
    "again",
    FAIL,
    suffers="After a restart of the kubelet the node has no devices.",
    source="kubelet cm/dra: deletes the slices of its node at its start",
    mend="Watch your slices, and create them again.",
)
async def again(node: DriverNode) -> str:
    """When all its slices are deleted the driver publishes them again, and leaves those of other
    nodes alone.
    """
    content, other = node.cluster.content(), "slice-of-another-node"
    pool = {"name": "other-node", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": node.driver, "nodeName": "other-node", "pool": pool, "devices": []}
    made = node.cluster.api.put("resourceslices", {"metadata": {"name": other}, "spec": spec})
    await node.cluster.api.delete_slices(node.node_name, "")
    evidence = await _restored(node, content, "after all slices were deleted")
    if made not in node.cluster.slices():
        raise Broken("it deleted or changed a slice of another node")
    return evidence


@apart.check(
    "deleted-one",
    FAIL,
    suffers="A part of the devices, or all of the pool, cannot be allocated.",
    source="k8s.io/dynamic-resource-allocation/resourceslice: the controller restores its slices",
    mend="Compare what is published with what it should be at each event of the watch.",
)
async def deleted_one(node: DriverNode) -> str:
    """A slice that was deleted, and one that somebody changed, are as before."""
    content, api = node.cluster.content(), node.cluster.api
    changed, *others = node.cluster.slices()
    changed["spec"]["devices"] = []
    api.put("resourceslices", changed)
    # Both at the same time, for one wait. `slices.again` judges the deletion of an only slice.
    for each in others[:1]:
        api.delete("resourceslices", each["metadata"]["name"])
    what = "somebody changed a slice" + (" and deleted another" if others else "")
    return await _restored(node, content, f"after {what}")


@apart.check(
    "conflict",
    FAIL,
    slow=True,
    starts=True,
    suffers="The node's devices are wrong until the driver restarts, or the driver floods an API"
    " server that is in trouble already.",
    source="Kubernetes API conventions: 409, 410, 429 with Retry-After, 5xx",
    mend="Read the object again after 409, list again after 410, wait between attempts.",
)
async def conflict(node: DriverNode) -> str:
    """After errors of the API server the slices are right again, with at most a request a second
    meanwhile.
    """
    faults = {
        "409": on_slices(409, "the object has been modified", "Conflict"),
        "429": on_slices(429, "too many requests", "TooManyRequests", retry_after=3),
        "500": on_slices(500, "internal error", "InternalError"),
        "a reset connection": everywhere(HANG_UP),
    }
    # Each on a copy of its own: after one error a driver may wait longer before the next attempt.
    parts = [partial(_recovers, what=what, fault=fault) for what, fault in faults.items()]
    await on_copies(node, [*parts, _recovers_from_an_expired_watch])
    return f"right again after {', '.join(faults)} and an expired watch"


async def _recovers(
    node: DriverNode, *, what: str, fault: Callable[[ApiRequest], ApiFault | None]
) -> None:
    content, hit = node.cluster.content(), asyncio.Event()
    with node.cluster.broken(_noticed(fault, hit)):
        await node.cluster.api.delete_slices(node.node_name, "")
        if not await node.until(hit.is_set, node.timing.repaired):
            raise Broken(f"after all slices were deleted: no write, which {what} would answer")
        since, half = len(node.cluster.api.requests), node.timing.refusing / 2
        await node.pause(half)
        later = len(node.cluster.api.requests)
        await node.pause(half)
        made = len(node.cluster.api.requests) - since
        writes = len(node.cluster.writes(later))
    if writes > 2 + _MOST_PER_SECOND * half:
        raise Broken(f"still {writes} writes within {half:g} s, {half:g} s after the first {what}")
    if made > _BURST + _MOST_PER_SECOND * node.timing.refusing * 2:
        raise Broken(f"{made} requests within {node.timing.refusing:g} s of {what}")
    await _restored(node, content, f"after {what}", node.timing.repaired)


async def _recovers_from_an_expired_watch(node: DriverNode) -> None:
    content = node.cluster.content()
    await node.cluster.api.delete_slices(node.node_name, "")
    node.cluster.api.forget_events()  # before the watch has told them: it ends with 410
    await _restored(node, content, "after the watch had expired (410)", node.timing.repaired)


@apart.check(
    "refused",
    FAIL,
    slow=True,
    suffers="A cluster whose policy refused a slice once has no devices of this node for ever, and"
    " nobody sees the reason.",
    source="Kubernetes API: 422 of validation and of admission policies",
    mend="Log the server's text, and try again with growing pauses of at most some minutes.",
)
async def refused(node: DriverNode) -> str:
    """A refused slice (422) is tried again later, and the server's text is in the log."""
    content, text = node.cluster.content(), "refused-by-a-policy-of-the-check"
    process = node.process
    assert process is not None
    hit = asyncio.Event()
    with node.cluster.broken(_noticed(on_slices(422, text, "Invalid"), hit)):
        await node.cluster.api.delete_slices(node.node_name, "")
        await node.until(hit.is_set, node.timing.repaired)
        await node.pause(node.timing.refusing)
    await _restored(node, content, "after 422", 2 * node.timing.repaired)
    if text not in process.output():
        raise Fragile("the server's text is not in its log")
    return "tried again, and the text is in its log"


@apart.check(
    "dropped",
    FAIL,
    needs=("slices.quiet",),
    starts=True,
    suffers="Endless writes from each node of a cluster in which a feature gate is off.",
    source="Kubernetes API: fields of a disabled feature gate are dropped without an error",
    mend="Compare with the object that the server returned for your last write.",
)
async def dropped(node: DriverNode) -> str:
    """When the server drops a field the driver does not write again and again."""
    api = node.cluster.api
    node.cluster.store.dropped = frozenset({"attributes"})
    await node.start_fresh()
    if problem := await node.until_ready(node.timing.start):
        raise Fragile(f"while the server drops a field: {problem}", node.last_words())
    since = len(api.requests)
    touched = node.cluster.slices()[0]
    touched["metadata"]["annotations"] = {"example.com/touched": "true"}
    api.put("resourceslices", touched)  # so the driver compares
    await node.pause(node.timing.compared)
    if len(writes := node.cluster.writes(since)) > 1:
        took = f"{node.timing.compared:g} s"
        raise Broken(f"{len(writes)} writes within {took}, all of the same content")
    return f"no write again and again within {node.timing.compared:g} s"


@apart.check(
    "api-away",
    FAIL,
    suffers="Pods cannot end, or the driver ends, during an outage of the API server.",
    source="KEP-4381: Unprepare needs no API server",
    mend="Keep what you need to unprepare in a file; try to reach the server again for ever.",
)
async def api_away(node: DriverNode) -> str:
    """While the API server is away claims can be unprepared; afterwards the slices are right."""
    content = node.cluster.content()
    claim = TestClaim(node).allocate()
    await claim.prepare()
    await node.cluster.api.stop()
    try:
        await node.pause(node.timing.api_away)
        if node.process is not None and not node.process.running:
            raise Broken(f"it ended ({node.process.end_text()})", node.last_words())
        await claim.unprepare()
    finally:
        await node.cluster.api.start()
    claim.delete()
    await node.cluster.api.delete_slices(node.node_name, "")
    return await _restored(node, content, "after an outage", node.timing.repaired)


@apart.check(
    "node-recreated",
    WARN,
    suffers="The garbage collector deletes slices whose owner does not exist any more.",
    source="Kubernetes garbage collection: an owner is a UID",
    mend="Read the Node again when your slices vanish. Upstream's helper reads its UID once: end"
    " when it has changed.",
)
async def node_recreated(node: DriverNode) -> str:
    """When the Node is deleted and made again, the new Node owns the slices."""
    api = node.cluster.api
    api.delete("nodes", node.node_name, "")
    await api.delete_slices(node.node_name, "")
    await node.pause(node.timing.hold)
    uid = api.put("nodes", {"metadata": {"name": node.node_name}})["metadata"]["uid"]
    await api.delete_slices(node.node_name, "")

    def owned() -> bool:
        owners = [
            owner["uid"]
            for each in node.cluster.slices()
            for owner in each["metadata"].get("ownerReferences", ())
        ]
        return bool(owners) and {*owners} == {uid}

    if not await node.until(node.cluster.slices, node.timing.repaired):
        raise node.missing(f"no slices {node.timing.repaired:g} s after the Node was made again")
    # What appears now was made when the new Node was there; a driver may correct it at once.
    if not await node.until(owned, node.timing.again):
        raise Broken("its new slices name the UID of the deleted Node as their owner")
    return "the new Node owns the slices"


def _noticed(
    fault: Callable[[ApiRequest], ApiFault | None], hit: asyncio.Event
) -> Callable[[ApiRequest], ApiFault | None]:
    """Return the same fault; it sets `hit` when it answers."""

    def answer(request: ApiRequest) -> ApiFault | None:
        if (found := fault(request)) is not None:
            hit.set()
        return found

    return answer


async def _restored(
    node: DriverNode, content: list[dict[str, object]], when: str, limit: float = 0
) -> str:
    """Wait until the slices are as in `content`; raises `Broken`."""
    limit = limit or node.timing.published
    began = asyncio.get_running_loop().time()
    if not await node.until(lambda: node.cluster.content() == content, limit):
        if ended := node.how_ended():
            raise Broken(f"{when}: {ended}", node.last_words())
        what = "other slices" if node.cluster.slices() else "no slices"
        raise node.missing(f"{when}: {what} after {limit:g} s")
    return f"{when}: right within {node.lost_time.spent(began):.1f} s"
