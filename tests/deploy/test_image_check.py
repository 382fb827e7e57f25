"""The plugins pass `kubedevices check` in the container that the manifests describe.

Left out are the checks that wait longest: they look at a plugin's patience, which no container
changes, and run on the same plugins in tests/conformance. All of them would take two minutes more.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubedevices.manifests.deployment import KUBELET_DIR, Deployment
from kubedevices.manifests.workload import documents
from tests.deploy.pod_arguments import podman_arguments
from tests.image_host import ImageHost

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

Results = dict[str, subprocess.CompletedProcess[str]]

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


@pytest.fixture(scope="module")
def results(built: ImageHost) -> Iterator[Results]:
    """Give how the checks of both plugins ended; they mostly wait, so they do it side by side."""
    directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    devices, config = directory / "devices", directory / "config"
    for each in (devices, config):
        each.mkdir()
    (config / "config.yaml").write_text(CONFIG)
    for name in ("w0", "w1"):
        (devices / name).touch()
    hot_plug = ("--bind", f"{devices}:/dev/widgets", "--trigger", f"touch {devices}/$(date +%N)")
    simulate = Deployment("simulate", built.image, env={"NUMBER_DEVICES": "4"})
    expose = Deployment("expose", built.image)
    with ThreadPoolExecutor() as threads:
        both = {
            "simulate": threads.submit(check, built, simulate),
            "expose": threads.submit(check, built, expose, *hot_plug, configMap=config),
        }
        yield {name: each.result() for name, each in both.items()}
    shutil.rmtree(directory)


def passed(done: "subprocess.CompletedProcess[str]") -> set[str]:
    """Return the checks that the plugin passed, after a look that it failed none."""
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert [each for each in checks if each["status"] in {"fail", "warn"}] == []
    assert done.returncode == 0, done.stderr
    return {each["id"] for each in checks if each["status"] == "pass"}


def test_the_simulator_is_well_behaved_in_its_pod(results: Results) -> None:
    """It registers, serves, comes back and stops as outside."""
    assert passed(results["simulate"]) >= EVERY_PLUGIN


def test_expose_is_well_behaved_in_its_pod(results: Results) -> None:
    """It sees new devices of the host, too."""
    found = passed(results["expose"])
    assert found >= EVERY_PLUGIN | {"allocate.host-paths", "list.change", "life.lost-updates"}
