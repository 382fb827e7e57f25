"""The image runs as in the manifests: read-only, without capabilities, with a node outside."""

import asyncio
import contextlib
import json
import shlex
import signal
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubedevices.manifests.deployment import KUBELET_DIR, METRICS_PORT, Deployment
from kubedevices.manifests.workload import documents
from kubedevices.node.pods import pod as pods
from tests.deploy.pod_arguments import podman_arguments
from tests.image_host import ImageHost
from tests.node_process import NodeProcess, node_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LIMIT = 60
PAGE = """\
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1])
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""
PLUGINS = f"{KUBELET_DIR}/device-plugins"
CONFIG = """\
version: 1
namespace: devices.example.com
scanInterval: 100ms
resources:
- name: {name}
  match: [{{path: /dev/widget*}}]
  health: {{command: [sh, -c, "test -e {{path}} &"], interval: 1s}}
"""


POD = pods.Pod("train", containers=(pods.Container("main", {"devices.example.com/widget": 1}),))
TRY_TO_WRITE = (
    "for d in / /opt /tmp /run /var/tmp; do touch $d/x 2>/dev/null && echo $d; done; true"
)


@dataclass
class Container:
    """A running container."""

    host: ImageHost
    name: str

    def inside(self, *command: object) -> str:
        """Return the output of a command in the container."""
        return self.host.podman("exec", self.name, *command)

    def page(self, path: str) -> str:
        """Return status and text of a page, as a probe gets them."""
        port = METRICS_PORT
        return self.inside("python3", "-c", PAGE, f"http://127.0.0.1:{port}{path}")

    def inspect(self) -> Any:
        """Return the state of the container."""
        (found,) = json.loads(self.host.podman("container", "inspect", self.name))
        return found["State"]

    async def until(self, condition: Any, what: str) -> None:
        """Wait until `condition()` is true."""
        deadline = time.monotonic() + LIMIT
        while not await asyncio.to_thread(condition):
            assert time.monotonic() < deadline, (what, self.log())
            await asyncio.sleep(0.05)

    def log(self) -> str:
        """Return the whole log."""
        done = self.host.run(*self.host.podman_words("logs", self.name))
        return done.stdout + done.stderr


@contextlib.asynccontextmanager
async def started(
    host: ImageHost, pod: Mapping[str, Any], places: Mapping[str, Path], *options: str
) -> AsyncIterator[Container]:
    """Run the container of the pod until the end of the context."""
    name = f"pod-{time.monotonic_ns()}"
    await asyncio.to_thread(
        host.podman, "run", "--detach", f"--name={name}", *options, *podman_arguments(pod, places)
    )
    try:
        yield Container(host, name)
    finally:
        await asyncio.to_thread(host.podman, "rm", "--force", "--time=0", name)


def pod_of(deployment: Deployment) -> Any:
    return documents(deployment)[-1]["spec"]["template"]["spec"]


@contextlib.asynccontextmanager
async def node_beside(directory: Path) -> AsyncIterator[tuple[NodeProcess, dict[str, Path]]]:
    """Run a node on this host; also return the directories that replace the host paths of a pod."""
    devices, cdi, pod_resources = directory / "dev", directory / "cdi", directory / "r"
    for each in (devices, cdi, pod_resources):
        each.mkdir()
    async with node_process(
        directory, "--pod-resources", str(pod_resources / "kubelet.sock")
    ) as node:
        yield (
            node,
            {
                PLUGINS: directory / "p",
                "/dev": devices,
                "/var/run/cdi": cdi,
                f"{KUBELET_DIR}/pod-resources": pod_resources,
                "configMap": directory / "config",
            },
        )


async def allocatable(node: NodeProcess, resource: str, wanted: int) -> None:
    """Wait until `wanted` devices of the resource are allocatable."""
    deadline = time.monotonic() + LIMIT
    async with await node.ask() as client:
        while (found := (await client.capacity())["allocatable"]).get(resource) != wanted:
            assert time.monotonic() < deadline, (found, node.log)
            await asyncio.sleep(0.05)


def put_config(directory: Path, text: str) -> None:
    """Write a mounted ConfigMap as a kubelet does: a new directory, and a link that is replaced."""
    directory.mkdir(exist_ok=True)
    version = directory / f"..{time.monotonic_ns()}"
    version.mkdir()
    (version / "config.yaml").write_text(text)
    (directory / "..new").symlink_to(version.name)
    (directory / "..new").rename(directory / "..data")
    if not (directory / "config.yaml").is_symlink():
        (directory / "config.yaml").symlink_to("..data/config.yaml")


async def test_the_simulator_registers_from_its_pod(built: ImageHost, short_dir: Path) -> None:
    """Its devices become allocatable, its probes get answers, and SIGTERM ends it with code 0."""
    env = {"RESOURCE_NAME": "example.com/gpu", "NUMBER_DEVICES": "3"}
    deployment = Deployment("simulate", built.image, env=env)
    pod = pod_of(deployment)
    async with node_beside(short_dir) as (node, places), started(built, pod, places) as container:
        await allocatable(node, "example.com/gpu", 3)
        for probe in ("readinessProbe", "livenessProbe"):
            path = pod["containers"][0][probe]["httpGet"]["path"]
            await container.until(lambda path=path: "200 ok" in container.page(path), path)
        assert await stop(container, pod) == 0
        assert not [path for path in places[PLUGINS].iterdir() if "plugin" in path.name]


async def stop(container: Container, pod: Mapping[str, Any]) -> int:
    """Stop as a kubelet does: SIGTERM, then SIGKILL after the grace period; return the
    exit code.
    """
    grace = f"--time={pod['terminationGracePeriodSeconds']}"
    await asyncio.to_thread(container.host.podman, "stop", grace, container.name)
    code: int = container.inspect()["ExitCode"]
    return code


async def test_the_container_has_no_unneeded_rights(built: ImageHost, short_dir: Path) -> None:
    """No capabilities, no way to gain them, a filter for system calls, no writable directory."""
    pod = pod_of(Deployment("simulate", built.image))
    async with node_beside(short_dir) as (_, places), started(built, pod, places) as container:
        status = dict(
            line.split(":\t", 1) for line in container.inside("cat", "/proc/1/status").splitlines()
        )
        assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        writable = container.inside(
            "sh", "-c", "for d in / /opt /tmp /run; do touch $d/x && echo $d; done; true"
        )
        assert writable == ""


async def test_expose_serves_from_a_config_map(built: ImageHost, short_dir: Path) -> None:
    """It follows the ConfigMap, finds new devices, writes CDI files, and asks for the holders."""
    pod = pod_of(Deployment("expose", built.image, cdi=True, metrics=True))
    put_config(short_dir / "config", CONFIG.format(name="widget"))
    async with node_beside(short_dir) as (node, places), started(built, pod, places) as container:
        (places["/dev"] / "widget0").touch()
        await allocatable(node, "devices.example.com/widget", 1)
        (places["/dev"] / "widget1").touch()
        await allocatable(node, "devices.example.com/widget", 2)
        assert [*places["/var/run/cdi"].glob("*.json")]
        async with await node.ask() as client:
            await client.allocate(POD)
        held = "kubedevices_plugin_device_allocated{"
        await container.until(lambda: held in container.page("/metrics"), "who holds what")
        put_config(short_dir / "config", CONFIG.format(name="gadget"))
        await allocatable(node, "devices.example.com/gadget", 2)
        assert await stop(container, pod) == 0


async def test_orphans_of_health_commands_are_reaped(built: ImageHost, short_dir: Path) -> None:
    """An orphan in a container becomes a child of process 1, which has to reap it."""
    pod = pod_of(Deployment("simulate", built.image))
    async with node_beside(short_dir) as (_, places), started(built, pod, places) as container:
        orphan = container.inside("sh", "-c", "sleep 0.1 >/dev/null 2>&1 & echo $!").strip()
        gone = f"test ! -e /proc/{orphan} && echo gone || true"
        await container.until(lambda: container.inside("sh", "-c", gone), "the orphan's end")


async def test_sigterm_ends_the_container_at_any_time(built: ImageHost, short_dir: Path) -> None:
    """While Python starts, no handler is set, and the kernel ignores such a signal for
    process 1.
    """
    pod = pod_of(Deployment("simulate", built.image))
    async with node_beside(short_dir) as (_, places):
        pid_file = short_dir / "pid"
        options = ("--detach", "--name=brief", f"--pidfile={pid_file}")
        run = built.podman_words("run", *options, *podman_arguments(pod, places))
        # Until the runtime has started the image, the process is runc.
        kill = f"pid=$(cat {pid_file}) && while grep -q runc /proc/$pid/comm; do :; done; kill $pid"
        container = Container(built, "brief")
        try:
            done = built.run("sh", "-c", f"{shlex.join(run)} >/dev/null && {kill}")
            assert done.returncode == 0, done.stderr
            await container.until(lambda: container.inspect()["Status"] == "exited", "the end")
            assert container.inspect()["ExitCode"] in (0, 128 + signal.SIGTERM)
        finally:
            built.podman("rm", "--force", "--time=0", "brief")
