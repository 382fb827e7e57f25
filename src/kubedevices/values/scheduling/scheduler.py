"""Allocates devices to a claim, as a scheduler of Kubernetes 1.36 with default gates. Pure.

It tries pools by driver and name, slices by name, and devices in the order of their lists, and
takes the first combination that fits all requests and constraints of the claim. One request takes a
device once, also a device that allows multiple allocations. A device with binding conditions is
refused with a message: nobody here would wait for them. DeviceTaintRules are not known.

Source: k8s.io/dynamic-resource-allocation, `structured/internal/incubating`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from kubedevices.values.scheduling.allocation import allocation_of, share_number
from kubedevices.values.scheduling.capacities import Consumed, Key
from kubedevices.values.scheduling.constraints import Constraint
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.pools import (
    NodePool,
    PoolDevice,
    complete_devices,
    consumed,
    gather,
)
from kubedevices.values.scheduling.wishes import ChosenDevice, NotAllocatable, Wish

__all__ = ["NotAllocatable", "PoolDevice", "allocate", "complete_devices"]

_MOST_RESULTS = 32


def allocate(
    claim: Object,
    *,
    node: Object,
    slices: Iterable[Object],
    claims: Iterable[Object],
    classes: Mapping[str, Object],
) -> Object:
    """Return `status.allocation` on a node beside all `claims`; raises `NotAllocatable`."""
    results = [*_results(claims)]
    held = [each for each in results if not each.get("adminAccess")]
    search = _Search(claim, gather(slices, node), node, held, classes)
    found = search.run()
    share = max(map(share_number, results), default=0)
    wishes = [each for each in search.selected if each is not None]
    return allocation_of(claim, found, wishes, node["metadata"]["name"], share)


class _Search:
    """The search for one claim: what is chosen so far, and what others have."""

    def __init__(
        self,
        claim: Object,
        pools: list[NodePool],
        node: Object,
        held: list[Object],
        classes: Mapping[str, Object],
    ) -> None:
        self._spec = claim["spec"].get("devices") or {}
        self._pools, self._node, self._classes = pools, node, classes
        self._usable = [each for pool in pools if not pool.problem for each in pool.devices]
        self._taken = {_key(each) for each in held if not each.get("shareID")}
        self._consumed = Consumed(each for each in held if each.get("shareID"))
        self._shared = {_key(each) for each in held if each.get("shareID")}
        self._chosen: list[ChosenDevice] = []
        self._counted: list[PoolDevice] = []
        self._constraints = [Constraint(each) for each in self._spec.get("constraints") or ()]
        self._wishes = [[*self._alternatives(each)] for each in self._spec.get("requests") or ()]
        self.selected: list[Wish | None] = [None] * len(self._wishes)

    def run(self) -> list[ChosenDevice]:
        """Return the first combination of devices that fits; raises `NotAllocatable`."""
        if unknown := [each for each in self._constraints if not each.kind]:
            raise NotAllocatable(f"{len(unknown)} constraints are of no kind that is known here")
        if sum(min(each.count for each in wishes) for wishes in self._wishes) > _MOST_RESULTS:
            raise NotAllocatable(f"a claim can have at most {_MOST_RESULTS} devices")
        if not self._request(0):
            raise NotAllocatable(self._why())
        for each in self._chosen:
            if each.offered.device.get("bindingConditions"):
                raise NotAllocatable(
                    f"the device {each.offered.device['name']} has binding conditions, for which "
                    "this stand-in for a scheduler does not wait"
                )
        return self._chosen

    def _alternatives(self, request: Object) -> Iterator[Wish]:
        for each in request.get("firstAvailable") or [request["exactly"]]:
            name = request["name"]
            if "firstAvailable" in request:
                name = f"{name}/{each['name']}"
            class_name = each["deviceClassName"]
            if class_name not in self._classes:
                problem = f"the DeviceClass {class_name} does not exist"
                raise NotAllocatable(f"request {name}: {problem}")
            wish = Wish(name, each, self._classes[class_name])
            if each.get("allocationMode") == "All":
                wish.every = [*self._every(wish)]
            yield wish

    def _every(self, wish: Wish) -> Iterator[PoolDevice]:
        for pool in self._pools:
            if pool.problem:
                problem = f"asks for all devices, but the pool {pool} is {pool.problem}"
                raise NotAllocatable(f"request {wish.name}: {problem}")
            for each in pool.devices:
                if wish.selects(each, self._node) and self._share(wish, each) is not None:
                    yield each

    # ------------------------------------------------------------ search

    def _request(self, number: int) -> bool:
        """Choose devices for a request and all later ones; return whether that was possible."""
        if number == len(self._wishes):
            return True
        for wish in self._wishes[number]:
            if self._device(number, wish, 0, 0):
                self.selected[number] = wish
                return True
        return False

    def _device(self, number: int, wish: Wish, count: int, start: int) -> bool:
        """Choose one more device for a wish, from the place `start` on, and all that follows."""
        if wish.every is not None and not wish.every:
            return False
        if count >= wish.count:
            return self._request(number + 1)
        if len(self._chosen) + wish.count - count > _MOST_RESULTS:
            return False
        places = (
            enumerate(self._usable[start:], start)
            if wish.every is None
            else [(0, wish.every[count])]
        )
        for place, offered in places:
            undo = self._take(wish, offered)
            if undo is None:
                continue
            if self._device(number, wish, count + 1, place + 1):
                return True
            undo()
        return False

    def _take(self, wish: Wish, offered: PoolDevice) -> Callable[[], None] | None:
        """Choose a device; return how to undo that, or None if it does not fit."""
        if not self._is_open(wish, offered) or not wish.selects(offered, self._node):
            return None
        share = self._share(wish, offered)
        if share is None or not self._count(offered):
            return None
        # From here on, a scheduler 1.36 does not give the counters back if the device does not fit.
        if not wish.tolerates(offered) or not self._meets_constraints(wish, offered):
            return None
        key, is_shared = offered.key, _is_shared(offered)
        self._chosen.append(ChosenDevice(wish, offered, share if is_shared else None))
        if is_shared:
            self._consumed.add(key, share)

        def undo() -> None:
            self._chosen.pop()
            if is_shared:  # a scheduler 1.36 keeps the counters of a shared device, too
                self._consumed.remove(key, share)
            elif offered in self._counted:
                self._counted.remove(offered)
            for each in self._constraints:
                each.remove(wish.name)

        return undo

    def _is_open(self, wish: Wish, offered: PoolDevice) -> bool:
        """Return whether no other holds a device, or need not be asked."""
        if not wish.is_admin:
            return not self._is_in_use(offered.key)
        is_chosen = any(each.offered.key == offered.key for each in self._chosen)
        return _is_shared(offered) or not is_chosen

    def _meets_constraints(self, wish: Wish, offered: PoolDevice) -> bool:
        for number, constraint in enumerate(self._constraints):
            if not constraint.add(wish.name, offered.driver, offered.device):
                for before in self._constraints[:number]:
                    before.remove(wish.name)
                self._check_every(wish, offered, constraint)
                return False
        return True

    def _check_every(self, wish: Wish, offered: PoolDevice, constraint: Constraint) -> None:
        if wish.every is not None:
            problem = f"cannot add device {offered.device['name']}: constraint {constraint}"
            raise NotAllocatable(f"request {wish.name}: {problem}")

    def _is_in_use(self, key: Key) -> bool:
        return key in self._taken or any(
            each.offered.key == key and each.consumed is None for each in self._chosen
        )

    def _share(self, wish: Wish, offered: PoolDevice) -> dict[str, str] | None:
        return self._consumed.of_request(offered.key, offered.device, wish.spec)

    def _count(self, offered: PoolDevice) -> bool:
        """Consume the counters of a device; return False if its pool has too little left."""
        if not offered.counters() or self._is_counted(offered):
            return True
        if not self._fits_counters(offered):
            return False
        self._counted.append(offered)
        return True

    def _fits_counters(self, offered: PoolDevice) -> bool:
        pool = next(each for each in self._pools if (each.driver, each.name) == offered.key[:2])
        held = [
            *(each for each in (*pool.devices, *pool.elsewhere) if self._is_allocated(each.key)),
            *(each for each in self._counted if each.key[:2] == offered.key[:2]),
            offered,
        ]
        return all(value <= pool.counters[key] for key, value in consumed(pool, held).items())

    def _is_counted(self, offered: PoolDevice) -> bool:
        """Return whether a share of a device has its counters already."""
        return _is_shared(offered) and (
            offered.key in self._shared
            or any(each.offered.key == offered.key for each in self._chosen)
        )

    def _is_allocated(self, key: Key) -> bool:
        return key in self._taken or key in self._shared

    # ------------------------------------------------------------ why not

    def _why(self) -> str:
        """Return what each request finds alone."""
        self._counted.clear()
        found = [self._why_not(each) for wishes in self._wishes for each in wishes]
        if problems := [text for text, is_enough in found if not is_enough]:
            return "; ".join(problems)
        between = ", ".join(map(str, self._constraints))
        more = f" and constraints ({between})" if between else ""
        return f"no combination of devices fits all requests{more}"

    def _why_not(self, wish: Wish) -> tuple[str, bool]:
        selected = [each for each in self._usable if wish.selects(each, self._node)]
        free = [each for each in selected if self._is_free(wish, each)]
        if wish.every is not None:
            text = f"{len(free)} of {len(selected)} devices are free"
            return f"request {wish.name}: {text}", 0 < len(selected) == len(free)
        text = (
            f"{wish.count} wanted, {len(free)} free of {len(selected)} selected, "
            f"{len(self._usable)} published"
        )
        if waiting := [
            f"the pool {pool} is {pool.problem}" for pool in self._pools if pool.problem
        ]:
            text += f"; {', '.join(waiting)}"
        return f"request {wish.name}: {text}", len(free) >= wish.count

    def _is_free(self, wish: Wish, offered: PoolDevice) -> bool:
        return (
            (wish.is_admin or not self._is_in_use(offered.key))
            and self._share(wish, offered) is not None
            and wish.tolerates(offered)
            and (not offered.counters() or self._fits_counters(offered))
        )


def _is_shared(offered: PoolDevice) -> bool:
    return bool(offered.device.get("allowMultipleAllocations"))


def _results(claims: Iterable[Object]) -> Iterator[Object]:
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation") or {}
        yield from allocation.get("devices", {}).get("results", ())


def _key(result: Object) -> Key:
    return result["driver"], result["pool"], result["device"]
