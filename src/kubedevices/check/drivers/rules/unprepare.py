"""NodeUnprepareResources, and what stays when a claim is gone."""

from kubedevices.check.check import Broken, Fragile, Harm, Severity, Theme
from kubedevices.check.drivers.claims import TestClaim, cdi_ids, needs_devices
from kubedevices.check.drivers.cluster import everywhere
from kubedevices.check.drivers.node import DriverNode
from kubedevices.testing.api_server.http import ApiFault
from kubedevices.values.allocation import ClaimReference

FAIL = Severity.FAIL
theme = Theme("unprepare", harm=Harm.POD, needs=("prepare.answers",))
_KUBELET = "kubelet cm/dra, NodeUnprepareResources; KEP-4381"


@theme.check(
    "cleans",
    FAIL,
    suffers="The device is lost for all other pods, and old CDI files give devices away.",
    source=_KUBELET,
    mend="Remove the CDI file of the claim and forget its devices.",
)
async def cleans(node: DriverNode) -> str:
    """Unprepare removes the CDI files of the claim, and its device can be claimed again."""
    before = set(node.files.cdi_files())
    async with TestClaim(node).allocate() as claim, TestClaim(node) as after:
        await claim.prepare()
        await claim.unprepare()
        new = [name for name in node.files.cdi_files() if name not in before]
        if left := [name for name in new if claim.uid in name + node.files.cdi_files()[name]]:
            raise Broken(f"the CDI file {left[0]} is left over")
        after.set_results(claim.results)
        await after.prepare()
    return "nothing is left over"


@theme.check(
    "twice",
    FAIL,
    suffers="A pod stays in Terminating for ever.",
    source=f"{_KUBELET}: idempotent",
    mend="A claim that is not prepared is a success.",
)
async def twice(node: DriverNode) -> str:
    """A second Unprepare, and one of a claim that was never prepared, succeed."""
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
        await claim.unprepare()
        await claim.unprepare()
    unknown = ClaimReference("default", "00000000-0000-4000-8000-0000000000ff", "never-prepared")
    if problem := await node.unprepare([unknown]):
        raise Broken(f"a claim that was never prepared: {problem}")
    return "both succeed"


@theme.check(
    "object-gone",
    FAIL,
    suffers="After a forced deletion the pod stays in Terminating, and its device is lost.",
    source=f"{_KUBELET}: the object may be gone",
    mend="Keep what you need to unprepare in a file, and do not read the object.",
    seen="drivers that read the claim in Unprepare",
)
async def object_gone(node: DriverNode) -> str:
    """A claim whose object is gone, or cannot be read, is unprepared."""
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
        with node.cluster.broken(everywhere(ApiFault(503, "unavailable", "ServiceUnavailable"))):
            await claim.unprepare()
        await claim.prepare()
        claim.delete()
        await claim.unprepare()
    return "unprepared without its object"


@theme.check(
    "others",
    FAIL,
    harm=Harm.WRONG_DEVICE,
    suffers="The end of one pod takes the devices of another: its restarted container fails.",
    source="CDI: the files of each claim are its own",
    mend="Remove only what belongs to the claim.",
    seen="a driver that empties a directory that all claims share",
)
async def others(node: DriverNode) -> str:
    """Unprepare of one claim leaves files and devices of another as they are."""
    needs_devices(node, 2)
    async with TestClaim(node).allocate() as kept, TestClaim(node).allocate() as ended:
        names = cdi_ids(first := await kept.prepare())
        await ended.prepare()
        await ended.unprepare()
        if problem := node.files.cdi_problem(names):
            raise Broken(f"the other claim: {problem}")
        if await kept.prepare() != first:
            raise Broken("the other claim has another answer")
    return "the other claim is as before"


@theme.check(
    "half",
    FAIL,
    suffers="A device that no pod uses is lost.",
    source="kubelet: a claim whose Prepare failed is unprepared when its pod is deleted",
    mend="Undo what a failed Prepare has done, at the latest in Unprepare.",
)
async def half(node: DriverNode) -> str:
    """A claim whose Prepare failed can be unprepared, and its other devices are free."""
    async with TestClaim(node).allocate() as claim, TestClaim(node) as after:
        (good, *_) = claim.results
        bad = good | {"device": "no-such-device", "request": "two"}
        claim.set_results([good, bad])
        if not isinstance(await claim.try_prepare(), str):
            raise Fragile("a claim with a device that does not exist was prepared")
        await claim.unprepare()
        after.set_results([good])
        await after.prepare()
    return "its device is free"
