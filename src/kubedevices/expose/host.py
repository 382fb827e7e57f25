"""Finds this host's devices for expose, by path, USB or PCI, and their stable names.

Blocking file access; for one thread at a time. `expose_tree` decides what to do with the devices.
"""

import itertools
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import NoVfioGroup
from kubedevices.expose.found import Found, HostFile
from kubedevices.expose.match_keys import Match, PciMatch, UsbMatch
from kubedevices.expose.path_patterns import PathPattern
from kubedevices.host import listing, pci, usb, vfio
from kubedevices.host.device_files import device_files_below
from kubedevices.host.pci import read_hex
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT, read_attribute
from kubedevices.values.device import natural_key

_log = logging.getLogger(__name__)

_DEPTH = 8
"""Most levels of directories below a directory that is one device."""

_NO_DEVICES = {
    stat.S_IFREG: "regular file",
    stat.S_IFDIR: "directory",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "pipe",
}


class _UsbName(NamedTuple):
    """Vendor, product, serial number or else port, and interface; the port alone."""

    text: str
    port: str
    has_serial: bool


class HostDevices:
    """The host's devices; a container may see the host's `/dev` at `dev_root`.

    Devices are character and block devices. Regular files count too, so that a configuration can be
    tested without root; a container runtime would refuse them. Directories, sockets and pipes never
    count.
    """

    def __init__(self, dev_root: Path = DEV_ROOT, sysfs_root: Path = SYSFS_ROOT) -> None:
        self._dev, self._sys = dev_root, sysfs_root
        self._dev_root = str(dev_root)
        self._by_id: dict[str, list[str]] | None = None
        self._usb_names: dict[HostFile, _UsbName | None] = {}
        self._warned: set[str] = set()

    def look_again(self) -> None:
        """Forget facts that may have changed since the last look."""
        self._by_id = None
        self._usb_names.clear()

    def find(self, match: Match) -> Iterator[Found]:
        """Yield every device that matches."""
        if match.path is not None:
            yield from self._by_path(match.path)
        elif match.directory is not None:
            yield from self._by_directory(match.directory)
        elif match.usb is not None:
            yield from self._by_usb(match.usb)
        elif match.pci is not None:
            yield from self._by_pci(match.pci)

    def identify(self, path: str) -> HostFile | None:
        """Return the device file at `path`, following links; None for anything else."""
        here = self.here(path)
        try:
            status = Path(here).stat()
        except OSError:
            return None
        real_path = self._there(os.path.realpath(here), path)
        kind = stat.S_IFMT(status.st_mode)
        if kind in {stat.S_IFCHR, stat.S_IFBLK}:
            return HostFile((kind, status.st_rdev), real_path)
        if kind == stat.S_IFREG:
            return HostFile((kind, status.st_dev, status.st_ino), real_path)
        return None

    def here(self, path: str) -> str:
        """Return the path at which this process sees `path` of the host."""
        if path == "/dev" or path.startswith("/dev/"):
            return self._dev_root + path.removeprefix("/dev")
        return path

    def _there(self, real: str, path: str) -> str:
        """Return the host's path of the file that this process sees at `real`.

        `path` is a path of the host that leads to the file.
        """
        if self._dev_root == "/dev":
            return real
        root = os.path.realpath(self._dev_root)
        if real.startswith(root + "/"):
            return "/dev" + real.removeprefix(root)
        return path if path.startswith("/dev/") else real

    # ------------------------------------------------------------ by path

    def _by_path(self, pattern: PathPattern) -> Iterator[Found]:
        for path in sorted(self.paths(pattern), key=natural_key):
            file, captures = self.identify(path), pattern.match(path)
            self._warn_of_no_device(path, file, is_named=not pattern.wildcards)
            if file is not None and captures is not None:
                yield Found(path, file, captures)

    def _by_directory(self, pattern: PathPattern) -> Iterator[Found]:
        """Yield one device for each directory with device files below it."""
        for directory in sorted(self.paths(pattern), key=natural_key):
            captures, name = pattern.match(directory), directory.removeprefix("/dev/")
            files = sorted(self._files_below(directory), key=_order)
            for found in self._found(files, "", _as_id(name.strip("/").replace("/", "-"))):
                yield found._replace(captures=captures or ())

    def _files_below(self, directory: str) -> Iterator[str]:
        """Yield the device files below a directory, without links: their targets are elsewhere."""
        root = Path(self.here(directory))
        try:
            entries = list(itertools.islice(listing.below(root, _DEPTH), listing.MATCH_LIMIT))
        except OSError:
            return
        for each in (Path(entry.path) for entry in entries):
            is_plain = _kind_of(str(each)) == stat.S_IFREG
            if not each.is_symlink() and not (is_plain and self._is_real()):
                yield f"{directory}/{each.relative_to(root)}"

    def _warn_of_no_device(self, path: str, file: HostFile | None, *, is_named: bool) -> None:
        """Warn once of a match that is not a device: mostly a program created it by mistake.

        A wildcard may match directories without a warning. Regular files are no mistake in a
        directory that only simulates /dev.
        """
        if path in self._warned:
            return
        identity = file.identity if file is not None else None
        kind = identity[0] if isinstance(identity, tuple) else _kind_of(self.here(path))
        if kind == stat.S_IFREG and not self._is_real():
            return
        if kind in _NO_DEVICES and (is_named or kind == stat.S_IFREG):
            self._warned.add(path)
            _log.warning(
                "%s is not a device but a %s: %s",
                path, _NO_DEVICES[kind],
                "a container with it would not start" if file is not None else "it is left out",
            )  # fmt: skip

    def _is_real(self) -> bool:
        """Whether this is the /dev of a host, not a directory for tests of a configuration."""
        return _kind_of(self.here("/dev/null")) == stat.S_IFCHR

    def paths(self, pattern: PathPattern) -> Iterator[str]:
        """Yield every path that matches; a wildcard does not match hidden names, as in a shell."""
        yield from self._below("", pattern.steps)

    def _below(self, directory: str, steps: tuple[str | re.Pattern[str], ...]) -> Iterator[str]:
        step, rest = steps[0], steps[1:]
        for name in [step] if isinstance(step, str) else self._names(directory, step):
            path = f"{directory}/{name}"
            if rest:
                yield from self._below(path, rest)
            elif os.path.lexists(self.here(path)):
                yield path

    def _names(self, directory: str, wanted: re.Pattern[str]) -> list[str]:
        takes_hidden = wanted.pattern.startswith("\\.")

        def may_match(name: str) -> bool:
            is_shown = takes_hidden or not name.startswith(".")
            return is_shown and wanted.fullmatch(name) is not None and name.isprintable()

        try:
            return listing.names(Path(self.here(directory or "/")), may_match)
        except OSError:  # missing, unreadable, or not a directory: nothing matches
            return []

    # ------------------------------------------------------------ by bus

    def _by_usb(self, match: UsbMatch) -> Iterator[Found]:
        for each in usb.devices(
            vendor=match.vendor,
            product=match.product,
            serial=match.serial,
            device_class=match.class_,
            sysfs_root=self._sys,
        ):
            files = device_files_below(each.directory, dev_root=self._dev)
            # Programs open the file of the driver. The file of the bus itself, in the deepest
            # directory, comes last.
            in_order = sorted(files, key=_order)
            name = f"usb-{each.vendor}-{each.product}-{_as_id(each.serial or each.port)}"
            yield from self._found(in_order, each.port, name)

    def _by_pci(self, match: PciMatch) -> Iterator[Found]:
        functions = pci.devices(
            vendor=match.vendor,
            device=match.device,
            device_class=match.class_,
            driver=match.driver,
            sysfs_root=self._sys,
        )
        # A physical function configures its virtual functions, which other pods get.
        divided = {
            each.physical_function
            for each in functions
            if each.driver != vfio.DRIVER or match.driver is not None
        }
        for each in functions:
            if each.address in divided:
                self._warn_once(
                    each.address,
                    "is left out: it configures its virtual functions, which the match finds too; "
                    "to offer it, name its device ID in a match of its own",
                )
                continue
            if each.driver == vfio.DRIVER and match.driver is None:
                self._warn_once(
                    each.address,
                    "is bound to vfio-pci and left out: a container with it has direct access to "
                    "memory; write 'driver: vfio-pci' into the match to offer it",
                )
                continue
            files = self._files_of_function(each, match.vfio)
            if not files:
                driver = each.driver or "none"
                self._warn_once(
                    each.address,
                    f"no device file, so it cannot be exposed (its driver: {driver})",
                )
            problem = self._problem_of_group(each)
            for found in self._found(files, each.address, each.address):
                yield found._replace(problem=problem)

    def _problem_of_group(self, function: pci.PciDevice) -> str:
        """Return what has to be bound before the kernel opens the group of a function of vfio."""
        if function.driver != vfio.DRIVER or function.iommu_group is None:
            return ""
        others = vfio.not_viable(function.iommu_group, sysfs_root=self._sys)
        listed = ", ".join(f"{address} ({driver})" for address, driver in others.items())
        problem = f"its IOMMU group is not viable: bind {listed} to vfio-pci" if listed else ""
        if problem:
            self._warn_once(function.address, problem)
        return problem

    def _warn_once(self, address: str, text: str) -> None:
        if (key := f"{address} {text}") not in self._warned:
            self._warned.add(key)
            _log.warning("PCI function %s: %s", address, text)

    def _files_of_function(self, function: pci.PciDevice, interface: str) -> list[str]:
        if function.driver != vfio.DRIVER:
            files = device_files_below(function.directory, dev_root=self._dev)
            return sorted(files, key=_order)
        try:
            nodes = vfio.nodes(
                function.address, interface=interface, sysfs_root=self._sys, dev_root=self._dev
            )
        except NoVfioGroup as error:
            _log.debug("%s", error)
            return []
        return [spec.host_path for spec in nodes]

    def _found(self, paths: Iterable[str], address: str, stable: str) -> Iterator[Found]:
        files = [file for path in paths if (file := self.identify(path)) is not None]
        if files:
            others = tuple(file.real_path for file in files[1:])
            yield Found(files[0].real_path, files[0], (), address, others, stable)

    # ------------------------------------------------------------ stable names

    def stable_names(self, found: Found) -> tuple[str, ...]:
        """Return all names that identify a device over re-plugs and reboots, the best name first.

        Such a name contains a USB serial number, a PCI address, or comes from a link of udev such
        as /dev/serial/by-id/….
        """
        link = _as_id(found.path.rpartition("/")[2]) if "/by-id/" in found.path else ""
        links = self._links_by_id().get(found.file.real_path, ())
        usb_name = self._usb_name(found.file)
        port = self.port_name(found)
        if usb_name is not None and not usb_name.has_serial:
            links = ()  # two equal devices take such a link from each other
        # A device without a serial number is the device at its port, also after it has changed its
        # vendor and product: some load their program at the first use, and come back as another.
        is_by_port = (
            found.stable.endswith(f"-{found.address}")
            if found.stable
            else not (link or links or usb_name is None or usb_name.has_serial)
        )
        names = (found.stable, link, usb_name and usb_name.text, *links, port if is_by_port else "")
        return tuple(dict.fromkeys(filter(None, names)))

    def port_name(self, found: Found) -> str:
        """Return the USB port and the interface of a device; empty for other devices."""
        if found.stable.startswith("usb-"):
            return f"port-{found.address}"
        usb_name = None if found.stable else self._usb_name(found.file)
        return usb_name.port if usb_name is not None else ""

    def _usb_name(self, file: HostFile) -> "_UsbName | None":
        """Return the names of the file of a USB driver; None for another file. Looks once."""
        if file not in self._usb_names:
            self._usb_names[file] = self._look_for_usb_name(file)
        return self._usb_names[file]

    def _look_for_usb_name(self, file: HostFile) -> "_UsbName | None":
        directory = self._directory_of(file)
        interface = ""
        while directory is not None and (self._sys / "devices") in directory.parents:
            # The parent is a hub: its serial number is not that of this device.
            if vendor := read_hex(directory / "idVendor"):
                serial = read_attribute(directory / "serial")
                product, place = read_hex(directory / "idProduct"), _as_id(serial or directory.name)
                text = f"usb-{vendor}-{product}-{place}{interface}"
                return _UsbName(text, f"port-{directory.name}{interface}", bool(serial))
            if ":" in directory.name and (directory / "bInterfaceNumber").exists():
                interface = f"-if{directory.name.rpartition(':')[2]}"
            directory = directory.parent
        return None

    def _directory_of(self, file: HostFile) -> Path | None:
        kind, *numbers = file.identity if isinstance(file.identity, tuple) else (0,)
        folder = {stat.S_IFCHR: "char", stat.S_IFBLK: "block"}.get(kind)
        if folder is None:
            return None
        number = f"{os.major(numbers[0])}:{os.minor(numbers[0])}"
        link = self._sys / "dev" / folder / number
        try:
            return link.resolve(strict=True)
        except OSError:
            return None

    def _links_by_id(self) -> dict[str, list[str]]:
        """Return the names in by-id directories of /dev, by the file to which they lead."""
        if self._by_id is None:
            self._by_id = {}
            for path in sorted(self.paths(PathPattern("/dev/*/by-id/*")), key=natural_key):
                file = self.identify(path)
                if file is not None and file.real_path != path:
                    name = _as_id(path.rpartition("/")[2])
                    self._by_id.setdefault(file.real_path, []).append(name)
        return self._by_id


def _kind_of(path: str) -> int:
    try:
        return stat.S_IFMT(Path(path).stat().st_mode)
    except OSError:
        return 0


def _order(path: str) -> tuple[int, str]:
    """Sort `dri/card0` before `dri/renderD128`, and both after files directly in /dev."""
    return path.count("/"), natural_key(path)


def _as_id(text: str) -> str:
    """Return `text` with `_` for characters that may cause trouble in a device ID."""
    return re.sub(r"[^A-Za-z0-9._:+-]", "_", text)
