"""This host's devices, by a YAML file: `kubedevices expose`.

Looks at the device files every `scanInterval` and follows what comes and goes. What makes a device
of which file is decided in `expose_tree`.
"""

import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from kubedevices.builtin.expose_config import ExposeConfig, load_expose_config
from kubedevices.builtin.expose_tree import HostFile, Indexes, make_tree
from kubedevices.builtin.path_patterns import PathPattern
from kubedevices.device_tree import DeviceTree
from kubedevices.plugin.scanner import PolledScanner

_log = logging.getLogger(__name__)


class DeviceFiles:
    """The host's files; `/dev` may be somewhere else, as in a container that mounts the host's.

    Devices are character and block devices. Regular files count too, so that a configuration can
    be tried without root; a container runtime would refuse them. Directories, sockets and pipes
    never count.
    """

    def __init__(self, dev_root: Path = Path("/dev")) -> None:
        self._dev_root = str(dev_root)

    def find(self, pattern: PathPattern) -> Iterator[str]:
        """Yield every path that matches; a wildcard passes over hidden names, as in a shell."""
        yield from self._below("", pattern.steps)

    def _below(self, directory: str, steps: tuple[str | re.Pattern[str], ...]) -> Iterator[str]:
        step, rest = steps[0], steps[1:]
        for name in [step] if isinstance(step, str) else self._names(directory, step):
            path = f"{directory}/{name}"
            if rest:
                yield from self._below(path, rest)
            elif os.path.lexists(self._here(path)):
                yield path

    def _names(self, directory: str, wanted: re.Pattern[str]) -> list[str]:
        try:
            names = [entry.name for entry in Path(self._here(directory or "/")).iterdir()]
        except OSError:  # not there, not ours to read, or no directory: nothing matches
            return []
        return [
            name
            for name in names
            if wanted.fullmatch(name)
            and (not name.startswith(".") or wanted.pattern.startswith("\\."))
            and name.isprintable()
        ]

    def identify(self, path: str) -> HostFile | None:
        """Return the device file at `path`, following links; None for anything else."""
        here = self._here(path)
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

    def _here(self, path: str) -> str:
        """Return where we see `path` of the host."""
        if path == "/dev" or path.startswith("/dev/"):
            return self._dev_root + path.removeprefix("/dev")
        return path

    def _there(self, real: str, path: str) -> str:
        """Return what the host calls the file that we see at `real`, and that `path` leads to."""
        if self._dev_root == "/dev":
            return real
        root = os.path.realpath(self._dev_root)
        if real.startswith(root + "/"):
            return "/dev" + real.removeprefix(root)
        return path if path.startswith("/dev/") else real


class ExposeScanner(PolledScanner):
    """Finds what `config` names."""

    def __init__(self, config: ExposeConfig, *, dev_root: Path = Path("/dev")) -> None:
        self.config = config
        self.interval = config.scan_interval
        self._files = DeviceFiles(dev_root)
        self._indexes = Indexes()
        self._last = DeviceTree()
        self._warned: set[str] = set()

    @classmethod
    def from_file(cls, file: Path, *, dev_root: Path = Path("/dev")) -> Self:
        """Read `file`; raises `CannotRead` and `ConfigError`, logs what is merely suspicious."""
        config, report = load_expose_config(file)
        for warning in report.warnings:
            _log.warning("%s", warning)
        return cls(config, dev_root=dev_root)

    def list_devices(self) -> DeviceTree:
        """Look once."""
        tree = make_tree(self.config, self._files, self._indexes)
        self._log_changes(tree)
        self._warn_of_files_in_two_resources(tree)
        self._last = tree.snapshot()
        return tree

    def _log_changes(self, tree: DeviceTree) -> None:
        for resource in tree:
            before, now = self._last.devices(resource), tree.devices(resource)
            if resource not in self._last:
                _log.info("%s/%s: %d devices", self.config.namespace, resource, len(now))
                continue
            for device_id in now.keys() - before.keys():
                _log.info("%s/%s: %s appeared", self.config.namespace, resource, device_id)
            for device_id in before.keys() - now.keys():
                _log.info("%s/%s: %s vanished", self.config.namespace, resource, device_id)

    def _warn_of_files_in_two_resources(self, tree: DeviceTree) -> None:
        """Nothing keeps two containers from getting such a device at the same time."""
        owner: dict[str, str] = {}
        for resource in tree:
            for device in tree.devices(resource).values():
                path = device.specs[0].host_path
                first = owner.setdefault(path, resource)
                if first != resource and path not in self._warned:
                    self._warned.add(path)
                    _log.warning(
                        "%s is exposed as %s and as %s: each may be given to another container",
                        path, first, resource,
                    )  # fmt: skip
