"""The devices of one resource: health, NUMA nodes, and which of them are free.

One place for what a plugin listed, kept up to date by the difference between two lists
(`list_plan`), so that a health change among 100,000 devices costs little more than reading the
list. Only the inventory uses it; who is the plugin and since when it is gone is kept there.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from weakref import WeakSet

from kubedevices.device import Health, ReportedDevice
from kubedevices.node.inventory.free_devices import FreeDevices, mask_of_device
from kubedevices.node.inventory.list_plan import NO_CHANGE, ListChange, ListPlan
from kubedevices.node.pods.pod_devices import NO_NUMA_NODE

UNKNOWN = "Unknown"
"""Health of a device whose plugin is gone or no longer lists it."""

_HEALTHY = Health.HEALTHY.value


class ResourceDevices:
    """Everything known about the devices of one resource.

    `reserved` is a live view of the reservations: device IDs that are held or about to be.
    """

    def __init__(self, reserved: Mapping[str, int]) -> None:
        self._reserved = reserved
        self._listed: Sequence[ReportedDevice] = ()
        self.devices: dict[str, ReportedDevice] = {}
        self.healthy: set[str] = set()
        self.is_live = False
        self.free = FreeDevices()
        self.counts: Counter[int] = Counter()
        # Counts the lists and the losses: a plan that was begun at another version is stale.
        self._version = 0
        # Plans that are being worked out in slices, to be told of each reservation in the meantime.
        self._plans: WeakSet[ListPlan] = WeakSet()

    @property
    def capacity(self) -> int:
        """How many devices there are."""
        return len(self.devices)

    @property
    def allocatable(self) -> int:
        """How many devices are healthy."""
        return len(self.healthy)

    def health(self, device_id: str) -> str:
        """Return Healthy, Unhealthy or Unknown; a kubelet calls a missing device healthy."""
        device = self.devices.get(device_id)
        if device is None or not self.is_live:
            return UNKNOWN
        return Health.HEALTHY if device_id in self.healthy else Health.UNHEALTHY

    def per_numa(self, device_ids: Iterable[str]) -> dict[int, list[str]]:
        """Return `device_ids` by NUMA node; a device on several nodes is listed under each."""
        by_node: dict[int, list[str]] = {}
        for device_id in device_ids:
            device = self.devices.get(device_id)
            nodes = device.numa_nodes if device is not None else None
            for node in dict.fromkeys(nodes or (NO_NUMA_NODE,)):
                by_node.setdefault(node, []).append(device_id)
        return by_node

    # ------------------------------------------------------------ what is free

    def block(self, device_ids: Collection[str]) -> None:
        """Take note that `device_ids` became reserved."""
        for plan in self._plans:
            plan.touched.update(device_ids)
        for device_id in device_ids:
            if device_id in self.healthy:
                self.free.discard(device_id, mask_of_device(self.devices[device_id]))

    def unblock(self, device_ids: Collection[str]) -> None:
        """Take note that `device_ids` are no longer reserved."""
        for plan in self._plans:
            plan.touched.update(device_ids)
        for device_id in device_ids:
            if device_id in self.healthy:
                self.free.add(device_id, mask_of_device(self.devices[device_id]))

    # ------------------------------------------------------------ lists

    def lose(self) -> ListChange:
        """Take note that the plugin is gone: nothing is healthy, everything stays known."""
        self._version += 1
        # `devices` and `counts` stay: a kubelet keeps the capacity for the grace period too.
        was_live, self.is_live = self.is_live, False
        self.healthy = set()
        self.free = FreeDevices()
        return ListChange(changed=tuple(self.devices)) if was_live else NO_CHANGE

    def plan(self, listed: Sequence[ReportedDevice]) -> ListPlan:
        """Begin to work out what a new list changes; `replace` takes the plan over."""
        version = self._version
        plan = ListPlan(
            listed,
            before=self._listed,
            known=self.devices,
            is_live=self.is_live,
            reserved=self._reserved,
            is_stale=lambda: self._version != version,
        )
        self._plans.add(plan)
        return plan

    def replace(self, listed: Sequence[ReportedDevice], plan: ListPlan | None = None) -> ListChange:
        """Take a new list by its plan; without a valid plan the list is compared in one step."""
        if plan is None or plan.change is None or plan.is_stale():
            plan = self.plan(listed)
            for _ in plan.steps():
                pass
        assert plan.change is not None
        self._version += 1
        self._listed = listed
        if plan.free is not None:
            self._take_over(plan, plan.free)
        else:
            # Out with the old masks first, then in with the new ones: `counts` and `free` are kept
            # by mask.
            for device in plan.gone:
                self._take_out(device)
            if plan.devices is not None:
                self.devices = plan.devices
            for device in plan.come:
                self._put_in(device)
        return plan.change

    def _take_over(self, plan: ListPlan, free: FreeDevices) -> None:
        assert plan.devices is not None
        self.devices, self.healthy, self.is_live = plan.devices, plan.healthy, True
        self.counts, self.free = plan.counts, free
        # `free` was filled over several slices: what was reserved or freed since then is put right
        # here.
        for device_id in plan.touched & self.healthy:
            mask = mask_of_device(self.devices[device_id])
            if device_id in self._reserved:
                free.discard(device_id, mask)
            else:
                free.add(device_id, mask)

    def _take_out(self, device: ReportedDevice) -> None:
        mask = mask_of_device(device)
        self.counts[mask] -= 1
        if not self.counts[mask]:
            del self.counts[mask]
        self.healthy.discard(device.id)
        self.free.discard(device.id, mask)

    def _put_in(self, device: ReportedDevice) -> None:
        mask = mask_of_device(device)
        self.devices[device.id] = device
        self.counts[mask] += 1
        if device.health == _HEALTHY:
            self.healthy.add(device.id)
            if device.id not in self._reserved:
                self.free.add(device.id, mask)
