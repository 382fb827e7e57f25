"""The CDI device of a device: its definition in a CDI file, and its name in the answer to Allocate.

For `cdi` and `served_type`. Loaded only if a container gets a device by CDI. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from kubedevices.plugin.allocate_response import Inject
from kubedevices.values.cdi import CdiDevice, CdiName, ContainerEdits, device_name_of, edits_of
from kubedevices.values.device import Device


def cdi_device(device: Device) -> CdiDevice | None:
    """Return the CDI device that a file must define for `device`.

    A device without `cdi` becomes a CDI device with its device files and mounts. None if the device
    names a CDI device of another program, or has neither files nor mounts.
    """
    given = device.cdi
    if given is None:
        given = edits_of(devices=device.all_specs, mounts=device.mounts)
    if isinstance(given, str) or given == ContainerEdits():
        return None
    if isinstance(given, ContainerEdits):
        return CdiDevice(device_name_of(device.id), container_edits=given)
    assert isinstance(given, CdiDevice)
    return given if given.name else replace(given, name=device_name_of(device.id))


def leaves_by_cdi(device: Device, inject: Inject) -> bool:
    """Whether a container gets `device`, or a part of it, by naming a CDI device."""
    return inject == "cdi" or (inject == "both" and device.cdi is not None)


class AnswerForm:
    """Changes devices for the default answer to Allocate: `cdi` becomes the name of a CDI device.

    With `inject="cdi"` the files and mounts of such a device come only from its CDI device.
    """

    def __init__(self, kind: str, inject: Inject) -> None:
        self._kind, self._inject = kind, inject
        self._known: dict[str, tuple[Device, Device]] = {}

    def complete(self, devices: Mapping[str, Device]) -> dict[str, Device]:
        """Return every device in this form, by ID; unchanged devices (same objects) are reused."""
        known: dict[str, tuple[Device, Device]] = {}
        for device in devices.values():
            before = self._known.get(device.id)
            is_same = before is not None and before[0] is device
            known[device.id] = before if before and is_same else (device, self._form(device))
        self._known = known
        return {name: form for name, (_, form) in known.items()}

    def _form(self, device: Device) -> Device:
        if not leaves_by_cdi(device, self._inject):
            return device if device.cdi is None else replace(device, cdi=None)
        defined = cdi_device(device)
        name = device.cdi if defined is None else str(CdiName.of(self._kind, defined.name))
        if name is None:
            return device
        if self._inject == "cdi":
            return replace(device, cdi=name, paths=(), specs=(), mounts=())
        return device if name == device.cdi else replace(device, cdi=name)
