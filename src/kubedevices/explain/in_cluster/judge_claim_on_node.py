"""What the nodes of a cluster have for one claim. Pure.

The allocator of `values.scheduling` has the last word about a node; `device_reason` says why a
single device does not serve.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from kubedevices.errors import UsageError
from kubedevices.explain.in_cluster.device_reason import DeviceJudge, Reason, Stage
from kubedevices.explain.in_cluster.objects import ClusterObjects, alternatives_of
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.pools import PoolDevice
from kubedevices.values.scheduling.scheduler import NotAllocatable, allocate
from kubedevices.values.scheduling.wishes import Wish

_MOST_COMBINATIONS = 100_000
"""The allocator tries one combination after the other, and has no deadline."""


@dataclass
class WishFit:
    """The devices that a node has for a request or one of its alternatives."""

    wish: Wish
    devices: list[tuple[PoolDevice, Reason]]

    @property
    def matching(self) -> list[tuple[PoolDevice, Reason]]:
        """The devices that the selectors select."""
        return [each for each in self.devices if each[1].stage > Stage.BROKEN_SELECTOR]

    @property
    def free(self) -> int:
        """The number of devices that it could have."""
        return sum(reason.stage is Stage.FITS for _, reason in self.devices)

    @property
    def is_all(self) -> bool:
        """Whether it asks for all devices that match."""
        return self.wish.spec.get("allocationMode") == "All"

    @property
    def is_enough(self) -> bool:
        """Whether the request alone could be served."""
        if self.is_all:  # what has too little capacity is not among "all"
            small = (Stage.SIZE, Stage.CAPACITY)
            return 0 < self.free == sum(why.stage not in small for _, why in self.matching)
        return self.free >= self.wish.count


@dataclass
class NodeFit:
    """What one node has for a claim: for each request its alternatives.

    `allocation` is what the claim would get, `problem` why it gets nothing although there are
    enough devices for each request.
    """

    node: str
    requests: list[list[WishFit]]
    allocation: Object | None = None
    problem: str = ""
    is_tried: bool = True
    lacking: list[list[WishFit]] = field(default_factory=list)

    @property
    def is_broken(self) -> bool:
        """Whether a selector fails for a device, before the claim has all devices."""
        return self.allocation is None and any(
            reason.stage is Stage.BROKEN_SELECTOR
            for each in self.requests
            for one in each
            for _, reason in one.devices
        )


def fit(cluster: ClusterObjects, claim: Object, node: Object, judge: DeviceJudge) -> NodeFit:
    """Return what a node has for a claim; raises `Cause` if a DeviceClass does not exist."""
    requests = [[*_wishes(cluster, each)] for each in requests_of(claim)]
    pools, offered = cluster.pools_for(node), [*cluster.devices_for(node)]
    found = NodeFit(
        node["metadata"]["name"],
        [
            [
                WishFit(wish, [(each, judge.reason(wish, each, pools)) for each in offered])
                for wish in wishes
            ]
            for wishes in requests
        ],
    )
    found.lacking = [each for each in found.requests if not any(one.is_enough for one in each)]
    if found.lacking:
        return found
    tried = math.prod(
        sum(math.comb(one.free, min(one.wish.count, one.free)) for one in each)
        for each in found.requests
    )
    # For a device with binding conditions a scheduler waits, which the allocator cannot do.
    has_conditions = any(
        offered.device.get("bindingConditions") and why.stage is Stage.FITS
        for each in found.requests
        for one in each
        for offered, why in one.devices
    )
    if judge.is_blind or has_conditions or tried > _MOST_COMBINATIONS:
        found.is_tried = False
        return found
    try:
        found.allocation = allocate(
            claim,
            node=node,
            slices=cluster.slices_for(node),
            claims=cluster.claims_with(pools),
            classes=cluster.class_of,
        )
    except NotAllocatable as error:
        found.problem = str(error)
    except UsageError:  # without the runtime of CEL nothing is tried
        found.is_tried = False
    return found


def requests_of(claim: Object) -> list[Object]:
    """Return the requests of a claim."""
    return (claim["spec"].get("devices") or {}).get("requests") or []


def _wishes(cluster: ClusterObjects, request: Object) -> Iterator[Wish]:
    for each in alternatives_of(request):
        name = request["name"]
        if request.get("firstAvailable"):
            name = f"{name}/{each['name']}"
        # If classes could not be read, their selectors are not known: the notes say so.
        yield Wish(name, each, cluster.class_of.get(each.get("deviceClassName", ""), {}))
