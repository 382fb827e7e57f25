"""The IDs of devices in a file, for the next process. `host.device_names_file` has its form.

Several processes may serve different resources of one domain, so a process changes only its own,
under a lock. The file has resources that nobody serves any more, too: a pod may still hold their
devices. Blocking.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kubedevices.errors import CannotAsk
from kubedevices.expose.config import ResourceRule
from kubedevices.expose.found import Found, HostFile
from kubedevices.expose.recognition import DevicePart, Naming
from kubedevices.expose.removed_devices import Remembered
from kubedevices.host.device_names_file import names_file, served_id
from kubedevices.host.lock_holder import locked
from kubedevices.host.shared_directory import SharedDirectory

if TYPE_CHECKING:
    from kubedevices.host.state_file import StateFile

_LOCK_TIMEOUT = 5.0  # seconds; a writer needs milliseconds

FORMER_RESOURCES = 200
"""Most resources in the file that this process does not serve; the oldest are left out."""

_log = logging.getLogger(__name__)


class KeptResource(NamedTuple):
    """The devices of one resource by ID, and the key `id` by which they got their IDs."""

    id_style: str
    devices: Mapping[str, Remembered[DevicePart]]


Kept = Mapping[str, KeptResource]
"""By device type."""


class KeptNames:
    """The file of one domain in `state_dir`; without it, only this process remembers."""

    def __init__(self, domain: str = "", state_dir: Path | None = None) -> None:
        self._file: StateFile | None = None
        if state_dir is not None:
            self._directory = SharedDirectory(state_dir)
            self._file = names_file(self._directory, domain)
            self._lock = f"{self._file.path.name}.lock"
        self._resources: dict[str, KeptResource] | None = None
        self._saved: Mapping[str, Any] = {}
        self._problem = ""

    @property
    def resources(self) -> dict[str, KeptResource]:
        """What is known; reads the file first. A damaged file is logged and counts as none."""
        if self._resources is None:
            nothing: dict[str, KeptResource] = {}
            self._resources = nothing
            if self._file is not None:
                self._resources = self._file.read_or(resources_in, nothing)
        return self._resources

    def keep(self, device_type: str, kept: KeptResource) -> None:
        """Remember the devices of a resource that this process serves."""
        self.resources[device_type] = kept

    def save(self, served: Collection[str]) -> None:
        """Write the resources that this process serves, if they have changed.

        If the file cannot be written, this is logged once.
        """
        ours = {each: _document(self.resources[each]) for each in served}
        if self._file is None or ours == self._saved:
            return
        try:
            self._directory.create()
            with locked(self._directory, self._lock, _LOCK_TIMEOUT):
                # Read under the lock: another process may serve other resources of the domain.
                nothing: dict[str, Any] = {}
                there = self._file.read_or(_raw, nothing).items()
                others = [each for each in there if each[0] not in ours]
                kept = dict(others[-FORMER_RESOURCES:])
                self._file.write({"resources": kept | ours})
            self._saved, self._problem = ours, ""
        except (OSError, CannotAsk) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            if reason != self._problem:
                self._problem = str(reason)
                _log.warning(
                    "%s cannot be written (%s): after a restart, a device may get another ID while "
                    "a pod holds it; make the directory writable, or choose another --state-dir",
                    self._file.path, reason,
                )  # fmt: skip

    def restored(self, rule: ResourceRule, naming: Naming) -> dict[str, Remembered[DevicePart]]:
        """Return the devices of a resource for the memory; all of them are removed `now`.

        If `id` has changed, only devices that are held or cordoned keep their IDs.
        """
        kept = self.resources.get(rule.device_type)
        if kept is None:
            return {}
        devices = {key: each._replace(gone_at=naming.now) for key, each in kept.devices.items()}
        if kept.id_style == rule.id:
            return devices
        if rule.id == "index":
            return {}
        given = {_served(rule.name, kept.id_style, each): each for each in devices.values()}
        holds = naming.holds(rule.device_type)
        return {
            name: each._replace(thing=each.thing._replace(id=name))
            for name, each in given.items()
            if holds.of(name)
        }

    def former(self, rules: Iterable[ResourceRule]) -> Iterator[tuple[str, DevicePart]]:
        """Yield the devices of resources that are not served any more, or not with such IDs."""
        served = {rule.device_type: rule for rule in rules}
        for device_type, kept in self.resources.items():
            rule = served.get(device_type)
            if rule is None or (rule.id == "index" != kept.id_style):
                for each in kept.devices.values():
                    name = _served(device_type, kept.id_style, each)
                    yield device_type, each.thing._replace(id=name)


def _served(name: str, id_style: str, device: Remembered[DevicePart]) -> str:
    return served_id(name, id_style, device.thing.id, device.number)


def resources_in(document: Any) -> dict[str, KeptResource]:
    """Return the content of the file; raises an error of Python for another document."""
    return {
        device_type: KeptResource(
            str(resource["id"]), {device["id"]: _device(device) for device in resource["devices"]}
        )
        for device_type, resource in document["resources"].items()
    }


def _raw(document: Any) -> dict[str, Any]:
    resources_in(document)
    return dict(document["resources"])


def _device(said: Mapping[str, Any]) -> Remembered[DevicePart]:
    texts = {key: said[key] for key in ("id", "path", "file", "port")}
    if not all(isinstance(each, str) for each in (*texts.values(), *said["names"])):
        raise ValueError("a name is no text")
    if type(said["number"]) is not int or not texts["id"]:
        raise ValueError("a device has no number or no ID")
    return Remembered(
        DevicePart(
            texts["id"],
            Found(texts["path"], HostFile(("earlier", texts["id"]), texts["file"])),
            (),
            tuple(said["names"]),
            bool(said["replica"]),
            texts["port"],
        ),
        said["number"],
        gone_at=0.0,
        is_listed=bool(said["listed"]),
    )


def _document(kept: KeptResource) -> dict[str, Any]:
    return {
        "id": kept.id_style,
        "devices": [
            {
                "id": each.thing.id,
                "path": each.thing.found.path,
                "file": each.thing.found.file.real_path,
                "names": [*each.thing.names],
                "port": each.thing.port,
                "number": each.number,
                "replica": each.thing.had_replicas,
                "listed": each.is_listed,
            }
            for each in kept.devices.values()
        ],
    }
