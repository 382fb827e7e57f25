"""NodePrepareResources: which claims are prepared, and what the answer says."""

import asyncio

from kubedevices.check.check import FAIL, Broken, Fragile, Harm, Theme
from kubedevices.check.drivers.claims import (
    CLASS,
    TestClaim,
    cdi_ids,
    in_words,
    needs_devices,
    requests,
)
from kubedevices.check.drivers.cluster import on_claims
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.rules.prepare_configuration import judge_subrequest
from kubedevices.errors.words import counted
from kubedevices.kubelet_api.dra import ClaimAnswer
from kubedevices.testing.api_server.faults import ApiFault
from kubedevices.values.scheduling.kinds import POD_GROUP

arrival = Theme("prepare", harm=Harm.POD)
theme = Theme("prepare", needs=("prepare.answers",), harm=Harm.POD)
_KUBELET = "kubelet cm/dra, NodePrepareResources; KEP-4381"
_HELPER = "k8s.io/dynamic-resource-allocation/kubeletplugin"


@arrival.check(
    "answers",
    FAIL,
    suffers="The container cannot be created, or starts without its device.",
    source=f"{_KUBELET}; CDI specification",
    mend="Answer with request, pool and device of each result, and with CDI IDs whose file exists"
    " before you answer.",
)
async def answers(node: DriverNode) -> str:
    """The answer names each allocated device with its request, its pool and CDI IDs that a runtime
    resolves, to device files that exist.
    """
    async with TestClaim(node).allocate() as claim:
        prepared = await claim.prepare()
        wanted = {(each["pool"], each["device"]) for each in claim.results}
        if {(each.pool, each.device) for each in prepared} != wanted:
            raise Broken(f"allocated {_devices(claim)}, but the answer is {in_words(prepared)}")
        for each in prepared:
            if each.requests and "one" not in each.requests:
                raise Broken(f"the request is one, but the answer is {in_words(prepared)}")
        names = cdi_ids(prepared)
        node.files.must_resolve(names)
        if missing := await node.supervisor.missing(node.files.device_files(names)):
            raise Broken(f"there is no device file {missing[0]}, which a container would get")
        return in_words(prepared) + ("" if names else ", no CDI ID")


@theme.check(
    "repeat",
    FAIL,
    suffers="The kubelet prepares again after its restart; a container gets other devices then.",
    source=f"{_KUBELET}: Prepare is idempotent",
    mend="Keep the answer of a prepared claim and return it, with the devices in their order.",
    seen="a driver that answers in random order",
)
async def repeat(node: DriverNode) -> str:
    """Preparing a claim again gives the same answer, and its CDI files stay right."""
    count = min(len(needs_devices(node, 1)), 2)  # two, if there are two: their order is a part
    async with TestClaim(node, *requests("one", count=count)).allocate() as claim:
        first = await claim.prepare()
        files = node.files.cdi_files()
        for number in (2, 3, 4):
            if (answer := await claim.prepare()) != first:
                raise Broken(
                    f"answer {number} is {in_words(answer)}, the first was {in_words(first)}"
                )
        if node.files.cdi_files() != files:
            raise Broken("its CDI files changed")
        return "four equal answers"


@theme.check(
    "batch",
    FAIL,
    needs=("prepare.unknown-device",),
    suffers="One bad claim stops the pods of all others, or a pod starts without its device.",
    source=f"{_KUBELET}: one answer for each claim",
    mend="Judge each claim for itself, and undo only what failed.",
    seen="drivers that undo all claims of a call, or answer an error as success",
)
async def batch(node: DriverNode) -> str:
    """In a call with an impossible claim the others succeed, and the bad one leaves nothing."""
    needs_devices(node, 2)
    one, other, bad = TestClaim(node).allocate(), TestClaim(node).allocate(), TestClaim(node)
    async with one, other, bad:
        bad.set_results([one.results[0] | {"device": "no-such-device"}])
        found = await node.prepare([each.reference for each in (one, bad, other)])
        if not isinstance(found[bad.uid], str):
            raise Broken("a claim with a device that does not exist was prepared")
        for each in (one, other):
            answer = found[each.uid]
            if isinstance(answer, str):
                raise Broken(f"a good claim failed beside a bad one: {answer}")
            node.files.must_resolve(cdi_ids(answer))
        if left := node.files.cdi_files_of(bad.uid):
            raise Fragile(f"the refused claim left the CDI file {left[0]}")
    return "two prepared, one refused"


