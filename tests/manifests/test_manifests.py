"""The manifests match the schemas of Kubernetes."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kubedevices.cli.cluster.manifests import IMAGE
from kubedevices.cli.shared.output import manifest_yaml
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.workload import documents, node_pod
from tests.manifests.deployments import DEPLOYMENTS
from tests.manifests.foreign_schemas import BY_KIND

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
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
    **{name: documents(each) for name, each in DEPLOYMENTS.items()},
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
    made = ([each for each in all_ if each["kind"] not in BY_KIND] for all_ in EVERYTHING.values())
    text = "---\n".join(map(manifest_yaml, made))
    done = validate(text, version, short_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"daemonset/kubedevices-simulator against version {version}" in done.stdout + done.stderr


def test_the_judge_finds_a_wrong_manifest(short_dir: Path) -> None:
    """A wrong key is found."""
    pod = node_pod(IMAGE)
    pod["spec"]["contaners"] = []
    assert validate(manifest_yaml([pod]), VERSIONS[-1], short_dir).returncode != 0


def test_hadolint_accepts_the_containerfile() -> None:
    """hadolint prints nothing, also no remark."""
    done = run(BIN / "hadolint", "--failure-threshold", "style", "deploy/image/Containerfile")
    assert done.returncode == 0, done.stdout


def test_make_deploy_shows_the_objects_to_apply() -> None:
    """The variables of simple-device-plugin are in the container."""
    image = "example.com/img:1"
    settings = ["NAMESPACE=lab", "RESOURCE_NAME=example.com/x", "NUMBER_DEVICES=3"]
    settings.append(f"IMAGE={image}")
    quoted = f"BIN={shlex.quote(str(BIN))}"
    done = run("make", "--silent", "print-manifests", "-o", "venv", quoted, *settings)
    assert done.returncode == 0, done.stderr
    head, *_, daemon_set = yaml.safe_load_all(done.stdout)
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert head["metadata"]["name"] == daemon_set["metadata"]["namespace"] == "lab"
    assert (env["RESOURCE_NAME"], env["NUMBER_DEVICES"]) == ("example.com/x", "3")
    assert container["image"] == image


def test_without_kubectl_deploy_explains_the_installation(tmp_path: Path) -> None:
    """Instead of `command not found`."""
    for name in ("bash", "sh", "sed", "make"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    image = ("-o", "venv", "IMAGE=localhost/kubedevices:1")
    done = run("env", f"PATH={tmp_path}", "make", "--silent", "deploy", *image)
    assert done.returncode == 2
    assert "kubectl is missing: install the Debian package kubernetes-client" in done.stderr
