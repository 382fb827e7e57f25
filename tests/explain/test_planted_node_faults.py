"""`explain` on a node: the first line about a problem is the cause of a planted fault.

Half of the faults are of device plugins, half of DRA drivers. Each is planted into real sockets and
files of the bench, and the whole command runs.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.dra.claim_log import ClaimLog
from kubedevices.errors import DynamicResourcesFailed
from kubedevices.explain.on_node import ask
from kubedevices.host.device_names_file import names_file
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.testing.workbench.dra_node import NODE_NAME
from kubedevices.values.allocation import ClaimDevice, ClaimReference
from kubedevices.values.socket_paths import CHECKPOINT_NAME, default_state_dir
from tests.dra.test_claim_log import Service
from tests.explain.node_rig import (
    DOMAIN,
    FOREIGN,
    WIDGET,
    ForeignDriver,
    NodeHost,
    Widgets,
    claim_foreign,
    publish_foreign,
    write_cdi,
)
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.waiting import until_sync

Planted = Callable[[NodeHost], Awaitable[str]]
"""Plants a fault; returns the words of `explain` about its resource or driver."""


def dead_socket(path: Path) -> None:
    """Leave a socket file without a process, as a killed one does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    os.utime(path, (0, 0))


async def started(host: NodeHost, *devices: kd.Device) -> None:
    """Start a device plugin with two devices, or with these."""
    scanner = Widgets()
    scanner.devices = [*devices] or scanner.devices
    host.bench.start(scanner, domain=DOMAIN)
    await host.on_bench(host.bench.wait_for, WIDGET, allocatable=len(scanner.devices))
    await checkpointed(host, WIDGET)


async def checkpointed(host: NodeHost, word: str, count: int = 1) -> None:
    """Wait until the kubelet's checkpoint has a word so often."""
    file = host.bench.socket_dir / CHECKPOINT_NAME
    await host.on_bench(until_sync, lambda: file.exists() and file.read_text().count(word) >= count)


async def allocated(host: NodeHost, device: kd.Device) -> None:
    """Let a pod have this device."""
    await started(host, device)
    await host.on_bench(host.bench.allocate, "train", "main", {WIDGET: 1})
    await checkpointed(host, "PodUID")


async def node_stops(host: NodeHost) -> None:
    await host.on_bench(host.bench._thread.call, host.bench._node.stop())


# ---------------------------------------------------------------- device plugins


async def plugin_killed(host: NodeHost) -> str:
    await started(host)
    host.bench.kill_plugin()
    await host.on_bench(host.bench.wait_for, WIDGET, allocatable=0)
    return WIDGET


async def plugin_stopped_by_a_signal(host: NodeHost) -> str:
    command = (sys.executable, "-m", "kubedevices", "simulate", "--resource-name", WIDGET)
    plugin = host.bench.attach(*command, "--socket-dir", "{socket_dir}")
    await host.on_bench(host.bench.wait_for, WIDGET, allocatable=2)
    os.kill(plugin.pid, signal.SIGSTOP)
    host.stack.callback(os.kill, plugin.pid, signal.SIGCONT)
    return WIDGET


async def plugin_never_registers(host: NodeHost) -> str:
    await host.stack.enter_async_context(FakePlugin(host.bench.socket_dir))
    return RESOURCE


async def plugin_missed_a_restart(host: NodeHost) -> str:
    plugin = FakePlugin(host.bench.socket_dir, devices=healthy("w0"))
    await host.stack.enter_async_context(plugin)
    await plugin.register()
    await host.on_bench(host.bench.restart)
    return RESOURCE


async def kubelet_killed(host: NodeHost) -> str:
    await started(host)
    await node_stops(host)
    dead_socket(host.bench.socket_dir / "kubelet.sock")
    return WIDGET


async def kubelet_elsewhere(host: NodeHost) -> str:
    await node_stops(host)
    return WIDGET


