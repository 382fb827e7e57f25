"""The files of one node: what a driver leaves there, and what the check does to them."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from kubedevices.host.cdi_specs import STATIC_DIRECTORY, read_registry
from kubedevices.values.socket_paths import POD_RESOURCES


class NodeFiles:
    """The kubelet's root directory `kubelet` and the directory of CDI files `cdi` of a node."""

    def __init__(self, root: Path, cdi: Path) -> None:
        self.kubelet, self.cdi = root / "k", cdi
        self.kubeconfig = self.kubelet / "kubeconfig"
        self.pod_resources = self.kubelet / POD_RESOURCES

    def create(self, pods: Path | None) -> None:
        """Create the directories; `pods` is the podresources directory of another node."""
        for each in ("plugins", "plugins_registry", "device-plugins"):
            (self.kubelet / each).mkdir(parents=True)
        if pods is None:
            self.pod_resources.parent.mkdir()
        else:
            self.pod_resources.parent.symlink_to(pods)

    def deep_kubelet(self, length: int) -> Path:
        """Create one more root directory of a kubelet, with a path of this length."""
        deep = self.kubelet / ("d" * (length - len(str(self.kubelet)) - 1))
        for each in ("plugins", "plugins_registry"):
            (deep / each).mkdir(parents=True, exist_ok=True)
        return deep

    def wipe(self) -> None:
        """Remove all that a driver left, as on a new node."""
        for directory in (self.kubelet / "plugins_registry", self.kubelet / "plugins", self.cdi):
            for each in directory.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()

    def remove(self, files: Iterable[Path]) -> None:
        """Remove files."""
        for each in files:
            each.unlink(missing_ok=True)

    def write(self, files: Iterable[tuple[Path, bytes]]) -> None:
        """Write files, as a damaged disk would leave them, or as another program writes them."""
        for path, content in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def sockets(self) -> list[Path]:
        """Return the registration sockets."""
        return sorted((self.kubelet / "plugins_registry").rglob("*.sock"))

    def state(self) -> list[Path]:
        """Return the regular files that the driver keeps."""
        return sorted(each for each in (self.kubelet / "plugins").rglob("*") if each.is_file())

    def cdi_files(self) -> dict[str, str]:
        """Return the texts of the CDI files by name."""
        return {
            each.name: each.read_text(errors="replace")
            for each in sorted(self.cdi.iterdir())
            if each.suffix in (".json", ".yaml")
        }

    def cdi_files_of(self, uid: str) -> list[str]:
        """Return the names of the CDI files that name a claim."""
        return [name for name, text in self.cdi_files().items() if uid in name + text]

    def cdi_problem(self, names: Sequence[str]) -> str:
        """Return why a runtime cannot resolve CDI names, `""` if it can."""
        found = read_registry((STATIC_DIRECTORY, self.cdi))
        for name in names:
            explanation = found.explain(name)
            if not explanation.resolves:
                return f"{name}: {explanation.reason}"
        return ""
