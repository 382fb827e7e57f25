"""The directories of a run, and the map from paths that the plugin sees to paths of the host."""

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kubedevices.check import left_behind
from kubedevices.errors import NotInPlace, os_errors_as
from kubedevices.errors.words import some_of
from kubedevices.host.cdi_specs import GENERATED_DIRECTORY, STATIC_DIRECTORY
from kubedevices.testing.kubelet.mounts import HIDDEN, Bind
from kubedevices.values.socket_paths import (
    DEVICE_PLUGIN_DIR,
    PLUGIN_REGISTRY_DIR,
    POD_RESOURCES,
    POD_RESOURCES_SOCKET,
)

# A socket path has at most 107 bytes; the plugin needs about 50 of them for the name of its socket.
_LONGEST_PARENT = 30


class RunDirectories:
    """The directories of one run. The supervisor removes `root` when the run ends.

    sockets        acts as the device plugin directory
    registry       acts as the plugin registry directory
    cdi            acts as the directory of generated CDI files
    etc_cdi        acts as that of CDI files which stay over a reboot
    pod_resources  acts as the kubelet's podresources socket

    Without `has_registry` the plugin registry directory does not exist, as on a node without plugin
    watcher: some plugins choose by its existence where they register.
    """

    def __init__(self, root: Path, *, has_registry: bool = True) -> None:
        self.root, self.has_registry = root, has_registry
        self.sockets, self.registry = root / "plugins", root / "registry"
        self.cdi, self.etc_cdi = root / "cdi", root / "etc-cdi"
        self.pod_resources = root / POD_RESOURCES
        self.locks: list[int] = []

    @classmethod
    def choose(cls, *, has_registry: bool = True) -> Self:
        """Choose a path that is short enough for the sockets of any plugin."""
        parent = tempfile.gettempdir()
        if len(parent) > _LONGEST_PARENT:
            parent = "/tmp"
        root = Path(parent, f"{left_behind.PREFIX}{secrets.token_hex(4)}")
        return cls(root, has_registry=has_registry)

    def create(self) -> None:
        """Create the directories. The supervisor must run: it removes them if we are killed."""
        self._create_root()
        for directory in self.created():
            directory.mkdir()
        self.etc_cdi.mkdir()
        self.copy_etc_cdi()

    def created(self) -> list[Path]:
        """Return the directories that exist when a plugin starts."""
        registry = [self.registry] if self.has_registry else []
        return [self.sockets, *registry, self.cdi, self.pod_resources.parent]

    def of_plugin(self) -> list[Path]:
        """Return the directories in which a plugin leaves files."""
        return [each for each in (self.sockets, self.registry, self.cdi) if each.is_dir()]

    def clean(self) -> None:
        """Remove the files that a plugin left."""
        for directory in self.of_plugin():
            for path in directory.iterdir():
                if not path.is_dir():
                    path.unlink()
        self.copy_etc_cdi()

    def copy_etc_cdi(self) -> None:
        """Copy what a plugin may name and does not write; its own files stay out of the host."""
        if not self.etc_cdi.is_dir():
            return
        empty(self.etc_cdi)
        for each in cdi_files_in(STATIC_DIRECTORY):
            with contextlib.suppress(OSError):  # not for us to read: not for the plugin either
                shutil.copyfile(each, self.etc_cdi / each.name)

    def _create_root(self) -> None:
        left_behind.clean_up_earlier_runs(self.root.parent)
        self.root.mkdir(mode=0o755)  # a plugin may run as another user
        self.locks.append(left_behind.hold(self.root))

    def leave(self) -> None:
        """Clean directories that the supervisor does not remove: none here."""
        left_behind.clean_up_own_run(self.root)
        while self.locks:
            os.close(self.locks.pop())

    def log(self, number: int) -> Path:
        """Return the file for the output of the n-th process."""
        return self.root / f"output-{number}"

    def placeholders(self) -> dict[str, str]:
        """Return the paths that replace `{socket_dir}` and other names in a command."""
        return {
            "{socket_dir}": str(self.sockets),
            "{registry_dir}": str(self.registry),
            "{cdi_dir}": str(self.cdi),
            "{pod_resources}": str(self.pod_resources),
        }

    def binds(self, wanted: Sequence[Bind] = ()) -> list[Bind]:
        """Return the binds that show the directories at the usual paths.

        The user's `wanted` binds may show another /etc/cdi, but no other directory of a kubelet.
        """
        return [
            Bind(str(self.etc_cdi), str(STATIC_DIRECTORY)),
            *wanted,
            Bind(str(self.sockets), str(DEVICE_PLUGIN_DIR)),
            Bind(str(self.registry) if self.has_registry else HIDDEN, str(PLUGIN_REGISTRY_DIR)),
            Bind(str(self.cdi), str(GENERATED_DIRECTORY)),
            Bind(str(self.pod_resources.parent), str(POD_RESOURCES_SOCKET.parent)),
        ]


class InPlaceDirectories(RunDirectories):
    """The usual paths as directories of a run (`--in-place`). Nobody else may use these paths."""

    def __init__(self, root: Path, *, has_registry: bool = True) -> None:
        super().__init__(root, has_registry=has_registry)
        self.sockets, self.registry = DEVICE_PLUGIN_DIR, PLUGIN_REGISTRY_DIR
        self.cdi, self.pod_resources = GENERATED_DIRECTORY, POD_RESOURCES_SOCKET
        self._made: list[Path] = []  # created by us, the innermost last
        self._ours: list[Path] = []  # empty before the run

    def create(self) -> None:
        """Create missing directories; raises `NotInPlace` if one has files or is not writable."""
        self._create_root()
        if not self.has_registry and self.registry.exists():
            raise NotInPlace(str(self.registry), "with --no-registry it must not exist")
        for directory in self.created():
            with os_errors_as(NotInPlace, directory):
                for each in (*reversed(directory.parents), directory):
                    if not each.exists():
                        each.mkdir()
                        self._made.append(each)
                if not os.access(directory, os.W_OK):
                    raise NotInPlace(str(directory), "you may not write there")
                if names := sorted(each.name for each in directory.iterdir()):
                    raise NotInPlace(str(directory), f"it has files: {some_of(names, 3)}")
                self._ours.append(directory)

    def leave(self) -> None:
        """Remove the files of the plugin, and the directories that we created."""
        super().leave()
        for entry in (entry for each in self._ours for entry in each.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        for directory in reversed(self._made):
            with contextlib.suppress(OSError):  # removed already, or in use by others
                directory.rmdir()


@dataclass(frozen=True)
class PathMap:
    """Maps paths that the plugin sees to paths that we see. Only the binds differ."""

    binds: Sequence[Bind] = ()

    def outside(self, path: str) -> Path:
        """Return our path for a path of the plugin."""
        # A later bind covers an earlier bind.
        for bind in reversed([each for each in self.binds if each.host != HIDDEN]):
            for inside in {bind.inside, os.path.realpath(bind.inside)}:
                if path == inside or path.startswith(inside.rstrip("/") + "/"):
                    return Path(bind.host + path[len(inside) :])
        return Path(path)


def empty(directory: Path) -> None:
    """Remove all entries of a directory."""
    for each in directory.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def cdi_files_in(directory: Path) -> list[Path]:
    """Return the CDI files in a directory, none if it does not exist or cannot be read."""
    try:
        return sorted(each for each in directory.iterdir() if each.suffix in (".json", ".yaml"))
    except OSError:
        return []
