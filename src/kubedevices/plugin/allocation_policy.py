"""Ready policies for GetPreferredAllocation: none, balanced, packed, distributed. Pure.

For devices that are shares of one physical device, such as the replicas `card0-0` and `card0-1`.
Inherit `PolicyAllocator`, or call `choose` in your own `get_preferred_allocation`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kubedevices.errors import ImpossiblePreference, UsageError
from kubedevices.plugin.capabilities import PreferredAllocator
from kubedevices.values.allocation import PreferredAllocationRequest, PreferredAllocationResponse
from kubedevices.values.device import natural_key

Physical: TypeAlias = Callable[[str], str]


def physical_device(device_id: str) -> str:
    """Return the physical device of `device_id`, by the usual forms of IDs.

    `card0` for `card0-1` and for `card0::1`; any other ID is a physical device itself.
    """
    if "::" in device_id:
        return device_id.partition("::")[0]
    return device_id.rpartition("-")[0] or device_id


def choose(
    policy: str,
    available: Iterable[str],
    must_include: Iterable[str],
    size: int,
    *,
    physical: Physical = physical_device,
    total: Mapping[str, int] | None = None,
) -> list[str]:
    """Return `size` of the `available` device IDs: `must_include`, then the choice of the policy.

    Both parts are in natural order, whatever the order of the arguments. `total`, used by
    `distributed`, is the number of all shares of each physical device; by default the number of
    available shares. Raises `ImpossiblePreference` if `size` devices are not available.
    """
    _check_policy(policy)
    every = sorted(set(available), key=natural_key)
    picked = sorted(set(must_include), key=natural_key)
    if problem := _size_problem(every, picked, size):
        raise ImpossiblePreference(size, len(every), problem)
    shares = _Shares(every, picked, physical, total or {})
    chosen = POLICIES[policy](shares, size - len(picked))
    return picked + sorted(chosen, key=natural_key)


def choose_all(
    policy: str,
    request: PreferredAllocationRequest,
    *,
    physical: Physical,
    total: Mapping[str, int] | None = None,
) -> PreferredAllocationResponse:
    """Return the answer to `request` by `choose`, for each container."""
    return PreferredAllocationResponse(
        tuple(
            choose(
                policy, each.available, each.must_include, each.size, physical=physical, total=total
            )
            for each in request.containers
        )
    )


def _check_policy(name: str) -> None:
    if name not in POLICIES:
        raise UsageError(f"unknown allocation policy {name!r} (one of {', '.join(POLICIES)})")


def _size_problem(every: list[str], picked: list[str], size: int) -> str:
    if size < 0 or size > len(every):
        return "there are not that many"
    if len(picked) > size:
        return f"{len(picked)} must be included"
    if foreign := sorted(set(picked).difference(every), key=natural_key):
        return f"{foreign[0]} must be included and is not available"
    return ""


class _Shares:
    """The free device IDs by physical device; a policy chooses from them."""

    def __init__(
        self, available: list[str], picked: list[str], physical: Physical, total: Mapping[str, int]
    ) -> None:
        taken = set(picked)
        self.free: dict[str, list[str]] = {}
        for device_id in available:
            free = self.free.setdefault(physical(device_id), [])
            if device_id not in taken:
                free.append(device_id)
        self.picks = Counter(physical(device_id) for device_id in picked)
        # `available` contains the picked devices, too; `picks` counts them as in use.
        seen = Counter(physical(device_id) for device_id in available)
        self.in_use = {name: max(0, total.get(name, 0) - seen[name]) for name in self.free}

    def take_from(self, order: Callable[[str], object]) -> str:
        """Take the first free ID of the physical device that `order` puts first."""
        candidates = (name for name, free in self.free.items() if free)
        name = min(candidates, key=lambda name: (order(name), natural_key(name)))
        self.picks[name] += 1
        return self.free[name].pop(0)


def _none(shares: _Shares, count: int) -> list[str]:
    """One share of each physical device, as far as possible; then in natural order."""
    spread = [free[0] for name, free in shares.free.items() if free and not shares.picks[name]]
    chosen = spread[:count]
    rest = sorted(set().union(*shares.free.values()).difference(chosen), key=natural_key)
    return chosen + rest[: count - len(chosen)]


def _balanced(shares: _Shares, count: int) -> list[str]:
    """Each share from the physical device that has the most free shares."""
    return [shares.take_from(lambda name: -len(shares.free[name])) for _ in range(count)]


def _packed(shares: _Shares, count: int) -> list[str]:
    """All shares of one physical device, then of the next in natural order."""
    return [device_id for free in shares.free.values() for device_id in free][:count]


def _distributed(shares: _Shares, count: int) -> list[str]:
    """Each share from the physical device that has the fewest shares in use."""

    def load(name: str) -> tuple[int, int]:
        picks = shares.picks[name]
        return shares.in_use[name] + picks, picks

    return [shares.take_from(load) for _ in range(count)]


POLICIES: Mapping[str, Callable[[_Shares, int], list[str]]] = {
    "none": _none,
    "balanced": _balanced,
    "packed": _packed,
    "distributed": _distributed,
}
"""The docstring of each function says what the policy does."""


class PolicyAllocator(PreferredAllocator):
    """Gives a scanner `get_preferred_allocation` by the name of a policy.

    ::

        class Cards(kd.PolledScanner, PolicyAllocator):
            allocation_policy = "balanced"
    """

    allocation_policy: str = "none"

    def __init_subclass__(cls) -> None:
        """Refuse a misspelt policy when the class is created, not at the first allocation."""
        super().__init_subclass__()
        _check_policy(cls.allocation_policy)

    def physical_device(self, device_id: str) -> str:
        """Return the physical device behind an ID."""
        return physical_device(device_id)

    def count_shares(self) -> Mapping[str, int]:
        """Return the number of shares per physical device, with held shares; for `distributed`."""
        return {}

    def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Choose for every container of `request`."""
        return choose_all(
            self.allocation_policy,
            request,
            physical=self.physical_device,
            total=self.count_shares(),
        )