async def all_unhealthy(host: NodeHost) -> str:
    scanner = Widgets()
    scanner.devices = [kd.Device("w-0", health=kd.Health.UNHEALTHY)]
    host.bench.start(scanner, domain=DOMAIN)
    await host.on_bench(host.bench.wait_for, WIDGET, capacity=1)
    await checkpointed(host, WIDGET)
    return f"{WIDGET} --ask-plugins"


async def name_is_misspelt(host: NodeHost) -> str:
    await started(host)
    return f"{DOMAIN}/wigdet"


async def device_file_missing(host: NodeHost) -> str:
    await allocated(host, kd.Device("w-0", specs=[kd.DeviceSpec("/dev/kd-none")]))
    return WIDGET


async def cdi_name_without_file(host: NodeHost) -> str:
    await allocated(host, kd.Device("w-0", cdi=f"{DOMAIN}/card=w-0"))
    return WIDGET


async def checkpoint_corrupt(host: NodeHost) -> str:
    await allocated(host, kd.Device("w-0", env={"A": "1"}))
    (host.bench.socket_dir / CHECKPOINT_NAME).write_text('{"Data": {}, "Checksum": 1}')
    return WIDGET


async def one_device_under_two_ids(host: NodeHost) -> str:
    same = [kd.Device(name, specs=[kd.DeviceSpec("/dev/null")]) for name in ("a", "b")]
    await started(host, *same)
    for pod in ("one", "two"):
        await host.on_bench(host.bench.allocate, pod, "main", {WIDGET: 1})
    listed: list[dict[str, object]] = [
        {"id": name, "path": "/dev/null", "file": "/dev/null", "names": [], "port": ""}
        | {"number": 0, "replica": False, "listed": True}
        for name in ("a", "b")
    ]
    state_dir = default_state_dir(host.bench.socket_dir)
    state_dir.mkdir(mode=0o700, exist_ok=True)
    names = {"resources": {"widget": {"id": "stable", "devices": listed}}}
    names_file(SharedDirectory.at(state_dir), DOMAIN).write(names)
    await checkpointed(host, "PodUID", 2)
    return WIDGET


# ---------------------------------------------------------------- DRA drivers


async def claimed(host: NodeHost) -> Any:
    """Let a pod have a claim of our driver."""
    driver = await host.on_bench(host.bench.start, Widgets(), domain=DOMAIN, mode="dra")
    await host.on_bench(host.bench.claim, "train", {WIDGET: 1})
    return driver


async def foreign(host: NodeHost, **options: Any) -> ForeignDriver:
    """Start another vendor's driver, whose devices have a CDI file."""
    driver = ForeignDriver(host, **options)
    write_cdi(host.cdi_dir, f"{FOREIGN}/gpu", "gpu-0")
    await host.stack.enter_async_context(driver.serving())
    await publish_foreign(host)
    return driver


async def driver_killed(host: NodeHost) -> str:
    driver = await claimed(host)
    host.bench.kill_plugin(driver)
    return DOMAIN


async def driver_stopped_by_a_signal(host: NodeHost) -> str:
    dra = await host.on_bench(lambda: host.bench.dra)
    command = (sys.executable, "-m", "kubedevices", "simulate", "--resource-name", WIDGET)
    places = ("--kubeconfig", dra.kubeconfig, "--kubelet-dir", host.root, "--kube-node", NODE_NAME)
    driver = host.bench.attach(*command, "--mode", "dra", *places)
    await host.on_bench(host.bench.wait_published, DOMAIN, devices=2)
    os.kill(driver.pid, signal.SIGSTOP)
    host.stack.callback(os.kill, driver.pid, signal.SIGCONT)
    return DOMAIN


async def foreign_driver_removed(host: NodeHost) -> str:
    driver = ForeignDriver(host)
    write_cdi(host.cdi_dir, f"{FOREIGN}/gpu", "gpu-0")
    async with driver.serving():
        await publish_foreign(host)
        await claim_foreign(host, "train")
    return FOREIGN


async def registration_socket_dead(host: NodeHost) -> str:
    await host.on_bench(lambda: host.bench.dra)
    dead_socket(host.registry / f"{FOREIGN}-reg.sock")
    return FOREIGN


