"""`make build`, `deploy` and `undeploy`, with a fake kubectl. `make image` has its own tests.

The behaviour of `deploy` and `undeploy` is tested in `tests/cli/test_deploy.py`.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubedevices import __version__
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.workload import objects

ROOT = Path(__file__).parents[2]
BIN = shlex.quote(str(Path(sys.executable).parent))  # a word of a recipe
TREE = ("src", "Makefile", "README.md", "LICENSE", "pyproject.toml", "setup.py", "requirements.txt")
KUBECTL = """\
#!/bin/sh
echo "$@" >> "$RECORD/commands"
cat > "$RECORD/new"
if [ -s "$RECORD/new" ]; then mv "$RECORD/new" "$RECORD/input"; fi
[ "${KUBECTL_EXIT:-0}" = 0 ] || echo "the cluster says no" >&2
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
    """Run make with the environment of these tests instead of a new one."""
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
    """Put a kubectl on the path that records its arguments; return the environment with
    this path.
    """
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECORD": str(tmp_path)}


def commands(kubectl: Environment) -> list[str]:
    """Return the recorded arguments."""
    record = Path(kubectl["RECORD"]) / "commands"
    return record.read_text().splitlines() if record.exists() else []


def received(kubectl: Environment) -> list[Any]:
    """Return the documents of the last call."""
    return list(json.loads((Path(kubectl["RECORD"]) / "input").read_text())["items"])


def test_deploy_uses_the_variables_of_simple_device_plugin(kubectl: Environment) -> None:
    """They are read from the environment."""
    settings = ("IMAGE=localhost/img:1", "DEPLOY_ARGS=--timeout 0")
    done = make("deploy", *settings, env={**kubectl, **SETTINGS})
    assert done.returncode == 0, done.stderr
    name = "kubedevices-simulate-example-com-gpu"
    deployment = Deployment("simulate", "localhost/img:1", namespace="lab", env=SETTINGS, name=name)
    wanted = [each for each in objects(deployment) if each["kind"] != "ResourceQuota"]
    assert sort_env(received(kubectl)) == sort_env(wanted)


def sort_env(found: list[Any]) -> list[Any]:
    """Environment variables have no order. The DaemonSet is applied last."""
    (container,) = found[-1]["spec"]["template"]["spec"]["containers"]
    container["env"].sort(key=lambda each: each["name"])
    return found


def test_deploy_needs_the_name_of_an_image(kubectl: Environment) -> None:
    """A cluster cannot pull the default name of `make image`. A name that is set is used."""
    done = make("deploy", env=kubectl)
    assert done.returncode == 2
    assert "which image?" in done.stderr
    assert not commands(kubectl)
    settings = {"IMAGE": "localhost/img:1", "DEPLOY_ARGS": "--timeout 0"}
    done = make("deploy", env={**kubectl, **settings})
    assert done.returncode == 0, done.stderr


def test_deploy_of_expose_uses_its_configuration(kubectl: Environment, tmp_path: Path) -> None:
    """`MANIFEST_ARGS` has all options without a variable."""
    config = tmp_path / "devices.yaml"
    config.write_text(
        "version: 1\nnamespace: lab.example.com\n"
        "resources:\n- {name: zero, match: [{path: /dev/zero}]}\n"
    )
    settings = ("IMAGE=localhost/img:1", "DEPLOY_ARGS=--timeout 0")
    done = make(
        "deploy", "PLUGIN=expose", f"MANIFEST_ARGS=--config {config} --cdi", *settings, env=kubectl
    )
    assert done.returncode == 0, done.stderr
    applied = received(kubectl)
    (data,) = (each["data"] for each in applied if each["kind"] == "ConfigMap")
    assert data["config.yaml"] == config.read_text()
    (container,) = applied[-1]["spec"]["template"]["spec"]["containers"]
    assert "/var/run/cdi" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_undeploy_deletes_by_label(kubectl: Environment) -> None:
    """The label of the plugin is computed from the same variables."""
    done = make("undeploy", env={**kubectl, **SETTINGS})
    assert done.returncode == 0, done.stderr
    label = "app.kubernetes.io/instance=kubedevices-simulate-example-com-gpu"
    assert any(label in each for each in commands(kubectl))


@pytest.mark.parametrize("target", ["deploy", "undeploy"])
def test_an_error_of_kubectl_is_an_error_of_make(target: str, kubectl: Environment) -> None:
    """kubectl prints the reason."""
    done = make(target, "IMAGE=localhost/img:1", env={**kubectl, "KUBECTL_EXIT": "1"})
    assert done.returncode == 2
    assert "the cluster says no" in done.stderr


@pytest.mark.parametrize("target", ["deploy", "undeploy"])
def test_a_wrong_variable_does_not_reach_the_cluster(target: str, kubectl: Environment) -> None:
    """Nothing is sent if the manifest cannot be rendered. make prints the reason."""
    settings = {"NUMBER_DEVICES": "many", "IMAGE": "localhost/img:1"}
    done = make(target, env={**kubectl, **settings})
    assert done.returncode == 2
    assert "many" in done.stderr
    assert not commands(kubectl)


@pytest.mark.slow
def test_the_wheel_of_make_build_works(tmp_path: Path) -> None:
    """Installed with its dependencies, the wheel has the command, the presets and the messages."""
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
    look = "import kubedevices.kubelet_api.convert; print(kubedevices.__file__)"
    assert Path(run(fresh / "bin/python", "-c", look).strip()).is_relative_to(site)
    presets = (fresh / "bin/kubedevices", "simulate", "--preset", "none-of-them")
    told = subprocess.run([*map(str, presets)], capture_output=True, text=True, check=False)
    assert "eight-gpus" in told.stderr


def run(*command: object) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
