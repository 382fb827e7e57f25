"""`kubedevices explain` names each fault of real processes."""

import asyncio
import json
import signal
import subprocess
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from examples.runc_config import minimal_config
from kubedevices.errors import RpcError
from kubedevices.host.device_files import read_device_files
from kubedevices.host.runtimes import oci
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.services.control_client import ControlClient
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
)
from kubedevices.values.device import DeviceSpec
from kubedevices.values.socket_paths import default_state_dir
from tests.cli.commands import run, running
from tests.containers import make_root_file_system, two_devices
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.host_needs import needs
from tests.node_thread import NodeThread, node_thread
from tests.waiting import until_sync

GPU = "example.com/gpu"


Findings = list[tuple[str, str, str]]
Document = dict[str, Any]


class Host:
    """A node and a simulator, each a process; `explain` returns the findings of the command."""

    def __init__(self, directory: Path, processes: ExitStack) -> None:
        self.directory, self._processes = directory, processes
        self.socket_dir = directory / "p"
        self.socket_dir.mkdir()

    def start_node(self, *options: object) -> "subprocess.Popen[str]":
        node = self._start("node", *options, "-o", "json")
        assert node.stdout is not None
        while json.loads(node.stdout.readline())["event"] != "ready":
            pass
        return node

    def simulate(self, *options: object) -> "subprocess.Popen[str]":
        plugin = self._start("simulate", "--resource-name", GPU, *options)
        until_sync(lambda: GPU in self.devices())
        return plugin

    def _start(self, verb: str, *options: object) -> "subprocess.Popen[str]":
        command = [verb, "--socket-dir", self.socket_dir, *options]
        return self._processes.enter_context(running(command, log=self.directory / f"{verb}.log"))

    def devices(self) -> dict[str, dict[str, Any]]:
        document = self._ask(lambda client: client.devices())
        return {
            each["resource"]: each for each in document["resources"] if each["plugin"] != "starting"
        }

    def allocate(self, count: int) -> None:
        pod = Pod("train", containers=(Container("main", {GPU: count}),))
        self._ask(lambda client: client.allocate(pod))
        checkpoint = self.socket_dir / "kubelet_internal_checkpoint"
        until_sync(lambda: checkpoint.exists() and b"PodUID" in checkpoint.read_bytes())

    def _ask(
        self, question: Callable[[ControlClient], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        async def connect_and_ask() -> dict[str, Any]:
            state_dir = default_state_dir(self.socket_dir)
            async with await ControlClient.connect(self.socket_dir, state_dir) as client:
                return await question(client)

        return asyncio.run(connect_and_ask())

    def explain(self, *arguments: object, code: int = 1) -> Findings:
        """Return the findings that are not ok: step, result, place and text."""
        return explain(*arguments, "--socket-dir", self.socket_dir, code=code)


def explain(*arguments: object, code: int) -> Findings:
    done = run("explain", *arguments, "-o", "json")
    assert done.returncode == code, done.stdout + done.stderr
    document = json.loads(done.stdout)
    findings = [*document["findings"], *document["resources"][0]["findings"]]
    return [
        (each["step"], each["result"], f"{each['looked_at']}: {each['found']}")
        for each in findings
        if each["result"] != "ok"
    ]


def steps(findings: Sequence[tuple[str, str, str]], result: str = "problem") -> list[str]:
    return [step for step, came_out, _ in findings if came_out == result]


@pytest.fixture
def host(short_dir: Path) -> Iterator[Host]:
    with ExitStack() as processes:
        yield Host(short_dir, processes)


def test_a_working_device_has_no_problem(host: Host) -> None:
    """Simulated devices without files need no files."""
    host.start_node()
    host.simulate()
    host.allocate(1)
    assert host.explain(GPU, code=0) == []


def test_a_killed_plugin_is_found(host: Host) -> None:
    """Its socket file stays, its devices are in the grace period."""
    host.start_node()
    plugin = host.simulate()
    plugin.send_signal(signal.SIGKILL)
    until_sync(lambda: host.devices()[GPU]["plugin"] == "stopped")
    stale, gone = host.explain(GPU)
    assert stale[:2] == ("plugin socket", "warning")
    assert "no process listens on it" in stale[2]
    assert gone[:2] == ("registration", "problem")
    assert "its plugin disconnected" in gone[2]


def test_a_killed_node_is_found(host: Host) -> None:
    """`kubelet.sock` still exists, but no process listens."""
    node = host.start_node()
    host.simulate()
    node.send_signal(signal.SIGKILL)
    node.wait(10)
    findings = host.explain(GPU)
    assert steps(findings) == ["kubelet.sock"]
    assert "its socket file stays" in findings[0][2]


def test_an_unhealthy_device_is_found(host: Host) -> None:
    """Only this device is named."""
    host.start_node()
    control = host.directory / "sim.sock"
    host.simulate("--control-socket", control, "--device-id-prefix", "gpu", "--node-name", "n")
    step = '{set: {id: "gpu-n-1", health: Unhealthy}}'
    assert run("simulate", "--control-socket", control, "--tell", step).returncode == 0
    until_sync(lambda: host.devices()[GPU]["allocatable"] == 1)
    ((station, result, text),) = host.explain(GPU)
    assert (station, result) == ("health", "problem")
    assert text.startswith("gpu-n-1: 1 of 2 devices are healthy")


def test_no_free_device_is_explained(host: Host) -> None:
    """This is no fault: exit code 0, and the output names the pods that hold the devices."""
    host.start_node()
    host.simulate()
    host.allocate(2)
    ((station, result, text),) = host.explain(GPU, code=0)
    assert (station, result) == ("held", "warning")
    assert "2 of 2 healthy devices are held, by default/train (main)" in text


def test_a_missing_device_file_is_found(host: Host) -> None:
    """A plugin may allocate a device file that the host does not have."""
    host.start_node()
    host.simulate("--device-file-prefix", "kd-missing")
    host.allocate(1)
    ((station, result, text),) = host.explain(GPU)
    assert (station, result) == ("device file", "problem")
    assert text == "/dev/kd-missing-0: not on this host: no such file or directory"


def test_devices_without_numa_nodes_under_a_policy_are_found(host: Host) -> None:
    """The node treats them as near to all NUMA nodes."""
    host.start_node("--topology-policy", "restricted", "--numa-nodes", "0-1")
    host.simulate()
    ((station, result, text),) = host.explain(GPU, code=0)[:1]
    assert (station, result) == ("NUMA nodes", "warning")
    assert "2 of 2 devices report no NUMA node" in text


def test_a_lost_plugin_of_a_kubelet_is_found(host: Host) -> None:
    """Without the control socket, only from podresources and the checkpoint."""
    beside = host.directory / "pod-resources" / "kubelet.sock"
    host.start_node("--pod-resources", beside)
    plugin = host.simulate()
    host.allocate(1)
    elsewhere = ("--state-dir", host.directory / "nowhere")
    assert steps(host.explain(GPU, *elsewhere, code=0), "warning") == []
    plugin.send_signal(signal.SIGKILL)
    until_sync(lambda: host.devices()[GPU]["plugin"] == "stopped")
    findings = host.explain(GPU, *elsewhere)
    assert steps(findings) == ["registration"]
    (text,) = [text for step, _, text in findings if step == "registration"]
    assert text.startswith(f"kubelet at {beside}: its plugin does not run, no plugin listens")


# ---------------------------------------------------------------- plugins that behave badly


def test_a_plugin_that_missed_a_node_restart_is_found(short_dir: Path) -> None:
    """The node deleted its socket at the start; the plugin still listens on the deleted file."""
    with node_thread(short_dir / "p") as node:
        node.serve(healthy("w0"))
        node.plugin.socket.unlink()  # as a kubelet does when it starts
        node.call(node.manager.stop())
        node.call(node.manager.start())
        findings = explain(RESOURCE, "--socket-dir", node.socket_dir, code=1)
    assert steps(findings) == ["plugin socket", "registration"]
    assert f"{node.plugin.socket}: " in findings[0][2]
    assert "but the file was deleted" in findings[0][2]


def test_a_plugin_that_never_registers_is_found(short_dir: Path) -> None:
    """It listens, but no kubelet is connected."""
    with node_thread(short_dir / "p") as node:
        findings = explain(RESOURCE, "--socket-dir", node.socket_dir, code=1)
    assert steps(findings) == ["plugin socket", "registration"]
    assert "no kubelet is connected: the plugin is not registered" in findings[0][2]


def test_a_refused_plugin_is_found(short_dir: Path) -> None:
    """With the node's reason, and a valid name."""
    with node_thread(short_dir / "p") as node:

        async def register_badly() -> None:
            async with FakePlugin(node.socket_dir, "widget", socket_name="w.sock") as plugin:
                await plugin.register()

        with pytest.raises(RpcError):
            node.call(register_badly())
        findings = explain("widget", "--socket-dir", node.socket_dir, code=1)
    refused = next(text for step, _, text in findings if step == "registration")
    assert refused == (
        'widget at w.sock: the node refused it: the ResourceName "widget" is invalid'
    )
    assert "name" in steps(findings)


def test_a_plugin_without_a_list_is_found(short_dir: Path) -> None:
    """It is registered, but only a list brings devices."""
    with node_thread(short_dir / "p") as node:
        node.call(node.plugin.send_bytes(None))
        node.call(node.plugin.register())
        findings = explain(RESOURCE, "--socket-dir", node.socket_dir, code=1)
    ((station, result, text),) = findings[:1]
    assert (station, result) == ("device list", "problem")
    assert "has not sent a list" in text


def answering(node: NodeThread, response: ContainerAllocateResponse) -> Pod:
    """Give the plugin one device and this answer, and allocate the device."""

    def answer(request: AllocateRequest) -> AllocateResponse:
        return AllocateResponse([response for _ in request.containers])

    # A new uid for each test: it names a cgroup, and workers, which are forks, run side by side.
    pod = Pod("train", uid=str(uuid.uuid4()), containers=(Container("main", {RESOURCE: 1}),))
    node.plugin.allocate_answer = answer
    node.serve(healthy("w0", "w1"))
    node.call(node.manager.allocate(pod))
    checkpoint = node.socket_dir / "kubelet_internal_checkpoint"
    until_sync(lambda: checkpoint.exists() and pod.uid.encode() in checkpoint.read_bytes())
    return pod


def test_a_cdi_name_without_a_file_is_found(short_dir: Path) -> None:
    """A runtime only says that the name is unresolvable."""
    with node_thread(short_dir / "p") as node:
        answering(node, ContainerAllocateResponse(cdi_devices=["example.com/widget=w0"]))
        (short_dir / "cdi").mkdir()
        arguments = (RESOURCE, "--cdi-dir", short_dir / "cdi", "--socket-dir", node.socket_dir)
        ((station, result, text),) = explain(*arguments, code=1)
        assert (station, result) == ("CDI name", "problem")
        assert "no file defines the kind example.com/widget" in text
        (short_dir / "cdi" / "w.json").write_text(
            '{"cdiVersion": "0.3.0", "kind": "example.com/widget", "devices": '
            '[{"name": "w0", "containerEdits": {"env": ["A=1"]}}]}'
        )
        assert explain(*arguments, code=0) == []


# ---------------------------------------------------------------- inside real containers


def start_container(uid: str, bundle: Path, config: dict[str, Any], processes: ExitStack) -> None:
    """Start a container with runc under the name of the pod, so that its cgroup has this name."""
    (bundle / "config.json").write_text(json.dumps(config))
    runc = ["runc", "--root", str(bundle / "state")]
    processes.callback(
        subprocess.run, [*runc, "delete", "--force", f"pod{uid}"], check=True, timeout=20
    )
    subprocess.run(
        [*runc, "run", "--detach", "--bundle", str(bundle), f"pod{uid}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=20,
    )


@needs("mount", "runc")
@pytest.mark.parametrize("fault", ["", "left out", "user"])
def test_a_container_without_access_to_its_device_is_found(short_dir: Path, fault: str) -> None:
    """Also a container with access, one without the device, and one whose user may not open it."""
    path, _ = two_devices()
    with node_thread(short_dir / "p") as node, ExitStack() as processes:
        pod = answering(node, ContainerAllocateResponse(devices=[DeviceSpec(path, "/dev/w")]))
        options = node.call(node.manager.get_device_run_container_options(pod, "main"))
        assert options is not None
        config = minimal_config(["/bin/busybox", "sleep", "60"])
        if fault != "left out":
            files = read_device_files(oci.host_paths(options))
            config = oci.apply_to_oci(config, options, files)
            config["linux"]["devices"][-1] |= {"fileMode": 0o660, "uid": 0, "gid": 44}
        if fault == "user":
            config["process"]["user"] = {"uid": 1000, "gid": 1000}
        make_root_file_system(short_dir / "rootfs")
        start_container(pod.uid, short_dir, config, processes)
        findings = explain(RESOURCE, "--socket-dir", node.socket_dir, code=1 if fault else 0)
    told = [text for step, result, text in findings if (step, result) == ("container", "problem")]
    assert [fault] * bool(fault) == [
        "left out" if "/dev/w is not in it" in text else "user" for text in told
    ]
    assert "cgroup" not in steps(findings)
    if fault == "user":
        assert "(user 1000, groups 1000) may not open it" in told[0]
