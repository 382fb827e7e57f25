"""Who holds a device: one claim, several by shares, and monitoring beside both."""

import asyncio

from kubedevices.check.check import FAIL, Broken, Harm, NotTried, Theme
from kubedevices.check.drivers.claims import TestClaim, cdi_ids, in_words
from kubedevices.check.drivers.node import DriverNode

theme = Theme("prepare", needs=("prepare.answers",), harm=Harm.WRONG_DEVICE)
_WAITS = 3.0
"""Seconds after which a driver that does not answer waits for the end of the holder."""


@theme.check(
    "exclusive",
    FAIL,
    track="prepare.exclusive",
    harm=Harm.WRONG_DEVICE,
    suffers="Two pods use one device at the same time: data of one reach the other.",
    source="KEP-4381: a driver must not rely on the scheduler alone",
    mend="Keep the holders in a file, and refuse a device that another claim holds.",
    seen="drivers that forget the holders at a restart, or never look",
)
async def exclusive(node: DriverNode) -> str:
    """A second claim for a held device is refused, also after a restart of the driver."""
    async with TestClaim(node).allocate() as claim, TestClaim(node) as second:
        (result, *_) = claim.results
        if node.cluster.devices(node.driver)[result["device"]].get("allowMultipleAllocations"):
            raise NotTried("its devices can be shared")
        await claim.prepare()
        second.set_results([result])
        for when in ("", " after a restart of the driver"):
            if not await _is_refused(second):
                raise Broken(f"{result['device']} was prepared for a second claim{when}")
            if not when:
                await node.restart_driver()
    return "refused both times"


@theme.check(
    "admin",
    FAIL,
    suffers="Monitoring pods cannot start, or change a device that a pod uses.",
    source="KEP-5018: adminAccess ignores other allocations",
    mend="Do not count results with adminAccess as holders, and set nothing up for them.",
)
async def admin(node: DriverNode) -> str:
    """A claim with adminAccess is prepared beside a holder, whose answer and CDI files do not
    change, also when the monitoring ends.
    """
    async with TestClaim(node).allocate() as holder, TestClaim(node) as claim:
        held = await holder.prepare()
        files = node.files.cdi_files()
        claim.set_results([holder.results[0] | {"adminAccess": True}])
        answer = await claim.try_prepare()
        if isinstance(answer, str):
            raise Broken(f"refused: {answer}")
        node.files.must_resolve(cdi_ids(answer))
        for end in (False, True):
            if end:
                await claim.unprepare()
            now = node.files.cdi_files()
            changed = [name for name, text in files.items() if now.get(name) != text]
            if mine := [name for name in changed if holder.uid in name + files[name]]:
                raise Broken(f"the CDI file {mine[0]} of the holder changed")
        if (answer := await holder.try_prepare()) != held:
            raise Broken(f"the holder's answer is {in_words(answer)} when the monitoring has ended")
    return "prepared beside its holder"


@theme.check(
    "twice",
    FAIL,
    harm=Harm.POD,
    suffers="The driver refuses the claim, or its CDI file has two devices of one name and runtimes"
    " ignore the file: a pod that monitors the devices waits for ever.",
    source="CDI specification: names are unique in a file; KEP-5018: adminAccess",
    mend="Write one CDI device for each device, or put the request into its name.",
)
async def twice(node: DriverNode) -> str:
    """A device of two requests with adminAccess is prepared, with a CDI file that is valid."""
    async with TestClaim(node).allocate() as claim:
        (one, *_) = claim.results
        results = [one | {"request": name, "adminAccess": True} for name in ("one", "two")]
        prepared = await claim.set_results(results).prepare()
        node.files.must_resolve(sorted(cdi_ids(prepared)))
        for each in prepared:
            if len({*each.cdi_ids}) < len(each.cdi_ids):
                raise Broken(f"a CDI ID is twice in the answer: {in_words(prepared)}")
        answered = {name for each in prepared for name in each.requests}
        if answered and answered != {"one", "two"}:
            raise Broken(f"the requests are one and two, but the answer is {in_words(prepared)}")
    return in_words(prepared)


@theme.check(
    "shares",
    FAIL,
    harm=Harm.WRONG_DEVICE,
    suffers="Pods that share a device cannot start, or one gets it exclusively beside others.",
    source="KEP-5075: shareID",
    mend="A holder is a device and a shareID; refuse shared beside exclusive.",
)
async def shares(node: DriverNode) -> str:
    """Two shares of a device are prepared with their IDs; exclusive beside shared is refused."""
    shared = [
        name
        for name, device in node.cluster.devices(node.driver).items()
        if device.get("allowMultipleAllocations")
    ]
    if not shared:
        raise NotTried("no device with allowMultipleAllocations")
    async with (
        TestClaim(node).allocate() as one,
        TestClaim(node) as other,
        TestClaim(node) as alone,
    ):
        (result, *_) = one.results
        result = {key: value for key, value in result.items() if key != "shareID"}
        result["device"] = shared[0]
        share = "00000000-0000-4000-9000-00000000000"
        one.set_results([result | {"shareID": f"{share}1"}])
        other.set_results([result | {"shareID": f"{share}2"}])
        found = [*await one.prepare(), *(second := await other.prepare())]
        if len({each.share_id for each in found}) < 2:
            raise Broken(
                f"the share IDs are {', '.join(each.share_id or 'empty' for each in found)}"
            )
        alone.set_results([result])
        if not await _is_refused(alone):
            raise Broken(f"{shared[0]} was prepared exclusively beside its shares")
        await one.unprepare()
        node.files.must_resolve(cdi_ids(second), "when one share ended: ")
        if await other.prepare() != second:
            raise Broken("when one share ended, the other has another answer")
        await other.unprepare()
        await alone.prepare()
        if not await _is_refused(one):
            raise Broken(f"a share of {shared[0]} was prepared beside its only holder")
    return f"two shares of {shared[0]}"


async def _is_refused(claim: TestClaim) -> bool:
    """Whether a claim for a held device gets an error, or has to wait."""
    call = asyncio.create_task(claim.try_prepare(), name="Prepare of a held device")
    try:
        await claim.node.until(call.done, _WAITS)
        return not call.done() or isinstance(await call, str)
    finally:
        call.cancel()