@theme.check(
    "concurrent",
    FAIL,
    suffers="Pods that start at once fail, or get wrong devices.",
    source="kubelet: pods start in parallel, each with a call of its own",
    mend="Take one lock for each claim and one for the state.",
)
async def concurrent(node: DriverNode) -> str:
    """Calls at the same time have the results of calls one after another."""
    names = needs_devices(node, 1)
    async with TestClaim(node).allocate() as claim:
        same = await asyncio.gather(*(claim.try_prepare() for _ in range(8)))
        if bad := [each for each in same if each != same[0] or isinstance(each, str)]:
            raise Broken(f"eight calls for one claim: {in_words(bad[0])}")
    claims = [TestClaim(node) for _ in names[:8]]
    try:
        for each in claims:
            each.allocate()
        found = await asyncio.gather(*(each.try_prepare() for each in claims))
        for each, answer in zip(claims, found, strict=True):
            _must_be(answer, each)
    finally:
        for each in claims:
            await each.end()
    return f"eight calls for one claim, {counted(len(claims), 'claim')} at once"


@theme.check(
    "order",
    FAIL,
    needs=("unprepare.cleans",),
    suffers="A device stays held although its pod is gone: no other pod gets it.",
    source="kubelet: cancels Prepare after 45 s; then the pod may be deleted",
    mend="Let Unprepare wait for a running Prepare of the same claim, and end a Prepare that the"
    " kubelet has cancelled.",
    seen="drivers in which the late Prepare wins",
)
async def order(node: DriverNode) -> str:
    """Unprepare after a cancelled Prepare leaves nothing; Prepare right after Unprepare
    succeeds.
    """
    claim = TestClaim(node).allocate()
    device = claim.results[0]
    async with claim:
        # A kubelet cancels a Prepare that takes too long, and may unprepare the claim at once.
        since, late = len(node.cluster.api.requests), ApiFault(200, delay=node.timing.hold)
        with node.cluster.broken(on_claims(late)):
            running = asyncio.create_task(claim.try_prepare(), name="Prepare that is cancelled")
            await node.until(lambda: node.cluster.claim_reads(since), node.timing.hold)
            running.cancel()
            await asyncio.wait({running})
            await claim.unprepare()
            await node.pause(2 * node.timing.hold)
        if left := node.files.cdi_files_of(claim.uid):
            raise Broken(f"the CDI file {left[0]} is left over")
        async with TestClaim(node).set_results([device]) as other:
            await other.prepare()
        await claim.prepare()
        await asyncio.gather(claim.unprepare(), asyncio.sleep(0))
        await claim.prepare()
    async with TestClaim(node).set_results([device]) as after:
        await after.prepare()
    return "nothing is left over"


@theme.check(
    "uid",
    FAIL,
    harm=Harm.WRONG_DEVICE,
    suffers="A pod gets the devices of another claim.",
    source=f"{_HELPER}: the UID of the claim must be equal",
    mend="Compare the UID of the call with that of the object.",
)
async def uid(node: DriverNode) -> str:
    """A claim that was replaced by a new one of the same name is refused."""
    old = TestClaim(node, name="replaced").allocate()
    old.delete()
    async with TestClaim(node, name="replaced").allocate():
        answer = await node.prepare([old.reference])
        if not isinstance(answer[old.uid], str):
            raise Broken("it prepared a claim whose object has another UID")
        return f"refused: {answer[old.uid]}"


@theme.check(
    "no-allocation",
    FAIL,
    suffers="A pod starts without devices.",
    source=f"{_HELPER}: claim not allocated",
    mend="Refuse a claim without status.allocation.",
)
async def no_allocation(node: DriverNode) -> str:
    """A claim without allocation is refused."""
    async with TestClaim(node) as claim:
        answer = (await node.prepare([claim.reference]))[claim.uid]
        if not isinstance(answer, str):
            raise Broken(f"it prepared a claim without allocation: {in_words(answer)}")
        return f"refused: {answer}"


@theme.check(
    "unknown-device",
    FAIL,
    suffers="A pod starts without its device, or with a device of another pool.",
    source=_KUBELET,
    mend="Refuse devices that you do not have, by pool and name.",
)
async def unknown_device(node: DriverNode) -> str:
    """A device that is in no slice is refused: an unknown one, or a known name in another pool."""
    async with (
        TestClaim(node).allocate() as good,
        TestClaim(node) as claim,
        TestClaim(node) as other,
    ):
        claim.set_results([good.results[0] | {"device": "no-such-device"}])
        answer = await claim.try_prepare()
        if not isinstance(answer, str):
            raise Broken(f"it prepared no-such-device: {in_words(answer)}")
        other.set_results([good.results[0] | {"pool": "no-such-pool"}])
        if not isinstance(prepared := await other.try_prepare(), str):
            raise Fragile(f"it prepared a device of no-such-pool: {in_words(prepared)}")
        return f"refused: {answer}"


