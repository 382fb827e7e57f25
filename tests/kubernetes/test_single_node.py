"""Our own cluster without its binaries: what it needs, its settings and its images."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.kubernetes.single_node import layout, settings
from tests.kubernetes.single_node.images import make_image
from tests.kubernetes.single_node.layout import PROGRAMS, Layout, program
from tests.kubernetes.single_node.settings import Options


def test_a_folder_without_a_cluster_program_gets_ours(tmp_path: Path) -> None:
    """The program `cluster` of a folder wins; without it, ours takes the folder's binaries."""
    assert program(tmp_path) == [sys.executable, str(Path(layout.__file__).parent)]
    (tmp_path / "cluster").write_text("")
    assert program(tmp_path) == [str(tmp_path / "cluster")]


def test_every_service_has_its_arguments(tmp_path: Path) -> None:
    """Each service gets options with values; gates and further options reach their services."""
    options = Options({"DRADeviceTaintRules": True}, ("--max-pods=5",), ("--audit-log-path=-",))
    assert Options.read(options.text()) == options
    made = {name: settings.arguments(name, Layout(tmp_path), options) for name in layout.SERVICES}
    assert all(word.startswith("--") and "=" in word for words in made.values() for word in words)
    gates = "--feature-gates=DRADeviceTaintRules=True"
    assert [name for name, words in made.items() if gates in words] == list(layout.PLANE[1:])
    assert made["kubelet"][-1] == "--max-pods=5"
    assert made["kube-apiserver"][-2:] == ["--runtime-config=api/all=true", "--audit-log-path=-"]
    kubelet = json.loads(settings.kubelet_configuration(Layout(tmp_path), "ours", options))
    assert kubelet["featureGates"] == {"DRADeviceTaintRules": True}
    assert kubelet["cgroupRoot"] == "/ours"


def test_a_missing_binary_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the variable, and the programs that the folder lacks."""
    for name in PROGRAMS[1:]:
        (tmp_path / name).write_text("")
    monkeypatch.setenv(layout.BINARIES, str(tmp_path))
    with pytest.raises(SystemExit, match=f"{layout.BINARIES}.* the programs {PROGRAMS[0]}$"):
        layout.find_programs()


def test_an_image_of_a_directory_is_a_complete_archive(tmp_path: Path) -> None:
    """Every blob has the digest and the size that the manifest says; files belong to root."""
    (tmp_path / "root/bin").mkdir(parents=True)
    (tmp_path / "root/bin/tool").write_text("content")
    archive = tmp_path / "image.tar"
    make_image(archive, "local/tool:1", tmp_path / "root", ("tool", "--option"))
    with tarfile.open(archive) as tar:
        files = {name: tar.extractfile(name) for name in tar.getnames()}
        blobs = {name: file.read() for name, file in files.items() if file is not None}
    layer_name = max(blobs, key=lambda name: len(blobs[name]))
    with tarfile.open(fileobj=io.BytesIO(blobs[layer_name])) as layer:
        members = {each.name: (each.uid, each.uname) for each in layer}
    for name, blob in blobs.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"
    (entry,) = json.loads(blobs["index.json"])["manifests"]
    manifest = json.loads(blobs["blobs/" + entry["digest"].replace(":", "/")])
    for part in (entry, manifest["config"], *manifest["layers"]):
        assert part["size"] == len(blobs["blobs/" + part["digest"].replace(":", "/")])
    config = json.loads(blobs["blobs/" + manifest["config"]["digest"].replace(":", "/")])
    assert config["config"]["Cmd"] == ["tool", "--option"]
    assert members["./bin/tool"] == (0, "root")


def test_the_help_needs_neither_root_nor_binaries() -> None:
    """`--help` names all commands of the page."""
    words = [*program(Path("/nonexistent")), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    page = Path("docs/development/real-kubernetes.md").read_text()
    for command in ("up", "down", "status", "kubectl", "exec", "restart", "reboot", "load"):
        assert command in done.stdout
        assert f"| `{command}" in page
