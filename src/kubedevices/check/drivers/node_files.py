"""The files of one node: what a driver leaves there, and what the check does to them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubedevices.check.check import Broken
from kubedevices.check.directories import RunDirectories, cdi_files_in, empty
from kubedevices.host.cdi_specs import read_registry
from kubedevices.values.cdi import ContainerEdits
from kubedevices.values.cdi.values import to_dict
from kubedevices.values.socket_paths import POD_RESOURCES

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has token, CA and namespace of its service account."""


class NodeFiles:
    """The files of a node.

    kubelet  the kubelet's root directory
    cdi      the directory of CDI files, /var/run/cdi
    etc_cdi  the one that stays over a reboot, /etc/cdi: with the files that this host has there
    account  what a pod finds at `SERVICE_ACCOUNT`
    """

    def __init__(self, directories: RunDirectories) -> None:
        self._directories, root = directories, directories.root
        self.kubelet, self.cdi, self.etc_cdi = root / "k", directories.cdi, directories.etc_cdi
        self.kubeconfig = self.kubelet / "kubeconfig"
        self.pod_resources = self.kubelet / POD_RESOURCES
        self.account = root / "account"

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
        sockets = (self.kubelet / "plugins_registry", self.kubelet / "plugins")
        for directory in (*sockets, self.cdi):
            empty(directory)
        self._directories.copy_etc_cdi()

    def remove(self, files: Iterable[Path]) -> None:
        """Remove files."""
        for each in files:
            each.unlink(missing_ok=True)

    @contextmanager
    def missing(self, file: Path) -> Iterator[None]:
        """Remove a file inside the block."""
        content = file.read_bytes()
        file.unlink()
        try:
            yield
        finally:
            file.write_bytes(content)

    def write(self, files: Iterable[tuple[Path, bytes]]) -> None:
        """Write files, as a damaged disk would leave them, or as another program writes them."""
        for path, content in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def sockets(self, kubelet: Path | None = None) -> list[Path]:
        """Return the registration sockets, also of another root directory of the kubelet."""
        return sorted(((kubelet or self.kubelet) / "plugins_registry").rglob("*.sock"))

    def state(self) -> list[Path]:
        """Return the regular files that the driver keeps."""
        return sorted(each for each in (self.kubelet / "plugins").rglob("*") if each.is_file())

    def state_texts(self) -> dict[Path, bytes]:
        """Return what is in these files."""
        return {each: each.read_bytes() for each in self.state()}

    def cdi_files(self) -> dict[str, str]:
        """Return the texts of the CDI files by name."""
        return {
            each.name: each.read_text(errors="replace")
            for directory in (self.etc_cdi, self.cdi)
            for each in cdi_files_in(directory)
        }

    def cdi_files_of(self, uid: str) -> list[str]:
        """Return the names of the CDI files that name a claim."""
        return [name for name, text in self.cdi_files().items() if uid in name + text]

    def cdi_edits(self, names: Sequence[str]) -> str:
        """Return what a container gets: text with sorted lists, as their order means nothing."""
        made: dict[str, Any] = to_dict(self._edits(names))
        lists = {key: sorted(each, key=repr) for key, each in made.items() if type(each) is list}
        return json.dumps(made | lists, sort_keys=True)

    def device_files(self, names: Sequence[str]) -> list[str]:
        """Return the device files that a runtime has to look at for these CDI names."""
        nodes = self._edits(names).device_nodes
        looked_at = [each for each in nodes if not each.type or each.major is None]
        return sorted({each.host_path or each.path for each in looked_at if each.type != "p"})

    def device_numbers(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the devices for which these CDI names say major and minor, by path on the host."""
        return {
            each.host_path or each.path: (each.major, each.minor)
            for each in self._edits(names).device_nodes
            if each.type != "b" and each.major is not None and each.minor is not None
        }

    def _edits(self, names: Sequence[str]) -> ContainerEdits:
        found = read_registry((self.etc_cdi, self.cdi))
        edits = ContainerEdits()
        for name in names:
            if definition := found.explain(name).definition:
                spec, device = definition.file.spec, definition.device
                edits = edits.plus(spec.container_edits) if spec else edits
                edits = edits.plus(device.container_edits)
        return edits

    def must_resolve(self, names: Iterable[str], when: str = "") -> None:
        """Raise `Broken` if a runtime cannot resolve these CDI names; `when` begins the text."""
        found = read_registry((self.etc_cdi, self.cdi))
        for name in names:
            explanation = found.explain(name)
            if not explanation.resolves:
                raise Broken(f"{when}{name}: {explanation.reason}")
