"""Writes the CDI files of one plugin when its device tree changes. The runner owns this object.

The files are written before a list is sent, and checked at every Allocate call. They stay when the
plugin stops, because containers that run, or are started again, still need their names.
`host.cdi_inventory` writes the files; `host.cdi_specs.file_name` gives their names. A plugin
without CDI devices loads no module of CDI, and looks once into the directory.
"""

import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import TYPE_CHECKING

from kubedevices.errors import CdiWriteFailed, RpcError, StatusCode
from kubedevices.host import listing
from kubedevices.plugin import hook_threads
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.resource_name import ResourceName

if TYPE_CHECKING:
    from kubedevices.host.cdi_inventory import CdiInventory
    from kubedevices.plugin.cdi_form import AnswerForm
    from kubedevices.plugin.options import Settings
    from kubedevices.values.cdi import CdiDevice

_OURS = "kubedevices_*"
"""Our files: `host.cdi_specs.PREFIX`, repeated here because that module loads all of CDI."""

_HAS_CDI = attrgetter("cdi")

_log = logging.getLogger(__name__)


class CdiFiles:
    """Writes the CDI files of `domain`; `settings.inject` decides which devices are in them."""

    def __init__(self, domain: str, settings: "Settings") -> None:
        self._domain, self._settings, self._inject = domain, settings, settings.inject
        self._inventory: CdiInventory | None = None
        # Whether the files of an earlier process were examined. Without CDI this is not needed.
        self._is_clean = settings.inject == "nodes"

    async def follow(self, tree: DeviceTree) -> None:
        """Write the files for `tree`, before it is served. Raises `InvalidCdiSpec`."""
        if self._inject != "nodes" and (
            self._inventory is not None or self._uses_cdi(tree) or not self._is_clean
        ):
            await hook_threads.call(self._publish, tree)

    def answer_form(self, device_type: str) -> "AnswerForm":
        """Return the object that names the CDI devices of one type in answers to Allocate."""
        from kubedevices.plugin.cdi_form import AnswerForm  # noqa: PLC0415 - see above

        return AnswerForm(str(ResourceName(self._domain, device_type)), self._inject)

    async def ensure(self, names: list[str]) -> tuple[list[str], dict[str, str]]:
        """Check the files of these CDI devices, and write missing files again.

        Return the names that a container may get, and annotations with the same names. Raises
        `RpcError` if a file cannot be written; with `cdi_errors="log"` its names are left out
        instead.
        """
        if not names:
            return names, {}
        return await hook_threads.call(self._ensure, names)

    def close(self) -> None:
        """Release the locks on the files, for the next process; the files stay."""
        if self._inventory is not None:
            self._inventory.close()

    def needs_form(self, devices: Iterable[Device]) -> bool:
        """Whether `answer_form` would change any of `devices`."""
        return self._inject == "cdi" or any(map(_HAS_CDI, devices))

    def _uses_cdi(self, tree: DeviceTree) -> bool:
        if self._inject == "cdi":
            return len(tree) > 0
        ours = (kind for kind in tree if not tree.sent(kind))  # lists of other plugins have no CDI
        return any(any(map(_HAS_CDI, tree.devices(kind).values())) for kind in ours)

    # ------------------------------------------------------------ in threads

    def _has_files(self) -> bool:
        try:
            return bool(
                listing.names(self._settings.cdi_dir, lambda name: fnmatchcase(name, _OURS))
            )
        except OSError:
            return False

    def _publish(self, tree: DeviceTree) -> None:
        if self._uses_cdi(tree) or self._has_files():
            from kubedevices.host.cdi_inventory import CdiInventory  # noqa: PLC0415 - see above

            self._inventory = self._inventory or CdiInventory(
                self._settings.cdi_dir, on_error=self._settings.cdi_errors
            )
        if self._inventory is not None:
            definitions = self._definitions(tree)
            # In this order: names that containers still use are added before the files are
            # rewritten, and old files are removed only when the new files are on disk.
            self._add_names_in_use(tree, self._inventory, definitions)
            self._inventory.publish(definitions)
            if not self._is_clean:
                self._inventory.remove_dead({self._domain})
        self._is_clean = True

    def _definitions(self, tree: DeviceTree) -> "dict[str, list[CdiDevice]]":
        from kubedevices.host.device_links import with_real_files  # noqa: PLC0415 - see above
        from kubedevices.plugin.cdi_form import cdi_device, leaves_by_cdi  # noqa: PLC0415

        kinds: dict[str, dict[CdiDevice, None]] = {}
        for device_type in tree:
            kind = str(ResourceName(self._domain, device_type))
            for device in tree.devices(device_type).values():
                if not leaves_by_cdi(device, self._inject):
                    continue
                defined = cdi_device(with_real_files(device, self._settings.dev_root))
                if defined is not None:  # replicas may all have the same definition
                    kinds.setdefault(kind, {})[defined] = None
        return {kind: list(devices) for kind, devices in kinds.items()}

    def _add_names_in_use(
        self,
        tree: DeviceTree,
        inventory: "CdiInventory",
        definitions: "dict[str, list[CdiDevice]]",
    ) -> None:
        """Add the old definition of a device that still exists but is no CDI device any more.

        A container that got the name of its CDI device needs the name when it is started again.
        """
        from kubedevices.values.cdi import device_name_of  # noqa: PLC0415 - see above

        for device_type in tree:
            kind = str(ResourceName(self._domain, device_type))
            defined = definitions.get(kind, [])
            present = {device_name_of(device_id) for device_id in tree.devices(device_type)}
            present -= {each.name for each in defined}
            if present:
                kept = [each for each in inventory.defined(kind) if each.name in present]
                if kept:
                    definitions[kind] = [*defined, *kept]

    def _ensure(self, names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        names = tuple(names)
        if self._inventory is not None:
            try:
                names = self._inventory.ensure(names)
            except CdiWriteFailed as error:
                raise RpcError(StatusCode.INTERNAL, str(error)) from error
        return list(names), self._annotations(names) if self._settings.cdi_annotations else {}

    def _annotations(self, names: tuple[str, ...]) -> dict[str, str]:
        from kubedevices.values.cdi import annotations_for  # noqa: PLC0415 - see above

        kinds: dict[str, list[str]] = {}
        for name in names:
            kinds.setdefault(name.partition("=")[0], []).append(name)
        annotations: dict[str, str] = {}
        for kind, members in kinds.items():
            annotations |= annotations_for(kind, members)
        return annotations
