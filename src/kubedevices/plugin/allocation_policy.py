"""Ready policies for GetPreferredAllocation: none, balanced, packed, distributed. Pure.

For devices of which several share one physical device, such as the replicas `card0-0`, `card0-1`.
Used through `PolicyAllocator`, or by calling `choose` in a `get_preferred_allocation` of one's own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kubedevices.allocation import PreferredAllocationRequest, PreferredAllocationResponse
from kubedevices.device import natural_key
from kubedevices.errors import ImpossiblePreference, UsageError
from kubedevices.plugin.capabilities import PreferredAllocator

Physical: TypeAlias = Callable[[str], str]


def physical_device(device_id: str) -> str:
    """Return the physical device that `device_id` is a share of, after the usual spellings.

    `card0` for `card0-1` and for `card0::1`; any other ID is a physical device of its own.
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
    """Return `size` of the `available` device IDs: those of `must_include`, then the policy's.

    Both parts come in natural order, whatever the order of the arguments. `total` says how many
    shares each physical device has in all, for `distributed`; it defaults to those available.
    Raises `ImpossiblePreference` if `size` devices are not available.
    """
    _check_policy(policy)
    every = sorted(set(available), key=natural_key)
    picked = sorted(set(must_include), key=natural_key)
    if problem := _size_problem(every, picked, size):
        raise ImpossiblePreference(size, len(every), problem)
    shares = _Shares(every, picked, physical, total or {})
    chosen = POLICIES[policy](shares, size - len(picked))
    return picked + sorted(chosen, key=natural_key)


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
    """The device IDs still free, by physical device; what a policy chooses from."""

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
        # What is picked already is still part of `available`: `picks` counts it as in use.
        seen = Counter(physical(device_id) for device_id in available)
        self.in_use = {name: max(0, total.get(name, 0) - seen[name]) for name in self.free}

    def take_from(self, order: Callable[[str], object]) -> str:
        """Take the first free ID of the physical device that `order` puts first."""
        candidates = (name for name, free in self.free.items() if free)
        name = min(candidates, key=lambda name: (order(name), natural_key(name)))
        self.picks[name] += 1
        return self.free[name].pop(0)


def _none(shares: _Shares, count: int) -> list[str]:
    """One of each physical device, as far as that goes; then whatever comes first."""
    spread = [free[0] for name, free in shares.free.items() if free and not shares.picks[name]]
    chosen = spread[:count]
    rest = sorted(set().union(*shares.free.values()).difference(chosen), key=natural_key)
    return chosen + rest[: count - len(chosen)]


def _balanced(shares: _Shares, count: int) -> list[str]:
    """From the physical device with the most free shares, again and again."""
    return [shares.take_from(lambda name: -len(shares.free[name])) for _ in range(count)]


def _packed(shares: _Shares, count: int) -> list[str]:
    """Take from a physical device until it is used up, then from the next in natural order."""
    return [device_id for free in shares.free.values() for device_id in free][:count]


def _distributed(shares: _Shares, count: int) -> list[str]:
    """From the physical device with the fewest shares in use, again and again."""

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
"""What each policy does is in the first line of its function's docstring."""


class PolicyAllocator(PreferredAllocator):
    """Gives a scanner `get_preferred_allocation` by the name of a policy.

    ::

        class Cards(kd.PolledScanner, PolicyAllocator):
            allocation_policy = "balanced"
    """

    allocation_policy: str = "none"

    def __init_subclass__(cls) -> None:
        """Refuse a misspelt policy when the class is made, not at the first allocation."""
        super().__init_subclass__()
        _check_policy(cls.allocation_policy)

    def physical_device(self, device_id: str) -> str:
        """Return the physical device behind an ID."""
        return physical_device(device_id)

    def count_shares(self) -> Mapping[str, int]:
        """Return the number of shares per physical device, held shares too; for `distributed`."""
        return {}

    def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Choose for every container of `request`."""
        total = self.count_shares()
        return PreferredAllocationResponse(
            tuple(
                choose(
                    self.allocation_policy,
                    container.available,
                    container.must_include,
                    container.size,
                    physical=self.physical_device,
                    total=total,
                )
                for container in request.containers
            )
        )
