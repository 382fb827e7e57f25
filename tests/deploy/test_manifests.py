"""The manifests match the schemas of Kubernetes, and deploy/ is up to date with the package."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli.cluster.manifests import IMAGE
from kubedevices.cli.shared.output import manifest_yaml
from kubedevices.manifests import kustomize
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.workload import documents, node_pod
from tests.deploy.foreign_schemas import BY_KIND
from tests.docs.pages import read_page
from tests.host_needs import needs

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
OVERLAYS = kustomize.overlays(IMAGE)
VERSIONS = ("1.35", "1.36", "1.37")

EVERYTHING = {
    "simulate": documents(
        Deployment("simulate", IMAGE, env={"NUMBER_DEVICES": "2"}, config="numaNodes: [0]\n")
    ),
    "expose": documents(
        Deployment(
            "expose",
            IMAGE,
            cdi=True,
            dev_dirs=("/dev/dri", "/dev/bus/usb"),
            host_dirs=("/run/devices",),
            metrics=True,
            node_labels={"a": "b"},
        )
    ),
    "configured proxy": documents(Deployment("proxy", IMAGE, config="resources: {}\n")),
    "split simulator": documents(
        Deployment(
            "simulate",
            IMAGE,
            mode="split",
            mode_file="/etc/kubedevices/mode",
            dra_devices=("gpu/1*",),
            domain="example.com",
            device_types=("gpu", "NIC_1"),
            metrics=True,
        )
    ),
    "node": [node_pod(IMAGE)],
    **{name: documents(each) for name, each in OVERLAYS.items()},
}


def run(*command: object, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    words = [str(word) for word in command]
    return subprocess.run(
        words, input=stdin, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )


def validate(text: str, version: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    file = directory / "manifests.yaml"
    file.write_text(text)
    return run(BIN / "kubernetes-validate", "--strict", "-k", version, file)


@pytest.mark.parametrize(
    "version",
    [VERSIONS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in VERSIONS[1:])],
)
def test_every_manifest_is_valid(version: str, short_dir: Path) -> None:
    """Strictly: a misspelt key would be dropped silently by an API server."""
    text = "---\n".join(map(manifest_yaml, EVERYTHING.values()))
    done = validate(text, version, short_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"daemonset/kubedevices-simulator against version {version}" in done.stdout + done.stderr


def test_the_judge_finds_a_wrong_manifest(short_dir: Path) -> None:
    """A wrong key is found."""
    pod = node_pod(IMAGE)
    pod["spec"]["contaners"] = []
    assert validate(manifest_yaml([pod]), VERSIONS[-1], short_dir).returncode != 0


def test_the_kustomize_files_are_up_to_date() -> None:
    """`make manifests` would change nothing, and the directory has no other files."""
    directory = ROOT / "deploy/kustomize"
    there = {
        str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*.yaml")
    }
    assert there == {name: manifest_yaml(each) for name, each in kustomize.files(IMAGE).items()}


@needs("kubectl 1.21")
@pytest.mark.parametrize("name", OVERLAYS)
def test_kustomize_renders_the_objects_of_the_package(name: str) -> None:
    """`kubectl apply -k` and `kubedevices manifests

    kubectl apply -f -` apply the same objects.
    """
    made = kustomized(f"deploy/kustomize/overlays/{name}")
    made = [each for each in made if each["kind"] not in BY_KIND]
    assert normal(made) == normal(documents(OVERLAYS[name]))


@needs("kubectl 1.21")
def test_an_overlay_of_a_user_changes_image_and_devices(tmp_path: Path) -> None:
    """The overlay of docs/install.md, based on ours. The configuration is replaced."""
    for name, text in read_page(ROOT / "docs/install.md").files.items():
        if name.startswith("ours/"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    (config_map,) = yaml.safe_load_all((tmp_path / "ours/config.yaml").read_text())
    (tmp_path / "config.yaml").write_text(config_map["data"]["config.yaml"])
    check = run(BIN / "kubedevices", "expose", "--check", "--config", tmp_path / "config.yaml")
    assert check.returncode == 0, check.stderr
    shutil.copytree(ROOT / "deploy/kustomize", tmp_path / "deploy/kustomize")
    made = {each["kind"]: each for each in kustomized(tmp_path / "ours")}
    assert made["ConfigMap"]["data"] == config_map["data"]
    (container,) = made["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/kubedevices:0.1.0"


def kustomized(directory: object) -> list[dict[str, Any]]:
    """Return the objects that kustomize renders."""
    done = run("kubectl", "kustomize", directory)
    assert (done.returncode, done.stderr) == (0, "")
    return [*yaml.safe_load_all(done.stdout)]


def as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def normal(found: list[dict[str, Any]]) -> Any:
    """Sort lists that have no order: documents, and lists that are keyed by name."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(each) for key, each in value.items()}
        if isinstance(value, list):
            items = [walk(each) for each in value]
            return (
                sorted(items, key=as_json)
                if all(isinstance(each, dict) for each in items)
                else items
            )
        return value

    return sorted((walk(each) for each in found), key=lambda each: str(each["kind"]))


def test_hadolint_accepts_the_containerfile() -> None:
    """hadolint prints nothing, also no remark."""
    done = run(BIN / "hadolint", "--failure-threshold", "style", "deploy/image/Containerfile")
    assert done.returncode == 0, done.stdout


def test_make_deploy_shows_the_objects_to_apply() -> None:
    """The variables of simple-device-plugin are in the container."""
    settings = ["NAMESPACE=lab", "RESOURCE_NAME=example.com/x", "NUMBER_DEVICES=3", "IMAGE=img:1"]
    quoted = f"BIN={shlex.quote(str(BIN))}"
    done = run("make", "--silent", "print-manifests", "-o", "venv", quoted, *settings)
    assert done.returncode == 0, done.stderr
    head, *_, daemon_set = yaml.safe_load_all(done.stdout)
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert head["metadata"]["name"] == daemon_set["metadata"]["namespace"] == "lab"
    assert (env["RESOURCE_NAME"], env["NUMBER_DEVICES"]) == ("example.com/x", "3")
    assert container["image"] == "img:1"


def test_without_kubectl_deploy_explains_the_installation(tmp_path: Path) -> None:
    """Instead of `command not found`."""
    for name in ("bash", "sh", "sed", "make"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    image = ("-o", "venv", "IMAGE=localhost/kubedevices:1")
    done = run("env", f"PATH={tmp_path}", "make", "--silent", "deploy", *image)
    assert done.returncode == 2
    assert "kubectl is missing: install the Debian package kubernetes-client" in done.stderr
