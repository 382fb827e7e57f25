"""The plugins pass `kubedevices check` in the container that the manifests describe.

Left out are the checks that wait longest: they look at a plugin's patience, which no container
changes, and run on the same plugins in tests/conformance. All of them would take two minutes more.
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

pytestmark = pytest.mark.timeout(600)

PATIENCE = (
    "registration.absent-kubelet",
    "registration.refused",
    "registration.slow-kubelet",
    "list.identical",
    "list.stays-open",
    "list.steady",
    "life.kubelet-away",
)
EVERY_PLUGIN = {
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
"""Some that say most: an empty run would pass, too."""

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
    """Check the plugin of a deployment."""
    pod = documents(deployment)[-1]["spec"]["template"]["spec"]
    host = {f"{KUBELET_DIR}/device-plugins": "{socket_dir}", "/dev": "/dev", **places}
    words = built.podman_words("run", "--rm", *podman_arguments(pod, host))
    kubedevices = (sys.executable, "-m", "kubedevices.cli")
    options = ("-o", "json", "--skip", *PATIENCE, *options)
    return built.run(*kubedevices, "check", *options, "--", *words, timeout=300)


class BothChecks:
    """The checks of both plugins. They mostly wait, so they run side by side.

    Each result is given away once: the rerun of a failed test runs its check again.
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
        config = directory / "config"
        self._threads = threads
        self._checks = {
            "simulate": partial(check, built, simulate),
            "expose": partial(check, built, expose, *hot_plug, configMap=config),
        }
        self._running = {name: threads.submit(each) for name, each in self._checks.items()}

    def take(self, name: str) -> "subprocess.CompletedProcess[str]":
        """Wait for the check of a plugin."""
        running = self._running.pop(name, None)
        return (running or self._threads.submit(self._checks[name])).result()


@pytest.fixture(scope="module")
def checks(built: ImageHost) -> Iterator[BothChecks]:
    """Start both checks."""
    directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    devices, config = directory / "devices", directory / "config"
    for each in (devices, config):
        each.mkdir()
    (config / "config.yaml").write_text(CONFIG)
    for name in ("w0", "w1"):
        (devices / name).touch()
    with ThreadPoolExecutor() as threads:
        yield BothChecks(built, directory, threads)
    shutil.rmtree(directory)


def passed(done: "subprocess.CompletedProcess[str]") -> set[str]:
    """Return the checks that the plugin passed, after a look that it failed none."""
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert [each for each in checks if each["status"] in {"fail", "warn"}] == []
    assert done.returncode == 0, done.stderr
    return {each["id"] for each in checks if each["status"] == "pass"}


def test_the_simulator_is_well_behaved_in_its_pod(checks: BothChecks) -> None:
    """It registers, serves, comes back and stops as outside."""
    assert passed(checks.take("simulate")) >= EVERY_PLUGIN


def test_expose_is_well_behaved_in_its_pod(checks: BothChecks) -> None:
    """It sees new devices of the host, too."""
    found = passed(checks.take("expose"))
    assert found >= EVERY_PLUGIN | {"allocate.host-paths", "list.change", "life.lost-updates"}