async def registration_never_answers(host: NodeHost) -> str:
    await host.on_bench(lambda: host.bench.dra)
    host.registry.mkdir(exist_ok=True)
    mute = host.stack.enter_context(socket.socket(socket.AF_UNIX))
    mute.bind(str(host.registry / f"{FOREIGN}-reg.sock"))
    mute.listen()
    return FOREIGN


async def service_socket_missing(host: NodeHost) -> str:
    await host.on_bench(lambda: host.bench.dra)
    await host.stack.enter_async_context(ForeignDriver(host).serving(calls=False))
    return FOREIGN


async def api_version_unknown(host: NodeHost) -> str:
    await foreign(host, versions=("v1alpha3.Node",))
    return FOREIGN


async def driver_is_unknown(host: NodeHost) -> str:
    await foreign(host)
    return "gpu.vendor.com"


async def claim_refused(host: NodeHost) -> str:
    class Refuses(Widgets, kd.ClaimPreparer):
        def prepare_claim(self, claimed: kd.ClaimedDevices) -> None:
            raise RuntimeError("the firmware is too old")

        def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
            """Nothing was done."""

    await host.on_bench(host.bench.start, Refuses(), domain=DOMAIN, mode="dra")
    with pytest.raises(DynamicResourcesFailed):
        await host.on_bench(host.bench.claim, "train", {WIDGET: 1})
    return DOMAIN


async def kubelet_forgot_a_claim(host: NodeHost) -> str:
    await claimed(host)
    await forget_pod(host, "train", claim=True)
    return DOMAIN


async def forgotten_claim_holds_a_device(host: NodeHost) -> str:
    await kubelet_forgot_a_claim(host)
    service, waits = Service(), ClaimReference("default", "uid-2", "train-2")
    service.refused = {"uid-2": "the claim default/train-1 still holds device w-0"}
    log = ClaimLog(service, host.root / "plugins" / DOMAIN / "refused.json")
    await log.prepare((waits,))
    return DOMAIN


async def pod_is_gone(host: NodeHost) -> str:
    await foreign(host)
    await claim_foreign(host, "train")
    await forget_pod(host, "train")
    (host.root / "pods" / "another").mkdir(parents=True)
    return FOREIGN


async def forget_pod(host: NodeHost, pod: str, *, claim: bool = False) -> None:
    """Let the kubelet have no such pod, nor its claims."""
    dra = host.bench.dra

    async def forget() -> None:
        del dra.pods[pod]
        if claim:
            for each in dra.kubelet.claims_of(pod):
                dra.kubelet._cache.remove(each)
            dra.kubelet._save()

    await host.on_bench(host.bench._thread.call, forget())


async def cdi_file_of_a_claim_deleted(host: NodeHost) -> str:
    await foreign(host)
    await claim_foreign(host, "train")
    (host.cdi_dir / "vendor.json").unlink()
    return FOREIGN


async def cdi_file_of_a_claim_broken(host: NodeHost) -> str:
    await foreign(host)
    await claim_foreign(host, "train")
    content = json.loads((host.cdi_dir / "vendor.json").read_text())
    content["devices"][0]["containerEdits"] = {"deviceNodes": [{"path": ""}]}
    (host.cdi_dir / "vendor.json").write_text(json.dumps(content))
    return FOREIGN


async def kubelet_state_damaged(host: NodeHost) -> str:
    await foreign(host)
    await claim_foreign(host, "train")
    file = host.root / "dra_manager_state"
    file.write_text(file.read_text().replace("gpu-0", "gpu-1"))
    return FOREIGN


async def checkpoint_of_the_driver_damaged(host: NodeHost) -> str:
    await claimed(host)
    (host.root / "plugins" / DOMAIN / "prepared.json").write_text("{}")
    return DOMAIN


async def one_device_in_two_claims(host: NodeHost) -> str:
    driver = await foreign(host)
    await publish_foreign(host, devices=2)
    driver.devices = (ClaimDevice(("gpu",), NODE_NAME, "gpu-0", driver.names),)
    for pod in ("one", "two"):
        await claim_foreign(host, pod)
    return FOREIGN


