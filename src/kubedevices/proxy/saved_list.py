"""The last lists of plugins on disk, so that `hold` can offer them after a reboot.

One file per resource inside, in `<state-dir>/lists`. A file has what a kubelet gets of each device,
and the options of the plugin: a kubelet asks for the options once, when the resource registers. The
file exists while the list counts: from the plugin's first list until `hold` after it left.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from kubedevices.errors import CannotRead
from kubedevices.host import deadlines
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.host.state_file import StateFile
from kubedevices.plugin import hook_threads
from kubedevices.values.allocation import PluginOptions
from kubedevices.values.device import Device, ForeignDevice
from kubedevices.values.resource_name import ResourceName

if TYPE_CHECKING:
    from kubedevices.proxy.plugin_scanner import PluginScanner
    from kubedevices.proxy.proxy_config import ProxyRule

SIZE_LIMIT = 64 * 2**20
"""Most bytes of a file, which has a list of 4 MiB as JSON at most."""

DIRECTORY = "lists"
_VERSION = 1
_ENDING = ".json"
_FILE_NAME = re.compile(rf"[^/]+{re.escape(_ENDING)}")

_log = logging.getLogger(__name__)


class SavedList(NamedTuple):
    """The devices of one resource in their order, and which calls the plugin offers."""

    devices: tuple[Device, ...]
    options: PluginOptions = PluginOptions()


class SavedLists:
    """The files of all resources; `rule_of` returns the rule in force of a resource inside.

    A rule with a pattern saves each resource that it matches in a file of its own.
    """

    def __init__(self, state_dir: Path, rule_of: "Callable[[str], ProxyRule | None]") -> None:
        self._directory, self._rule_of = SharedDirectory(state_dir, DIRECTORY), rule_of
        self._saved: dict[str, SavedList] = {}
        self._files: dict[str, StateFile] = {}
        self._wake = asyncio.Event()

    def load(self) -> Mapping[str, SavedList]:
        """Return the lists to offer before their plugins are back; files of no rule are removed."""
        found: dict[str, SavedList] = {}
        try:
            names = self._directory.names(_FILE_NAME)
        except OSError as error:
            _log.warning("cannot read %s: %s", self._directory.path, error.strerror)
            return found
        for name in names:
            file = self._at(name)
            try:
                resource, saved = file.read(_parse)
            except FileNotFoundError:
                continue
            except CannotRead as error:
                _log.warning("%s: its devices are offered when the plugin is back", error)
                continue
            rule = self._rule_of(resource)
            if rule is None or not rule.hold_over_reboot:
                with contextlib.suppress(OSError):
                    file.remove()
            elif file.path == self._file(resource).path:
                found[resource] = saved
        if found:
            _log.info("offering the saved lists of %s", ", ".join(found))
        self._saved |= found
        return found

    def look_again(self) -> None:
        """Save what has changed, soon."""
        self._wake.set()

    async def keep(self, plugins: "Mapping[str, PluginScanner]") -> NoReturn:
        """Save the list of each plugin whose rule says so, and remove lists that count no more."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            ends = []
            for name, plugin in [*plugins.items()]:
                rule, now = self._rule_of(name), loop.time()
                since = plugin.presence.away_since(now)
                wanted: SavedList | None = None
                if plugin.has_list and rule is not None and rule.hold_over_reboot:
                    end = None if since is None else since + (rule.hold or 0.0)
                    if end is None or now < end:
                        wanted = SavedList((*plugin.list.devices.values(),), plugin.options)
                        ends += [] if end is None else [end]
                await self._save(name, wanted)
            for name in [*self._saved.keys() - plugins.keys()]:
                await self._save(name, None)
            await deadlines.until(min(ends, default=None), self._wake.wait())

    async def _save(self, resource: str, wanted: SavedList | None) -> None:
        if wanted == self._saved.get(resource):
            return
        file = self._file(resource)
        try:
            if wanted is None:
                await hook_threads.call(file.remove)
                self._files.pop(file.path.name, None)
                del self._saved[resource]
            else:
                await hook_threads.call(file.write, document_of(resource, wanted))
                self._saved[resource] = wanted
        except OSError as error:
            _log.warning("the list of %s cannot be saved for the next boot: %s", resource, error)

    def _file(self, resource: str) -> StateFile:
        return self._at(f"{resource.replace('/', '_', 1)}{_ENDING}")

    def _at(self, name: str) -> StateFile:
        if name not in self._files:
            file = StateFile(self._directory, name, limit=SIZE_LIMIT, version=_VERSION)
            self._files[name] = file
        return self._files[name]


def document_of(resource: str, saved: SavedList) -> dict[str, Any]:
    """Return the content of a file, for JSON."""
    return {
        "resource": resource,
        "options": saved.options._asdict() | {"unknown": saved.options.unknown.hex()},
        "devices": [*map(_row, saved.devices)],
    }


def _parse(document: Any) -> tuple[str, SavedList]:
    resource = str(ResourceName.parse(document["resource"]))
    devices = tuple(map(_device, document["devices"]))
    given = document["options"]
    options = PluginOptions(
        bool(given["pre_start_required"]),
        bool(given["get_preferred_allocation_available"]),
        bytes.fromhex(given["unknown"]),
    )
    return resource, SavedList(devices, options)


def _row(device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "health": str(device.health),
        "numa_nodes": device.numa_nodes and [*device.numa_nodes],
        "unknown": device.unknown.hex(),
        "topology": device.topology.hex(),
    }


def _device(row: Any) -> Device:
    unknown, topology = bytes.fromhex(row["unknown"]), bytes.fromhex(row.get("topology", ""))
    known = {"health": row["health"], "numa_nodes": row["numa_nodes"]}
    return (
        ForeignDevice(row["id"], **known, unknown=unknown, topology=topology)
        if unknown or topology
        else Device(row["id"], **known)
    )
