"""What a driver publishes when a trigger changes devices."""

from kubedevices.check.check import FAIL, WARN, Broken, Fragile, Harm, NotTried, Theme
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.target import TRIGGERED
from kubedevices.check.drivers.trigger_record import PublishedState, change_of, published
from kubedevices.errors.words import counted

theme = Theme("slices", track=TRIGGERED, harm=Harm.WRONG_DEVICE)
_MOST = 128
"""Devices in a slice; 64 if one of them has taints or consumes counters."""


@theme.check(
    "change-one",
    WARN,
    suffers="Each change of one device rewrites the whole pool: the scheduler sees it incomplete"
    " meanwhile.",
    source="KEP-5055: taints; k8s.io/dynamic-resource-allocation/resourceslice",
    mend="Update the slice that has the device, and leave the others.",
)
async def change_one(node: DriverNode) -> str:
    """A change of one device changes no other device, and no slice is made anew for it."""
    change = await change_of(node)
    before, after = change.before.devices, change.after.devices
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if not changed:
        raise NotTried("the trigger changed nothing that is published")
    if set(before) == set(after):
        anew = _uids(change.before) - _uids(change.after)
        if anew:
            what = counted(len(anew), "slice")
            raise Broken(f"{what} made anew for a change of {', '.join(changed)}")
        if len(changed) > 1:
            raise Fragile(f"the trigger changed {len(changed)} devices: {', '.join(changed)}")
    return f"{', '.join(changed[:4])} by {counted(change.writes, 'write')}"


@theme.check(
    "unhealthy",
    FAIL,
    suffers="Pods are sent to a broken device, or a device that is good again is never used.",
    source="KEP-5055: taints; KEP-4680: health",
    mend="Taint the device, leave it out, or report its health, and take that back.",
    seen="a driver whose taint stays",
)
async def unhealthy(node: DriverNode) -> str:
    """A bad device is tainted, away or reported as unhealthy, and good again after the undo."""
    change = await change_of(node)
    if change.restored is None:
        raise NotTried("needs --undo, which makes the device good again")
    if not change.news:
        raise NotTried("the trigger made no device bad: no taint, none away, none unhealthy")
    name, how = min(change.news.items())
    if change.restored.devices != change.before.devices:
        still = change.restored.bad.get(name) or "not as before"
        raise Broken(f"{name} is {still} {node.timing.change:g} s after the undo")
    return f"{name} is {how}, and as before after the undo"


@theme.check(
    "empty",
    WARN,
    harm=Harm.OTHER,
    suffers="On a node without devices the driver is in a crash loop, or offers what is not there.",
    source="k8s.io/dynamic-resource-allocation/resourceslice: a pool without devices has one slice",
    mend="Publish one slice without devices, or none, and stay registered.",
)
async def empty(node: DriverNode) -> str:
    """Without devices the driver starts and registers, with an empty slice or with none."""
    if not published(node).listed:
        return "it has no devices: one empty slice"
    if (await change_of(node)).after.listed:
        raise NotTried("needs a trigger that takes all devices away")
    await node.run_trigger()
    try:
        await node.until(lambda: not published(node).listed, node.timing.change)
        await node.relaunch()
        if not await node.until(node.is_connected, node.timing.start):
            raise Broken("without devices it does not register", node.last_words())
        await node.until_quiet()
        if not node.is_connected():
            raise Broken("without devices its process ended", node.last_words())
        if there := published(node).listed:
            raise Broken(f"it publishes {counted(there, 'device')} that it does not have")
        return "one empty slice" if published(node).slices else "no slice"
    finally:
        await node.undo_trigger()
        await node.until(lambda: published(node).listed, node.timing.change)


@theme.check(
    "generation",
    FAIL,
    harm=Harm.ALL_DEVICES,
    suffers="The scheduler takes old and new slices as one pool, or the pool as incomplete.",
    source="resource.k8s.io/v1 ResourcePool: generation, resourceSliceCount",
    mend="If the number of slices changes, write all of them with the next generation, and delete"
    " those of the one before.",
)
async def generation(node: DriverNode) -> str:
    """When the number of slices changes, all have a higher generation and the pool is complete."""
    change = await change_of(node)
    before, after = change.before, change.after
    if len(before.slices) == len(after.slices) or not after.slices:
        raise NotTried("the trigger does not change how many slices there are")
    if len(after.devices) < after.listed:
        raise Broken(f"the pool is not complete: {_generations(after)}")
    if min(_numbers(after)) < max(_numbers(after)):
        raise Broken(f"slices of an older generation are left: {_generations(after)}")
    if before.slices and min(_numbers(after)) <= max(_numbers(before)):
        raise Broken(f"before: {_generations(before)}; after: {_generations(after)}")
    return f"before: {_generations(before)}; after: {_generations(after)}"


@theme.check(
    "many",
    FAIL,
    harm=Harm.ALL_DEVICES,
    suffers="The API server refuses the slice: the node has no devices, or those from before.",
    source="resource.k8s.io/v1 ResourceSlice: at most 128 devices, 64 with taints or counters",
    mend="Split the devices, in a stable order, into slices of at most 128, or 64.",
)
async def many(node: DriverNode) -> str:
    """More devices than a slice can have are split into slices that the server accepts."""
    found = published(node)
    if found.listed <= _MOST:
        change = await change_of(node)
        if too_many := [text for text in change.refused if "Too many" in text]:
            raise Broken(f"the server refused a slice: {too_many[0]}")
        found = change.after
    if found.listed <= _MOST:
        raise NotTried(f"needs more than {_MOST} devices, at the start or after the trigger")
    if len(found.devices) < found.listed:
        raise Broken(f"the pool of {found.listed} devices is not complete")
    return f"{counted(found.listed, 'device')} in {counted(len(found.slices), 'slice')}"


def _uids(found: PublishedState) -> set[str]:
    return {each["metadata"]["uid"] for each in found.slices}


def _numbers(found: PublishedState) -> list[int]:
    return [each["spec"]["pool"]["generation"] for each in found.slices]


def _generations(found: PublishedState) -> str:
    return f"{counted(len(found.slices), 'slice')} of generation " + ", ".join(
        map(str, sorted({*_numbers(found)}))
    )
