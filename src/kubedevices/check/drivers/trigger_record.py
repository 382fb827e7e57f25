"""What one run of the trigger changed; several rules judge this record."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kubedevices.check.check import NotTried
from kubedevices.check.drivers.node import DriverNode
from kubedevices.values.scheduling.kinds import Object


class PublishedState(NamedTuple):
    """What the driver said at one moment.

    devices  the devices of complete pools, by name
    slices   all its slices
    sick     the devices that the last health list calls unhealthy, with their messages
    """

    devices: Mapping[str, Object]
    slices: Sequence[Object]
    sick: Mapping[str, str]

    @property
    def bad(self) -> dict[str, str]:
        """How the driver tells that a device is bad, by its name."""
        found = dict.fromkeys(self.sick, "unhealthy")
        tainted = (name for name, device in self.devices.items() if device.get("taints"))
        return found | dict.fromkeys(tainted, "tainted")

    @property
    def listed(self) -> int:
        """The number of entries in all slices, those of incomplete pools too."""
        return sum(len(each["spec"].get("devices") or ()) for each in self.slices)


class TriggeredChange(NamedTuple):
    """Before the trigger, after it, and after its undo: None without --undo.

    refused  texts of slices that the API server refused meanwhile
    writes   how often the driver wrote slices after the trigger
    """

    before: PublishedState
    after: PublishedState
    restored: PublishedState | None
    refused: Sequence[str]
    writes: int

    @property
    def news(self) -> dict[str, str]:
        """How the driver tells that a device became bad, by its name."""
        gone = dict.fromkeys(self.before.devices.keys() - self.after.devices.keys(), "away")
        old = self.before.bad
        return gone | {name: how for name, how in self.after.bad.items() if old.get(name) != how}


def published(node: DriverNode) -> PublishedState:
    """Return what the driver says now."""
    slices = [each for each in node.cluster.slices() if each["spec"]["driver"] == node.driver]
    return PublishedState(node.cluster.devices(node.driver), slices, node.sick())


async def change_of(node: DriverNode) -> TriggeredChange:
    """Return what the trigger changes; it runs once, for the first rule that asks.

    Raises `NotTried` without a trigger, and if the trigger changes nothing or ends the driver.
    """
    if node.record is None:
        node.record = await _record(node)
    assert isinstance(node.record, TriggeredChange)
    return node.record


async def _record(node: DriverNode) -> TriggeredChange:
    before, since = published(node), len(node.cluster.api.requests)
    refused = len(node.cluster.store.refused)

    def is_as_before() -> bool:
        now = published(node)
        return now.devices == before.devices and now.sick.keys() == before.sick.keys()

    await node.run_trigger()
    await node.until(
        lambda: not is_as_before() or len(node.cluster.store.refused) > refused,
        node.timing.change,
    )
    await node.until_quiet()
    after, texts = published(node), node.cluster.store.refused[refused:]
    writes = len(node.cluster.writes(since))
    is_undone = await node.undo_trigger()
    await node.until(is_as_before, node.timing.change)
    if node.how_ended():
        raise NotTried("its process ended when the devices changed")
    if after[:2] == before[:2] and after.sick == before.sick and not texts:
        raise NotTried("the trigger changed nothing: no device, no taint, no health")
    return TriggeredChange(before, after, published(node) if is_undone else None, texts, writes)
