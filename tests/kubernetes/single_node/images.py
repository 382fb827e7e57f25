"""Container images made of directories, without a registry and a build tool."""

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.kubernetes.single_node.layout import PATH, REGISTRY

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names by the kernel's."""


def make_image(file: Path, name: str, root: Path, command: Sequence[str] = ("sh",)) -> None:
    """Write an OCI archive of an image with one layer: all files below `root`, owned by root.

    `name` has no registry, such as `local/busybox:1`.
    """
    layer = _layer(root)
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": [f"PATH={PATH}"], "Cmd": list(command)},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config_blob = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor(config_blob, "config.v1+json"),
        "layers": [_descriptor(layer, "layer.v1.tar")],
    }
    manifest_blob = json.dumps(manifest).encode()
    entry = _descriptor(manifest_blob, "manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": f"{REGISTRY}/{name}"}
    index = {"schemaVersion": 2, "manifests": [entry]}
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps(index).encode(),
    }
    for blob in (config_blob, manifest_blob, layer):
        files["blobs/" + _digest(blob).replace(":", "/")] = blob
    with tarfile.open(file, "w") as archive:
        for path, blob in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(blob)
            archive.addfile(member, io.BytesIO(blob))


def make_base_images(directory: Path) -> list[Path]:
    """Return archives of `busybox:1` and `pause:1`, with this machine's static busybox."""
    commands = {"busybox": ("sh",), "pause": ("sleep", "2147483647")}
    archives = [directory / f"{name}.tar" for name in commands]
    if archives[-1].exists():
        return archives
    shutil.rmtree(directory, ignore_errors=True)
    root = directory / "root"
    for name in ("bin", "dev", "etc", "proc", "root", "sys", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    busybox = root / "bin/busybox"
    shutil.copy(shutil.which("busybox", path=PATH) or "", busybox)
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for applet in set(listed.stdout.split()) - {"busybox"}:
        (root / "bin" / applet).symlink_to("busybox")
    for archive, (name, command) in zip(archives, commands.items(), strict=True):
        make_image(archive, f"local/{name}:1", root, command)
    return archives


def _layer(root: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        layer.add(root, ".", filter=_owned_by_root)
    return buffer.getvalue()


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _descriptor(blob: bytes, kind: str) -> dict[str, object]:
    media_type = f"application/vnd.oci.image.{kind}"
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"
