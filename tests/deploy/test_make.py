"""`make build`, `deploy` and `undeploy`, with a stand-in for kubectl; `make image` has its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices import __version__
from kubedevices.manifests.workload import Deployment, documents

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TREE = ("src", "Makefile", "README.md", "LICENSE", "pyproject.toml", "requirements.txt")
KUBECTL = """\
#!/bin/sh
echo "$@" > "$RECORD/arguments"
cat > "$RECORD/input"
exit "${KUBECTL_EXIT:-0}"
"""
SETTINGS = {
    "NAMESPACE": "lab",
    "RESOURCE_NAME": "example.com/gpu",
    "NUMBER_DEVICES": "3",
    "ENV_PREFIX": "GPU",
}


Environment = Mapping[str, str]


def make(
    target: str, *settings: str, cwd: Path = ROOT, env: Environment | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run make with the environment that these tests run in instead of one of its own."""
    ready = (f"BIN={BIN}", "-o", "venv", "-o", ".venv/dev.done", "-o", ".venv/runtime.done")
    return subprocess.run(
        ["make", "--silent", target, *ready, *settings],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def kubectl(tmp_path: Path) -> Environment:
    """Put a kubectl on the path that records what it is told; return the environment for it."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECORD": str(tmp_path)}


def received(kubectl: Environment) -> tuple[str, list[Any]]:
    """Return the arguments and the documents that the stand-in got."""
    record = Path(kubectl["RECORD"])
    return (record / "arguments").read_text(), [*yaml.safe_load_all((record / "input").read_text())]


def test_deploy_applies_what_the_package_prints(kubectl: Environment) -> None:
    """With the variables of simple-device-plugin from the environment."""
    done = make("deploy", "IMAGE=img:1", env={**kubectl, **SETTINGS})
    assert done.returncode == 0, done.stderr
    arguments, applied = received(kubectl)
    assert arguments == "apply --filename -\n"
    wanted = documents(Deployment("simulate", "img:1", namespace="lab", env=SETTINGS))
    assert sort_env(applied) == sort_env(wanted)


def sort_env(found: list[Any]) -> list[Any]:
    """Variables have no order; what is applied last is the DaemonSet."""
    (container,) = found[-1]["spec"]["template"]["spec"]["containers"]
    container["env"].sort(key=lambda each: each["name"])
    return found


def test_deploy_of_expose_takes_its_configuration(kubectl: Environment, tmp_path: Path) -> None:
    """`MANIFEST_ARGS` is for everything that has no variable."""
    config = tmp_path / "devices.yaml"
    config.write_text(
        "version: 1\nnamespace: lab.example.com\n"
        "resources:\n- {name: zero, match: [{path: /dev/zero}]}\n"
    )
    done = make("deploy", "PLUGIN=expose", f"MANIFEST_ARGS=--config {config} --cdi", env=kubectl)
    assert done.returncode == 0, done.stderr
    _, applied = received(kubectl)
    (data,) = (each["data"] for each in applied if each["kind"] == "ConfigMap")
    assert data["config.yaml"] == config.read_text()
    (container,) = applied[-1]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"localhost/kubedevices:{__version__}"
    assert "/var/run/cdi" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_undeploy_deletes_the_same(kubectl: Environment) -> None:
    """Also when some of it is gone already."""
    make("deploy", env=kubectl)
    _, applied = received(kubectl)
    done = make("undeploy", env=kubectl)
    assert done.returncode == 0, done.stderr
    assert received(kubectl) == ("delete --ignore-not-found --filename -\n", applied)


@pytest.mark.parametrize("target", ["deploy", "undeploy"])
def test_a_refusal_of_the_cluster_is_a_failure_of_make(target: str, kubectl: Environment) -> None:
    """kubectl said why."""
    assert make(target, env={**kubectl, "KUBECTL_EXIT": "1"}).returncode == 2


@pytest.mark.parametrize("target", ["deploy", "undeploy"])
def test_a_wrong_variable_reaches_no_cluster(target: str, kubectl: Environment) -> None:
    """What cannot be rendered is not sent, and make says what is wrong."""
    done = make(target, env={**kubectl, "NUMBER_DEVICES": "many"})
    assert done.returncode == 2
    assert "many" in done.stderr
    assert not (Path(kubectl["RECORD"]) / "arguments").exists()


def test_the_wheel_of_make_build_works(tmp_path: Path) -> None:
    """Installed beside its dependencies it has the command, the presets and the messages."""
    tree, fresh = tmp_path / "tree", tmp_path / "fresh"
    tree.mkdir()
    for name in TREE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, tree / name)
    done = make("build", cwd=tree)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tree / "dist").glob("*.whl")
    assert wheel.name == f"kubedevices-{__version__}-py3-none-any.whl"
    run(sys.executable, "-m", "venv", "--without-pip", fresh)
    pip = (sys.executable, "-m", "pip", "--python", fresh / "bin/python", "--quiet")
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    (site,) = fresh.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert run(fresh / "bin/kubedevices", "--version") == f"kubedevices {__version__}\n"
    look = "import kubedevices, kubedevices.wire.messages as m; print(kubedevices.__file__)"
    assert Path(run(fresh / "bin/python", "-c", look).strip()).is_relative_to(site)
    presets = (fresh / "bin/kubedevices", "simulate", "--preset", "none-of-them")
    told = subprocess.run([*map(str, presets)], capture_output=True, text=True, check=False)
    assert "eight-gpus" in told.stderr


def run(*command: object) -> str:
    """Run a command that has to succeed; return what it printed."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
