"""Device files and mounts of answers, written into CDI files of ours. Blocking.

A CDI device is named by what it gives, so equal answers have one, and a name means the same for
ever: containers are started again by their names, also after a restart of ours.
"""

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from kubedevices.cdi import CdiDevice, CdiName, edits_of, explain_kind
from kubedevices.device import DeviceSpec, Mount
from kubedevices.errors import CdiWriteFailed, RpcError, StatusCode, UsageError
from kubedevices.host.cdi_inventory import CdiInventory
from kubedevices.host.device_links import without_links
from kubedevices.host.sysfs import DEV_ROOT

KIND_SUFFIX = "-answer"
"""So that the kind is not that of devices which the framework itself says in CDI."""

DEVICES_LIMIT = 1000
"""CDI devices of one kind; the oldest answers beyond are forgotten."""

_HASH_DIGITS = 20


class AnswerCdi:
    """The CDI files for answers of the resources of `domain`. From any thread.

    Raises `UsageError` for a domain that CDI cannot have as a vendor.
    """

    def __init__(self, domain: str, directory: Path, *, dev_root: Path = DEV_ROOT) -> None:
        if problem := explain_kind(f"{domain}/any{KIND_SUFFIX}", strict=True):
            raise UsageError(f"inject with cdi: {problem}")
        self._domain, self._dev_root = domain, dev_root
        self._inventory = CdiInventory(directory)
        self._devices: dict[str, dict[str, CdiDevice]] = {}
        self._lock = threading.Lock()

    def begin(self, device_type: str) -> None:
        """Take over what an earlier life of ours published for a type."""
        with self._lock:
            kind = self._kind(device_type)
            if kind not in self._devices:
                self._devices[kind] = {each.name: each for each in self._inventory.defined(kind)}
                self._inventory.publish(self._published())

    def name_for(
        self, device_type: str, specs: Sequence[DeviceSpec], mounts: Sequence[Mount]
    ) -> str:
        """Return the name of a CDI device that gives these. Raises `RpcError`."""
        self.begin(device_type)
        kind = self._kind(device_type)
        edits = edits_of(devices=without_links(specs, dev_root=self._dev_root), mounts=mounts)
        # Named by the content: equal answers need one entry, and a name never changes its meaning.
        digest = hashlib.sha256(repr(edits).encode(errors="surrogateescape")).hexdigest()
        device = CdiDevice(digest[:_HASH_DIGITS], container_edits=edits)
        name = str(CdiName.of(kind, device.name))
        with self._lock:
            known = self._devices[kind]
            if device.name not in known:
                known[device.name] = device
                # A bound, because no call says when a container and its name are gone.
                for oldest in [*known][:-DEVICES_LIMIT]:
                    del known[oldest]
                self._inventory.publish(self._published())
            try:
                # Also for a known name: the file may have been removed meanwhile.
                self._inventory.ensure([name])
            except CdiWriteFailed as error:
                raise RpcError(StatusCode.INTERNAL, str(error)) from error
        return name

    def close(self) -> None:
        """Let the next process have the files; they stay."""
        self._inventory.close()

    def _kind(self, device_type: str) -> str:
        return f"{self._domain}/{device_type}{KIND_SUFFIX}"

    def _published(self) -> dict[str, list[CdiDevice]]:
        return {kind: [*devices.values()] for kind, devices in self._devices.items() if devices}
