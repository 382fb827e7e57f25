"""The devices of one resource: their health, their NUMA nodes, and which devices are free.

Only the differences between two lists are applied (`list_plan`). So a health change among 100,000
devices takes little more time than reading the list. The inventory is the only user; it knows the
plugin instances.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from weakref import WeakSet

from kubedevices.node.inventory.free_devices import FreeDevices, mask_of_device
from kubedevices.node.inventory.list_plan import NO_CHANGE, ListChange, ListPlan
from kubedevices.node.pods.pod_devices import NO_NUMA_NODE
from kubedevices.values.device import Health, ReportedDevice

UNKNOWN = "Unknown"
"""The health of a device whose plugin is lost or does not list the device."""

_HEALTHY = Health.HEALTHY.value


class ResourceDevices:
    """The devices of one resource.

    `reserved` is a live view of the reservations: the IDs of the devices that are held by a
    container or reserved by an admission.
    """

    def __init__(self, reserved: Mapping[str, int]) -> None:
        self._reserved = reserved
        self._listed: Sequence[ReportedDevice] = ()
        self.devices: dict[str, ReportedDevice] = {}
        self.healthy: set[str] = set()
        self.is_live = False
        self.free = FreeDevices()
        self.counts: Counter[int] = Counter()
        # Counts the lists and the losses. A plan of another version is stale.
        self._version = 0
        # Plans that are worked out in slices. They record each reservation in the meantime.
        self._plans: WeakSet[ListPlan] = WeakSet()

    @property
    def capacity(self) -> int:
        """The number of devices."""
        return len(self.devices)

    @property
    def allocatable(self) -> int:
        """The number of healthy devices."""
        return len(self.healthy)

    def health(self, device_id: str) -> str:
        """Return Healthy, Unhealthy or Unknown. The kubelet calls an unknown device healthy."""
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
        """Record that `device_ids` are reserved now."""
        for plan in self._plans:
            plan.touched.update(device_ids)
        for device_id in device_ids:
            if device_id in self.healthy:
                self.free.discard(device_id, mask_of_device(self.devices[device_id]))

    def unblock(self, device_ids: Collection[str]) -> None:
        """Record that `device_ids` are not reserved any more."""
        for plan in self._plans:
            plan.touched.update(device_ids)
        for device_id in device_ids:
            if device_id in self.healthy:
                self.free.add(device_id, mask_of_device(self.devices[device_id]))

    # ------------------------------------------------------------ lists

    def lose(self) -> ListChange:
        """Record the loss of the plugin: no device is healthy, but all devices stay known."""
        self._version += 1
        # `devices` and `counts` stay: as in the kubelet, the capacity stays for the grace period.
        was_live, self.is_live = self.is_live, False
        self.healthy = set()
        self.free = FreeDevices()
        return ListChange(changed=tuple(self.devices)) if was_live else NO_CHANGE

    def plan(self, listed: Sequence[ReportedDevice]) -> ListPlan:
        """Begin a plan for a new list; `replace` applies the plan."""
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
        """Apply a new list with its plan; without a valid plan, compare the list in one step."""
        if plan is None or plan.change is None or plan.is_stale():
            plan = self.plan(listed)
            for _ in plan.steps():
                pass
        assert plan.change is not None
        self._version += 1
        self._listed = listed
        if plan.free is not None:
            self._apply(plan, plan.free)
        else:
            # First remove the devices with their old masks, then add them with their new masks,
            # because `counts` and `free` are stored by mask.
            for device in plan.gone:
                self._remove(device)
            if plan.devices is not None:
                self.devices = plan.devices
            for device in plan.come:
                self._add(device)
        return plan.change

    def _apply(self, plan: ListPlan, free: FreeDevices) -> None:
        assert plan.devices is not None
        self.devices, self.healthy, self.is_live = plan.devices, plan.healthy, True
        self.counts, self.free = plan.counts, free
        # `free` was filled in several slices. Apply the reservations that changed since then.
        for device_id in plan.touched & self.healthy:
            mask = mask_of_device(self.devices[device_id])
            if device_id in self._reserved:
                free.discard(device_id, mask)
            else:
                free.add(device_id, mask)

    def _remove(self, device: ReportedDevice) -> None:
        mask = mask_of_device(device)
        self.counts[mask] -= 1
        if not self.counts[mask]:
            del self.counts[mask]
        self.healthy.discard(device.id)
        self.free.discard(device.id, mask)

    def _add(self, device: ReportedDevice) -> None:
        mask = mask_of_device(device)
        self.devices[device.id] = device
        self.counts[mask] += 1
        if device.health == _HEALTHY:
            self.healthy.add(device.id)
            if device.id not in self._reserved:
                self.free.add(device.id, mask)