async def one_device_in_both_apis(host: NodeHost) -> str:
    await claimed(host)
    await allocated(host, kd.Device("w-0", env={"A": "1"}))
    return WIDGET


PLUGIN_FAULTS: dict[Planted, str] = {
    plugin_killed: "its plugin does not run, no plugin listens in this directory",
    plugin_stopped_by_a_signal: "listens, but is stopped: it does not answer until it continues",
    plugin_never_registers: "no kubelet is connected: the plugin is not registered",
    plugin_missed_a_restart: "listens on it, but the file was deleted",
    kubelet_killed: "the kubelet has ended, and its socket file stays",
    kubelet_elsewhere: "neither a kubelet nor a kubedevices node serves this directory",
    all_unhealthy: "w-0: 0 of 1 devices are healthy; 1 Unhealthy",
    name_is_misspelt: f"no plugin has registered it; known resources: {WIDGET}",
    device_file_missing: "/dev/kd-none: not on this host: no such file or directory",
    cdi_name_without_file: f"no file defines the kind {DOMAIN}/card",
    checkpoint_corrupt: "it cannot be read",
    one_device_under_two_ids: "/dev/null: one device is held under 2 IDs",
}
DRIVER_FAULTS: dict[Planted, str] = {
    driver_killed: f"driver {DOMAIN}: the driver does not run, but has 1 prepared claim",
    driver_stopped_by_a_signal: "listens, but is stopped: it does not answer until it continues",
    foreign_driver_removed: f"driver {FOREIGN}: the driver does not run, but has 1 prepared claim",
    registration_socket_dead: "no process listens on",
    registration_never_answers: "listens, but does not answer, so no kubelet registers it",
    service_socket_missing: f"plugins/{FOREIGN}/dra.sock, does not exist: the kubelet cannot call",
    api_version_unknown: f"{FOREIGN}-reg.sock offers v1alpha3.Node, which this kubelet cannot use",
    driver_is_unknown: "no driver of this name has a registration socket",
    claim_refused: "default/train-1 is not prepared: ",
    kubelet_forgot_a_claim: "default/train-1 is prepared and has w-0, but the kubelet does",
    forgotten_claim_holds_a_device: "default/train-1 is prepared and has w-0, but the kubelet does",
    pod_is_gone: "default/train-1 is prepared and has gpu-0, but the pod that it was prepared for",
    cdi_file_of_a_claim_deleted: f"{FOREIGN}/gpu=gpu-0: claim default/train-1 needs it,",
    cdi_file_of_a_claim_broken: "vendor.json is invalid",
    kubelet_state_damaged: "dra_manager_state: it cannot be read: it is damaged: its checksum",
    checkpoint_of_the_driver_damaged: "prepared.json cannot be read",
    one_device_in_two_claims: f"{FOREIGN}/{NODE_NAME}/gpu-0: one device is held by 2 claims",
    one_device_in_both_apis: f"{WIDGET}/w-0: one device is held in both device APIs",
}
FAULTS = PLUGIN_FAULTS | DRIVER_FAULTS
ONLY_IF_NAMED = (all_unhealthy, name_is_misspelt, driver_is_unknown, kubelet_elsewhere)
"""Without the subject there is no fault, or it cannot be seen."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
async def test_the_first_problem_is_the_cause(
    fault: Planted, host: NodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the whole node, and of the resource or driver; the exit code is 1."""
    monkeypatch.setattr(ask, "DEADLINE", 0.5)
    subject = await fault(host)
    for words in ((), tuple(subject.split())):
        if words or fault not in ONLY_IF_NAMED:
            shown = await host.explain(*words)
            assert FAULTS[fault] in shown.first_problem, shown.out
            assert shown.code == 1


def test_there_are_enough_faults_of_both_apis() -> None:
    """Ten of each at least."""
    assert min(len(PLUGIN_FAULTS), len(DRIVER_FAULTS)) >= 10
