"""Where a plugin's paths are for us: a plugin in a private view sees our directories elsewhere."""

import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kubedevices.probe.mounts import Bind
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR, PLUGIN_REGISTRY_DIR

CDI_DIR = Path("/var/run/cdi")
STATIC_CDI_DIR = Path("/etc/cdi")

_LONGEST_PARENT = 30


@dataclass(frozen=True)
class Workplace:
    """The directories of one run. `root` is removed at its end."""

    root: Path

    @classmethod
    def choose(cls) -> "Workplace":
        """Choose where they will be: a path short enough for the sockets of any plugin."""
        parent = tempfile.gettempdir()
        if len(parent) > _LONGEST_PARENT:
            parent = "/tmp"
        return cls(Path(parent, f"kd-check-{secrets.token_hex(4)}"))

    def create(self) -> None:
        """Create them; there is a keeper by now that removes them whatever happens."""
        self.root.mkdir(mode=0o755)  # a plugin may run as somebody else
        for directory in (self.sockets, self.registry, self.cdi):
            directory.mkdir()

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
class View:
    """What the plugin sees of the file system: ours, but for the binds."""

    binds: Sequence[Bind] = ()

    def outside(self, path: str) -> Path:
        """Return our path for one of the plugin's."""
        for bind in reversed(self.binds):
            for inside in {bind.inside, os.path.realpath(bind.inside)}:
                if path == inside or path.startswith(inside.rstrip("/") + "/"):
                    return Path(bind.host + path[len(inside) :])
        return Path(path)
