"""NodeUnprepareResources, and what stays when a claim is gone."""

from kubedevices.check.check import FAIL, Broken, Fragile, Harm, NotTried, Theme
from kubedevices.check.drivers.claims import TestClaim, needs_cdi_ids, needs_devices
from kubedevices.check.drivers.cluster import everywhere
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.target import TRIGGERED
from kubedevices.check.drivers.trigger_record import change_of
from kubedevices.testing.api_server.faults import ApiFault
from kubedevices.values.allocation import ClaimReference

theme = Theme("unprepare", harm=Harm.POD, needs=("prepare.answers",))
_MOST_CLAIMS = 32
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
    """A second Unprepare succeeds."""
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
        await claim.unprepare()
        await claim.unprepare()
    return "both succeed"


@theme.check(
    "unknown",
    FAIL,
    suffers="A pod whose Prepare never reached the driver stays in Terminating for ever.",
    source=f"{_KUBELET}: unprepares each claim of a pod that ends",
    mend="A claim that is not prepared is a success.",
)
async def unknown_claim(node: DriverNode) -> str:
    """Unprepare of a claim that was never prepared, and that no API server knows, succeeds."""
    unknown = ClaimReference("default", "00000000-0000-4000-8000-0000000000ff", "never-prepared")
    if problem := await node.unprepare([unknown]):
        raise Broken(f"a claim that was never prepared: {problem}")
    return "succeeds"


@theme.check(
    "object-gone",
    FAIL,
    suffers="After a forced deletion the pod stays in Terminating, and its device is lost.",
    source=f"{_KUBELET}: the object may be gone",
    mend="Keep what you need to unprepare in a file, and do not read the object.",
    seen="drivers that read the claim in Unprepare",
)
async def object_gone(node: DriverNode) -> str:
    """A claim whose object is gone is unprepared."""
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
        claim.delete()
        await claim.unprepare()
    return "unprepared without its object"


@theme.check(
    "api-away",
    FAIL,
    suffers="During an outage of the API server no pod can end, and its devices are lost.",
    source=f"{_KUBELET}: needs no API server",
    mend="Keep what you need to unprepare in a file, and do not read the object.",
    seen="drivers that read the claim in Unprepare",
)
async def api_away(node: DriverNode) -> str:
    """While the API server answers each request with an error a claim is unprepared."""
    async with TestClaim(node).allocate() as claim:
        await claim.prepare()
        with node.cluster.broken(everywhere(ApiFault(503, "unavailable", "ServiceUnavailable"))):
            await claim.unprepare()
    return "unprepared without an API server"


@theme.check(
    "device-gone",
    FAIL,
    track=TRIGGERED,
    suffers="A device that falls off the bus takes its pod, and after a restart the whole driver.",
    source=f"{_KUBELET}: succeeds also for a device that is not there any more",
    mend="Unprepare by your state file, and take a device that is missing as released.",
    seen="drivers that look the device up, and end with a nil pointer in a crash loop",
)
async def device_gone(node: DriverNode) -> str:
    """A claim is unprepared after its device has vanished from the host, also after a restart of
    the driver.
    """
    change = await change_of(node)
    if change.before.devices.keys() <= change.after.devices.keys():
        raise NotTried("the trigger takes no device away")
    gone = await _unprepare_without_device(node, restarts=False)
    await _unprepare_without_device(node, restarts=True)
    return f"the claim of {gone} is unprepared"


async def _unprepare_without_device(node: DriverNode, *, restarts: bool) -> str:
    """Take away a device that a claim has, and unprepare the claim; return the device."""
    before = node.cluster.devices(node.driver)
    claims = [TestClaim(node).allocate() for _ in [*before][:_MOST_CLAIMS]]
    try:
        for each in claims:
            await each.prepare()
        await node.run_trigger()
        await node.until(lambda: _without_device(node, claims), node.timing.change)
        lost = _without_device(node, claims)
        if not lost:
            raise NotTried("the trigger takes no device away that a claim has")
        if restarts and node.cluster.devices(node.driver):
            await node.restart_driver()
        for each in lost:
            await each.unprepare()
        if node.how_ended():
            raise Broken("its process ended", node.last_words())
        return str(lost[0].results[0]["device"])
    finally:
        await node.undo_trigger()
        await node.until(lambda: node.cluster.devices(node.driver) == before, node.timing.change)
        for each in claims:
            await each.end()


def _without_device(node: DriverNode, claims: list[TestClaim]) -> list[TestClaim]:
    """Return the claims whose device is not published any more."""
    there = node.cluster.devices(node.driver)
    return [each for each in claims if each.results[0]["device"] not in there]


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
        names = needs_cdi_ids(first := await kept.prepare())
        await ended.prepare()
        await ended.unprepare()
        node.files.must_resolve(names, "the other claim: ")
        if await kept.prepare() != first:
            raise Broken("the other claim has another answer")
    return "the other claim is as before"


@theme.check(
    "half",
    FAIL,
    needs=("prepare.unknown-device",),
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
