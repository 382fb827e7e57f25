"""The plugins pass `kubedevices check` in the container of the manifests.

The slowest checks are left out, because they would take two minutes more. They wait for the plugin,
the container does not change their result, and tests/check runs them on the same plugins.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubedevices.manifests.deployment import KUBELET_DIR, Deployment
from kubedevices.manifests.workload import documents
from tests.deploy.pod_arguments import podman_arguments
from tests.image_host import ImageHost

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SLOW_CHECKS = (
    "registration.absent-kubelet",
    "registration.refused",
    "registration.slow-kubelet",
    "list.identical",
    "list.stays-open",
    "list.steady",
    "life.kubelet-away",
)
IMPORTANT_CHECKS = {
    "registration.registers",
    "registration.two-instances",
    "list.second-stream",
    "allocate.concurrent",
    "life.sockets-wiped",
    "life.memory",
    "life.stop-code",
    "life.stop-socket",
    "grpc.idle-connection",
}
"""Checks that must be among the passed checks: an empty run would have no failures either."""

CONFIG = """\
version: 1
namespace: devices.example.com
scanInterval: 200ms
resources:
- name: widget
  match: [{path: /dev/widgets/*}]
  env: {"WIDGET_{index}": "{container_path}"}
  replicas: 2
"""


def check(
    built: ImageHost, deployment: Deployment, *options: object, **places: object
) -> "subprocess.CompletedProcess[str]":
    """Run the checks on the plugin of a deployment."""
    pod = documents(deployment)[-1]["spec"]["template"]["spec"]
    host = {f"{KUBELET_DIR}/device-plugins": "{socket_dir}", "/dev": "/dev", **places}
    words = built.podman_words("run", "--rm", *podman_arguments(pod, host))
    kubedevices = (sys.executable, "-m", "kubedevices.cli")
    options = ("-o", "json", "--skip", *SLOW_CHECKS, *options)
    return built.run(*kubedevices, "check", *options, "--", *words, timeout=300)


class BothChecks:
    """Runs the checks of both plugins at the same time, because checks mostly wait.

    Each result is returned once: the rerun of a failed test runs its check again.
    """

    def __init__(self, built: ImageHost, directory: Path, threads: ThreadPoolExecutor) -> None:
        devices = directory / "devices"
        hot_plug = (
            "--bind",
            f"{devices}:/dev/widgets",
            "--trigger",
            f"touch {devices}/$(date +%N)",
        )
        expose = Deployment("expose", built.image)
        simulate = Deployment("simulate", built.image, env={"NUMBER_DEVICES": "4"})
        places = {
            "configMap": directory / "config",
            f"{KUBELET_DIR}/pod-resources": directory / "pod-resources",  # nobody serves there
        }
        self._threads = threads
        self._checks = {
            "simulate": partial(check, built, simulate),
            "expose": partial(check, built, expose, *hot_plug, **places),
        }
        self._running = {name: threads.submit(each) for name, each in self._checks.items()}

    def take(self, name: str) -> "subprocess.CompletedProcess[str]":
        """Wait for the checks of a plugin."""
        running = self._running.pop(name, None)
        return (running or self._threads.submit(self._checks[name])).result()


@pytest.fixture(scope="module")
def checks(built: ImageHost) -> Iterator[BothChecks]:
    """Start the checks of both plugins."""
    directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    devices, config = directory / "devices", directory / "config"
    for each in (devices, config, directory / "pod-resources"):
        each.mkdir()
    (config / "config.yaml").write_text(CONFIG)
    for name in ("w0", "w1"):
        (devices / name).touch()
    with ThreadPoolExecutor() as threads:
        yield BothChecks(built, directory, threads)
    shutil.rmtree(directory)


def passed(done: "subprocess.CompletedProcess[str]") -> set[str]:
    """Return the names of the passed checks; assert that no check failed."""
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert [each for each in checks if each["status"] in {"fail", "warn"}] == []
    assert done.returncode == 0, done.stderr
    return {each["id"] for each in checks if each["status"] == "pass"}


def test_the_simulator_passes_the_checks_in_its_pod(checks: BothChecks) -> None:
    """Registration, lists, restarts and stop work as outside of a container."""
    assert passed(checks.take("simulate")) >= IMPORTANT_CHECKS


def test_expose_passes_the_checks_in_its_pod(checks: BothChecks) -> None:
    """It also finds new devices of the host."""
    found = passed(checks.take("expose"))
    assert found >= IMPORTANT_CHECKS | {"allocate.host-paths", "list.change", "life.lost-updates"}
