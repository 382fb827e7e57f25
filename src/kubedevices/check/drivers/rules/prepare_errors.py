"""Prepare while the API server is slow or refuses, and what a driver says when it refuses."""

import asyncio

from kubedevices.check.check import FAIL, WARN, Broken, Harm, Theme
from kubedevices.check.drivers.claims import TestClaim
from kubedevices.check.drivers.cluster import everywhere, on_claims
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.target import TOKEN
from kubedevices.testing.api_server.faults import SILENCE, ApiFault

theme = Theme("prepare", harm=Harm.POD, needs=("prepare.answers",))
slow = Theme("prepare", harm=Harm.POD, needs=("prepare.answers",), track="prepare.slow-api")
_PARTS = 6
"""A slow API server needs the kubelet's deadline, divided by this, for each answer."""

_FORBIDDEN = ApiFault(403, "forbidden by the check", "Forbidden")
_FAILED = ApiFault(500, "internal error", "InternalError")


@slow.check(
    "slow-api",
    FAIL,
    suffers="The kubelet cancels the call after 45 s and tries again only after a minute.",
    source="kubelet: deadline of 45 s; kubelet tries again after 65 to 90 s",
    mend="Give the request for the claim a deadline, and answer with an error for this claim.",
)
async def slow_api(node: DriverNode) -> str:
    """When the claim is read slowly or cannot be read, Prepare answers in time with devices or with
    an error, and a retry succeeds.
    """
    late = ApiFault(200, delay=node.timing.call / _PARTS)
    seen = []
    for what, fault in {"slow": late, "500": _FAILED, "403": _FORBIDDEN}.items():
        async with TestClaim(node).allocate() as claim:
            with node.cluster.broken(on_claims(fault)):
                answer = await claim.try_prepare()
            if answer == ():
                raise Broken(f"{what}: success without devices while the claim could not be read")
            await claim.prepare()
            seen.append(f"{what}: {'error' if isinstance(answer, str) else 'prepared'}")
    return ", ".join(seen)


@slow.check(
    "deadline",
    WARN,
    slow=True,
    suffers="The pod never starts: each call ends without an answer, or waits for the one before.",
    source="kubelet: deadline of 45 s for NodePrepareResources, then it cancels the call",
    mend="Give all work of a call one deadline below 45 s, and release locks when it is cancelled.",
)
async def deadline(node: DriverNode) -> str:
    """When each request to the API server is slow Prepare ends before the kubelet's deadline, and a
    call that the kubelet has cancelled does not block the next one.
    """
    async with TestClaim(node).allocate() as claim:
        with node.cluster.broken(everywhere(ApiFault(200, delay=node.timing.call / _PARTS))):
            await claim.try_prepare()
    async with TestClaim(node).allocate() as claim:
        with node.cluster.broken(on_claims(SILENCE)):
            call = asyncio.create_task(claim.try_prepare(), name="Prepare that is cancelled")
            await node.pause(node.timing.refusing)
            call.cancel()
            await asyncio.wait({call})
        await claim.prepare()
    return "in time, and prepared after a cancelled call"


@theme.check(
    "text",
    WARN,
    harm=Harm.OTHER,
    suffers="Nobody sees why a pod does not start; events are read by all users of a namespace.",
    source="kubelet: the error text is an event of the pod",
    mend="Name the device or the claim and the reason, and leave out requests and tokens.",
)
async def text(node: DriverNode) -> str:
    """The refusal of a device that does not exist names the device, and no refusal has a token."""
    async with TestClaim(node).allocate() as good, TestClaim(node) as claim:
        claim.set_results([good.results[0] | {"device": "no-such-device"}])
        refused = await claim.try_prepare()
        with node.cluster.broken(on_claims(_FORBIDDEN)):
            unread = await good.try_prepare()
        for each in (refused, unread):
            if isinstance(each, str) and TOKEN in each:
                raise Broken("a refusal has the token of the kubeconfig")
        if isinstance(refused, str) and "no-such-device" not in refused:
            raise Broken(f"the device is no-such-device, but the refusal only says: {refused}")
    return str(refused)
