"""Which devices a container gets. A pure decision: no plugin is called, and no state is changed.

The admission calls `plan` for each container and resource. If the plugin has to be asked for its
preference, `plan` returns the question; the admission asks the plugin, and calls `plan` again with
the answer and the state at that time. `admission.Reservation` reserves the devices.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kubedevices.errors import (
    DevicesNoLongerHealthy,
    DevicesUnavailable,
    NoHealthyDevices,
    RequestChanged,
    UnexpectedlyFewDevices,
    UnregisteredResource,
)
from kubedevices.errors.words import counted, some_of
from kubedevices.node.inventory.free_devices import mask_of_device
from kubedevices.node.inventory.inventory import Inventory, ResourceRecord
from kubedevices.node.pods.pod_devices import PodDevices
from kubedevices.values.allocation import ContainerPreferredRequest
from kubedevices.values.device import natural_key
from kubedevices.values.numa import mask_of


@dataclass(frozen=True)
class DeviceRequest:
    """A container requests `count` devices of a resource.

    `reusable` are the devices of the pod's plain init containers. `affinity` is the set of NUMA
    nodes that the topology manager chose, None if it chose none. `is_fixed`: the container keeps
    its devices, because the pod runs since before the start of the node (see `after_restart`).
    """

    pod_uid: str
    container: str
    resource: str
    count: int
    reusable: Collection[str] = ()
    affinity: Iterable[int] | None = None
    is_fixed: bool = False


class Chosen(NamedTuple):
    """The devices to reserve; `()` if no device has to be reserved.

    `missed` are the devices that the plugin preferred and that are not free.
    """

    device_ids: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


class AskPlugin(NamedTuple):
    """The plugin has to be asked for its preference; then `plan` is called with the answer."""

    request: ContainerPreferredRequest


Plan = Chosen | AskPlugin

NumaPart = Callable[[int], bool]
"""A method of `NumaSplit`: whether devices with this mask of NUMA nodes belong to the part."""


def plan(
    request: DeviceRequest,
    inventory: Inventory,
    pod_devices: PodDevices,
    *,
    answer: Sequence[str] | None = None,
) -> Plan:
    """Decide on the devices of one container and resource; raises `AllocationError`.

    `answer` is the preference of the plugin: `()` for none, None if the plugin was not asked.
    """
    held = pod_devices.device_ids(request.pod_uid, request.container, request.resource)
    if held and len(held) != request.count:
        raise RequestChanged(
            request.pod_uid, request.container, request.resource, len(held), request.count
        )
    if request.count == 0:
        return Chosen()
    record = inventory.record(request.resource)
    unverified = record is None or not record.has_reported
    # After a restart of the node, the pod keeps the devices that it held, until its plugin has sent
    # a list. `RestartGate` checks these devices before a container starts.
    if request.is_fixed or (held and unverified):
        return Chosen()
    if record is None or not record.is_listed:
        raise UnregisteredResource(request.resource)
    healthy = record.devices.healthy
    if not healthy:
        raise NoHealthyDevices(request.resource)
    if not healthy.issuperset(held):
        raise DevicesNoLongerHealthy(request.resource)
    return Chosen() if held else _choose(request, record, answer)


def _choose(request: DeviceRequest, record: ResourceRecord, answer: Sequence[str] | None) -> Plan:
    devices, free = record.devices, record.devices.free
    # The kubelet reuses devices of init containers without a check of their health.
    reusable = devices.healthy.intersection(request.reusable)
    chosen = dict.fromkeys(sorted(reusable, key=natural_key)[: request.count])
    needed = request.count - len(chosen)
    if not needed:
        return Chosen(tuple(chosen))
    if len(free) < needed:
        raise DevicesUnavailable(request.resource, needed, len(free))
    split = NumaSplit(request.affinity, devices.counts)
    aligned = free.count(split.is_aligned)
    # As in the kubelet: if there are more aligned devices than needed, the plugin chooses among the
    # aligned devices. Otherwise all aligned devices are taken, and the plugin chooses the rest.
    if needed < aligned:
        allowed = [split.is_aligned]
    else:
        chosen.update(dict.fromkeys(free.all(split.is_aligned) if aligned else ()))
        allowed = [split.is_unaligned, split.is_without_numa]
    if len(chosen) < request.count and answer is None and _wants_to_be_asked(record):
        offered = free.all(split.is_aligned) if needed < aligned else free.all()
        # The chosen devices are offered too: the API requires that the available devices contain
        # the devices that must be included.
        available = sorted({*offered, *chosen}, key=natural_key)
        return AskPlugin(ContainerPreferredRequest(tuple(available), tuple(chosen), request.count))
    _fill(chosen, request.count, (each for each in answer or () if _is_free(record, each, allowed)))
    few = len(chosen) < request.count
    missed = tuple(each for each in answer or () if few and each not in chosen)
    for part in allowed:
        if len(chosen) < request.count:
            _fill(chosen, request.count, free.first(request.count, part))
    if len(chosen) < request.count:
        raise UnexpectedlyFewDevices(request.count, len(chosen))
    return Chosen(tuple(chosen), missed)


def _wants_to_be_asked(record: ResourceRecord) -> bool:
    options = record.endpoint.options if record.endpoint is not None else None
    return options is not None and options.get_preferred_allocation_available


def _fill(chosen: dict[str, None], count: int, candidates: Iterable[str]) -> None:
    for device_id in candidates:
        if len(chosen) >= count:
            return
        chosen[device_id] = None


def _is_free(record: ResourceRecord, device_id: str, allowed: Iterable[NumaPart]) -> bool:
    device = record.devices.devices.get(device_id)
    if device is None:
        return False
    mask = mask_of_device(device)
    return record.devices.free.contains(device_id, mask) and any(part(mask) for part in allowed)


def check_preference(
    resource: str, asked: ContainerPreferredRequest, answer: Sequence[str]
) -> tuple[str, ...]:
    """Return the mistakes in a plugin's preference. `plan` uses the rest of the preference."""
    told = set(answer)
    if not told:
        return ()
    problems = []
    if len(told) < len(answer):
        problems.append("names a device twice")
    if unusable := told.difference(asked.available):
        problems.append(f"names devices that are not available: {_listed(unusable)}")
    if missing := set(asked.must_include) - told:
        problems.append(f"leaves out devices it must include: {_listed(missing)}")
    if len(told) != asked.size:
        problems.append(f"names {counted(len(told), 'device')} instead of {asked.size}")
    return tuple(f"{resource}: the preferred allocation {problem}" for problem in problems)


def _listed(device_ids: Iterable[str]) -> str:
    return some_of(sorted(device_ids, key=natural_key))


# ---------------------------------------------------------------- affinity


class NumaSplit:
    """Divides devices, by the bit mask of their NUMA nodes: aligned, unaligned, without NUMA node.

    `masks` are the masks of all devices of the resource. If `affinity` is None, or if no device of
    the resource has a NUMA node, all devices count as without NUMA node.
    """

    def __init__(self, affinity: Iterable[int] | None, masks: Iterable[int]) -> None:
        self._wanted = None if affinity is None or not any(masks) else mask_of(tuple(affinity))

    def is_aligned(self, mask: int) -> bool:
        """Whether devices with this mask are on at least one node of the affinity."""
        return self._wanted is not None and bool(mask & self._wanted)

    def is_unaligned(self, mask: int) -> bool:
        """Whether devices with this mask are only on nodes outside the affinity."""
        return self._wanted is not None and mask != 0 and not mask & self._wanted

    def is_without_numa(self, mask: int) -> bool:
        """Whether devices with this mask have no NUMA node, or no device has to be aligned."""
        return self._wanted is None or mask == 0
