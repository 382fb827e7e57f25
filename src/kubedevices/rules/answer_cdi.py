"""Writes device files and mounts of answers into CDI files of ours. Blocking.

The name of a CDI device is a hash of its content. So equal answers have the same CDI device, and a
name never changes its meaning: a runtime needs the names when it starts a container again, also
after a restart of our process.
"""

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from kubedevices.errors import CdiWriteFailed, RpcError, StatusCode, UsageError
from kubedevices.host.cdi_inventory import CdiInventory
from kubedevices.host.device_links import without_links
from kubedevices.host.sysfs import DEV_ROOT
from kubedevices.values.cdi import CdiDevice, CdiName, edits_of, explain_kind
from kubedevices.values.device import DeviceSpec, Mount

KIND_SUFFIX = "-answer"
"""Added to the kind: it must differ from the kind of devices that `plugin.cdi` defines."""

DEVICES_LIMIT = 1000
"""Most CDI devices of one kind; the oldest are removed."""

_HASH_DIGITS = 20


class AnswerCdi:
    """The CDI files for answers of the resources of `domain`. From any thread.

    Raises `UsageError` if `domain` cannot be a vendor in CDI.
    """

    def __init__(self, domain: str, directory: Path, *, dev_root: Path = DEV_ROOT) -> None:
        if problem := explain_kind(f"{domain}/any{KIND_SUFFIX}", strict=True):
            raise UsageError(f"inject with cdi: {problem}")
        self._domain, self._dev_root = domain, dev_root
        self._inventory = CdiInventory(directory)
        self._devices: dict[str, dict[str, CdiDevice]] = {}
        self._lock = threading.Lock()

    def begin(self, device_type: str) -> None:
        """Take over the CDI devices that an earlier process published for a type."""
        with self._lock:
            kind = self._kind(device_type)
            if kind not in self._devices:
                self._devices[kind] = {each.name: each for each in self._inventory.defined(kind)}
                self._inventory.publish(self._published())

    def name_for(
        self, device_type: str, specs: Sequence[DeviceSpec], mounts: Sequence[Mount]
    ) -> str:
        """Return the name of a CDI device with these files and mounts. Raises `RpcError`."""
        self.begin(device_type)
        kind = self._kind(device_type)
        edits = edits_of(devices=without_links(specs, dev_root=self._dev_root), mounts=mounts)
        digest = hashlib.sha256(repr(edits).encode(errors="surrogateescape")).hexdigest()
        device = CdiDevice(digest[:_HASH_DIGITS], container_edits=edits)
        name = str(CdiName.of(kind, device.name))
        with self._lock:
            known = self._devices[kind]
            if device.name not in known:
                known[device.name] = device
                # A limit is needed: no call says when a container is gone and its name unused.
                for oldest in [*known][:-DEVICES_LIMIT]:
                    del known[oldest]
                self._inventory.publish(self._published())
            try:
                # Also for a known name: somebody may have removed the file.
                self._inventory.ensure([name])
            except CdiWriteFailed as error:
                raise RpcError(StatusCode.INTERNAL, str(error)) from error
        return name

    def close(self) -> None:
        """Release the locks on the files, for the next process; the files stay."""
        self._inventory.close()

    def _kind(self, device_type: str) -> str:
        return f"{self._domain}/{device_type}{KIND_SUFFIX}"

    def _published(self) -> dict[str, list[CdiDevice]]:
        return {kind: [*devices.values()] for kind, devices in self._devices.items() if devices}