@theme.check(
    "foreign",
    FAIL,
    suffers="A pod with devices of two drivers cannot start, or gets one device twice.",
    source=f"{_KUBELET}: each driver answers for its own results",
    mend="Use only the results with the name of your driver.",
)
async def foreign(node: DriverNode) -> str:
    """Of a claim with results of two drivers only the own devices are answered."""
    async with TestClaim(node).allocate() as claim:
        (mine, *_) = claim.results
        other = mine | {"driver": "other.example.com", "pool": "other", "request": "two"}
        claim.set_results([other, mine])
        prepared = await claim.prepare()
        if [(each.pool, each.device) for each in prepared] != [(mine["pool"], mine["device"])]:
            raise Broken(
                f"the answer has {in_words(prepared)}, the only own device is {mine['device']}"
            )
    return "only the own device"


@theme.check(
    "requests",
    FAIL,
    harm=Harm.WRONG_DEVICE,
    suffers="A container that uses one request of the claim gets the devices of another request.",
    source=f"{_KUBELET}: request_names of a device",
    mend="Answer with the name of the request of each result.",
)
async def named_requests(node: DriverNode) -> str:
    """Each device of a claim with two requests names its request and has CDI IDs of its own; two
    devices of one request name it both.
    """
    needs_devices(node, 2)
    async with TestClaim(node, *requests("first", "second")).allocate() as claim:
        prepared = await claim.prepare()
        # Pairs, because both requests may have got a share of one device.
        wanted = {(each["device"], each["request"]) for each in claim.results}
        if {(each.device, name) for each in prepared for name in each.requests or ("",)} != wanted:
            raise Broken(f"allocated {_devices(claim)}, but the answer is {in_words(prepared)}")
        node.files.must_resolve(cdi_ids(prepared))
        one, other, *_ = prepared
        alike = len(one.cdi_ids) > 1 and {*one.cdi_ids} == {*other.cdi_ids}
        if alike and one.device != other.device:
            raise Broken(f"both requests have the CDI IDs {', '.join(one.cdi_ids)}")
    async with TestClaim(node, *requests("pair", count=2)).allocate() as claim:
        _must_be(prepared := await claim.prepare(), claim)
        if strange := tuple(each for each in prepared if {*each.requests} - {"pair"}):
            raise Broken(f"the request is pair, but the answer is {in_words(strange)}")
    return "first and second; two devices for one"


@theme.check(
    "subrequest",
    FAIL,
    harm=Harm.WRONG_DEVICE,
    suffers="A container with `request: gpu` gets no device if the driver answers `gpu/big`, and"
    " parameters for `gpu` are ignored if the driver compares them with `gpu/big` only.",
    source="KEP-4816: the name of a subrequest is REQUEST/SUBREQUEST; kubelet compares REQUEST",
    mend="Answer with the part before the slash. Compare a configuration entry with both names.",
    seen="a driver that ignores the configuration of the parent",
)
async def subrequest(node: DriverNode) -> str:
    """A device of `gpu/big` (firstAvailable) is answered for the request `gpu`, and parameters for
    either of both names count.
    """
    wanted = {"name": "gpu", "firstAvailable": [{"name": "big", "deviceClassName": CLASS}]}
    async with TestClaim(node, wanted).allocate() as claim:
        prepared = await claim.prepare()
        for each in prepared:
            if each.requests and "gpu" not in {name.partition("/")[0] for name in each.requests}:
                raise Broken(f"the request is gpu, but the answer is {in_words(prepared)}")
            if "gpu/big" in each.requests:
                raise Broken("the answer names gpu/big; a kubelet compares with gpu")
    return f"answered for gpu{await judge_subrequest(node)}"


@theme.check(
    "reserved",
    FAIL,
    suffers="Pods that share a claim cannot start.",
    source="KEP-4381: reservedFor has up to 256 consumers",
    mend="Prepare by the claim, not by the pod.",
)
async def reserved(node: DriverNode) -> str:
    """A claim that two pods share is prepared; one for a PodGroup, or without reservation, has
    devices or an error.
    """
    async with TestClaim(node).allocate() as claim:
        if not await claim.reserve("pod-1", "pod-2").prepare():
            raise Broken("two pods: the answer has no devices")
    seen = ["two pods: prepared"]
    for what, names in {"a PodGroup": ["group-1"], "no reservation": []}.items():
        async with TestClaim(node).allocate() as claim:
            answer = await claim.reserve(*names, kind=POD_GROUP).try_prepare()
        if answer == ():
            raise Broken(f"{what}: success without devices")
        seen.append(f"{what}: {'refused' if isinstance(answer, str) else 'prepared'}")
    return "; ".join(seen)


def _must_be(answer: ClaimAnswer, claim: TestClaim) -> None:
    if isinstance(answer, str):
        raise Broken(f"{claim.name}: {answer}")
    wanted = {each["device"] for each in claim.results}
    if {each.device for each in answer} != wanted:
        raise Broken(f"{claim.name} has {_devices(claim)}, but the answer is {in_words(answer)}")


def _devices(claim: TestClaim) -> str:
    return ", ".join(f"{each['device']} for {each['request']}" for each in claim.results)
