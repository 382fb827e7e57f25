"""Where a plugin's paths are for us: a plugin in a private view sees our directories elsewhere."""

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kubedevices.errors import NotInPlace
from kubedevices.probe.mounts import Bind
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR, PLUGIN_REGISTRY_DIR
from kubedevices.words import some_of

CDI_DIR = Path("/var/run/cdi")
STATIC_CDI_DIR = Path("/etc/cdi")

# Leaves about 50 of a socket path's 107 bytes for the name that a plugin chooses.
_LONGEST_PARENT = 30


@dataclass(frozen=True)
class Workplace:
    """The directories of one run. `root` is removed at its end."""

    root: Path

    @classmethod
    def choose(cls) -> Self:
        """Choose where they will be: a path short enough for the sockets of any plugin."""
        parent = tempfile.gettempdir()
        if len(parent) > _LONGEST_PARENT:
            parent = "/tmp"
        return cls(Path(parent, f"kd-check-{secrets.token_hex(4)}"))

    def create(self) -> None:
        """Create them; there is a supervisor by now that removes them whatever happens."""
        self.root.mkdir(mode=0o755)  # a plugin may run as somebody else
        for directory in (self.sockets, self.registry, self.cdi):
            directory.mkdir()

    def leave(self) -> None:
        """Leave what the end of the supervisor does not remove as it was before."""

    @property
    def sockets(self) -> Path:
        """Stands for the device plugin directory."""
        return self.root / "plugins"

    @property
    def registry(self) -> Path:
        """Stands for the plugin registry directory."""
        return self.root / "registry"

    @property
    def cdi(self) -> Path:
        """Stands for the directory of generated CDI files."""
        return self.root / "cdi"

    def log(self, number: int) -> Path:
        """Return where the output of the n-th process goes."""
        return self.root / f"output-{number}"

    def placeholders(self) -> dict[str, str]:
        """Return what `{socket_dir}` and the others in a command stand for."""
        return {
            "{socket_dir}": str(self.sockets),
            "{registry_dir}": str(self.registry),
            "{cdi_dir}": str(self.cdi),
        }

    def binds(self) -> list[Bind]:
        """Return where a plugin expects them."""
        return [
            Bind(str(self.sockets), str(DEVICE_PLUGIN_DIR)),
            Bind(str(self.registry), str(PLUGIN_REGISTRY_DIR)),
            Bind(str(self.cdi), str(CDI_DIR)),
        ]


@dataclass(frozen=True)
class InPlace(Workplace):
    """Directories of a run at the paths that are built into plugins. Nobody else may use them."""

    made: list[Path] = field(default_factory=list)  # by us, the innermost last
    ours: list[Path] = field(default_factory=list)  # empty when we came

    def create(self) -> None:
        """Create what is missing; raises `NotInPlace` where something lies or nothing can."""
        self.root.mkdir(mode=0o755)
        for directory in (self.sockets, self.registry, self.cdi):
            try:
                for each in (*reversed(directory.parents), directory):
                    if not each.exists():
                        each.mkdir()
                        self.made.append(each)
                if not os.access(directory, os.W_OK):
                    raise NotInPlace(str(directory), "you may not write there")
                if names := sorted(each.name for each in directory.iterdir()):
                    raise NotInPlace(str(directory), f"it has files: {some_of(names, 3)}")
                self.ours.append(directory)
            except OSError as error:
                raise NotInPlace(str(directory), error.strerror or str(error)) from error

    def leave(self) -> None:
        """Remove what the plugin left, and the directories that were not there before."""
        for entry in (entry for each in self.ours for entry in each.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        for directory in reversed(self.made):
            with contextlib.suppress(OSError):  # gone already, or others use it
                directory.rmdir()

    @property
    def sockets(self) -> Path:
        """The device plugin directory."""
        return DEVICE_PLUGIN_DIR

    @property
    def registry(self) -> Path:
        """The plugin registry directory."""
        return PLUGIN_REGISTRY_DIR

    @property
    def cdi(self) -> Path:
        """The directory of generated CDI files."""
        return CDI_DIR


@dataclass(frozen=True)
class View:
    """What the plugin sees of the file system: ours, but for the binds."""

    binds: Sequence[Bind] = ()

    def outside(self, path: str) -> Path:
        """Return our path for a path of the plugin."""
        # The last bind lies on top of those before.
        for bind in reversed(self.binds):
            for inside in {bind.inside, os.path.realpath(bind.inside)}:
                if path == inside or path.startswith(inside.rstrip("/") + "/"):
                    return Path(bind.host + path[len(inside) :])
        return Path(path)
