"""Fields that an API server drops from what it stores because a feature gate is off. Pure.

The names and stages of the gates: Kubernetes 1.36, `pkg/registry/resource/resourceslice`.
"""

from collections.abc import Iterable

from kubedevices.api_stub.kinds import Object

_DEVICE_FIELDS = {
    "DRADeviceTaints": ("taints",),
    "DRAPartitionableDevices": ("consumesCounters", "nodeName", "nodeSelector", "allNodes"),
    "DRAConsumableCapacity": ("allowMultipleAllocations",),
    "DRADeviceBindingConditions": (
        "bindsToNode",
        "bindingConditions",
        "bindingFailureConditions",
    ),
}
_SLICE_FIELDS = {"DRAPartitionableDevices": ("sharedCounters", "perDeviceNodeSelection")}
GATES = tuple(_DEVICE_FIELDS)
_DEVICE_KEYS = {
    *("name", "attributes", "capacity", "consumesCounters", "taints", "allowMultipleAllocations"),
    *("nodeName", "nodeSelector", "allNodes", "nodeAllocatableResourceMappings"),
    *("bindsToNode", "bindingConditions", "bindingFailureConditions"),
}


def drop_fields(found: Object, gates_off: Iterable[str]) -> None:
    """Remove from a ResourceSlice what belongs to the gates that are off, and unknown fields."""
    for device in found["spec"].get("devices") or ():
        for name in device.keys() - _DEVICE_KEYS:
            del device[name]
    for gate in gates_off:
        for name in _SLICE_FIELDS.get(gate, ()):
            found["spec"].pop(name, None)
        for device in found["spec"].get("devices") or ():
            for name in _DEVICE_FIELDS[gate]:
                device.pop(name, None)
            if gate == "DRAConsumableCapacity":
                for capacity in device.get("capacity", {}).values():
                    capacity.pop("requestPolicy", None)
