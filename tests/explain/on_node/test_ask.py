"""Asking a node, a kubelet, a checkpoint and plugins, over real sockets."""

import asyncio
import socket as sockets
from pathlib import Path

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.explain.on_node import ask
from kubedevices.explain.on_node.facts import DeviceState, RefusedPlugin, ResourceFacts
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.node.checkpoint.text import Checkpoint, checkpoint_of, format_checkpoint
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import HeldDevices, Holding
from kubedevices.node.services.control import ControlService
from kubedevices.node.services.pod_resources import PodResourcesServer
from kubedevices.values.allocation import ContainerAllocateResponse, PluginInfo
from kubedevices.values.device import DeviceSpec
from kubedevices.wire.unix_grpc import GrpcServer
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy

POD = Pod("train", containers=(Container("main", {RESOURCE: 1}),))
GIVEN = ContainerAllocateResponse(devices=[DeviceSpec("/dev/w0")], cdi_devices=["a.org/b=c"])


def checkpoint(directory: Path) -> Path:
    path = directory / "kubelet_internal_checkpoint"
    holding = Holding("uid-1", "main", RESOURCE, HeldDevices({0: ["w0"]}, GIVEN))
    made = checkpoint_of([holding], {RESOURCE: ["w0", "w1"]}, CONTAINER_RESPONSE.to_wire)
    path.write_bytes(format_checkpoint(made))
    return path


async def ask_in(directory: Path, **places: Path) -> ResourceFacts:
    return await ask.ask(
        directory,
        places.get("state_dir", directory / "nowhere"),
        places.get("pod_resources", directory / "nobody.sock"),
        places.get("checkpoint", directory / "nothing"),
    )


async def test_a_node_answers_with_devices_sockets_and_refusals(short_dir: Path) -> None:
    """Devices with their holders, the state of plugins, refusals and the policy."""
    devices = [*healthy("w0", numa=(1,)), *unhealthy("w1")]
    plugin = FakePlugin(short_dir, devices=devices)
    async with DeviceManager(short_dir) as manager, plugin:
        service = ControlService(manager, manager.state_dir)
        await service.start()
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=1)
        await manager.allocate(POD)
        with pytest.raises(RpcError):
            await plugin.register(version="v2")
        answers = await ask_in(short_dir, state_dir=manager.state_dir)
        await service.stop()
    state = answers.resources[RESOURCE]
    assert (answers.source, answers.is_kubelet) == (f"node of {short_dir}", False)
    assert (answers.topology_policy, answers.unasked) == ("none", ())
    assert (state.capacity, state.allocatable, state.plugin) == (2, 1, "connected")
    assert state.socket == "widget.sock"
    assert state.devices == (
        DeviceState("w0", "Healthy", (1,), ("default/train (main)",)),
        DeviceState("w1", "Unhealthy"),
    )
    (refusal,) = answers.refusals
    assert refusal == RefusedPlugin(RESOURCE, "widget.sock", refusal.reason)


async def test_a_kubelet_is_asked_if_no_node_answers(short_dir: Path) -> None:
    """It tells less: healthy devices and holders."""
    plugin = FakePlugin(short_dir, devices=[*healthy("w0", "w1"), *unhealthy("w2")])
    async with DeviceManager(short_dir) as manager, plugin:
        server = PodResourcesServer(manager, short_dir / "pr.sock")
        await server.start()
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=2)
        await manager.allocate(POD)
        answers = await ask_in(short_dir, pod_resources=short_dir / "pr.sock")
        await server.stop()
    state = answers.resources[RESOURCE]
    assert answers.is_kubelet
    assert (state.capacity, state.allocatable, state.plugin) == (None, 2, None)
    assert [each.held_by for each in state.devices if each.held_by] == [("default/train (main)",)]
    assert "no kubedevices node is running" in answers.unasked[0]


async def test_a_kubelet_that_does_not_answer_is_reported_as_silent(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told apart from none: its checkpoint is read, and it counts as a kubelet."""
    monkeypatch.setattr(ask, "DEADLINE", 0.1)
    with sockets.socket(sockets.AF_UNIX) as frozen:
        frozen.bind(str(short_dir / "s"))
        frozen.listen()
        answers = await ask_in(
            short_dir, pod_resources=short_dir / "s", checkpoint=checkpoint(short_dir)
        )
    assert (answers.is_silent, answers.waited, answers.is_kubelet) == (True, 0.1, True)
    assert (answers.source, answers.known) == ("", (RESOURCE,))
    assert "did not answer within 0.1 s" in answers.unasked[-1]


async def test_without_an_answer_the_asked_sockets_are_named(short_dir: Path) -> None:
    """And no source is named."""
    answers = await ask_in(short_dir)
    assert (answers.source, answers.known) == ("", ())
    node, kubelet = answers.unasked
    assert node.startswith("no kubedevices node is running")
    assert kubelet.startswith("no kubelet answers at")


def test_a_holder_without_a_name_is_named_by_its_uid() -> None:
    """As it is when a node knows a pod from a checkpoint alone."""
    holder = {"namespace": "", "pod": "", "uid": "uid-1", "container": "main"}
    document = {"id": "w0", "health": "Healthy", "numa_nodes": [], "held_by": [holder]}
    assert ask._device(document).held_by == ("uid-1 (main)",)


def test_a_checkpoint_says_what_containers_were_given(short_dir: Path) -> None:
    """Which devices once were healthy, and the plugins' answers."""
    answers = ask.read_checkpoint(checkpoint(short_dir), ResourceFacts())
    assert (answers.registered, answers.known) == ({RESOURCE: ("w0", "w1")}, (RESOURCE,))
    (allocation,) = answers.allocations
    assert (allocation.pod_uid, allocation.device_ids) == ("uid-1", ("w0",))
    assert allocation.response == GIVEN


def test_a_resource_with_null_devices_has_no_devices(short_dir: Path) -> None:
    """That is how a kubelet writes an empty list."""
    path = short_dir / "checkpoint"
    path.write_bytes(format_checkpoint(Checkpoint(None, {RESOURCE: None})))
    assert ask.read_checkpoint(path, ResourceFacts()).registered == {RESOURCE: ()}
    path.write_bytes(format_checkpoint(Checkpoint()))
    assert ask.read_checkpoint(path, ResourceFacts()).registered == {}


def test_a_bad_checkpoint_is_reported(short_dir: Path) -> None:
    """Corrupt, unreadable; one that is missing is nothing to tell."""
    path = checkpoint(short_dir)
    path.write_bytes(path.read_bytes().replace(b"w1", b"w2"))
    bad = ask.read_checkpoint(path, ResourceFacts())
    assert (bad.checkpoint_problem, bad.allocations) == ("checkpoint is corrupted", ())
    assert "cannot read" in ask.read_checkpoint(short_dir, ResourceFacts()).checkpoint_problem
    assert ask.read_checkpoint(short_dir / "none", ResourceFacts()) == ResourceFacts()


# ---------------------------------------------------------------- plugins


class Found:
    """Serves the registration service of a plugin that waits to be found."""

    async def get_info(self) -> PluginInfo:
        return OFFER

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        raise AssertionError("only whoever registers it tells a plugin so")


OFFER = PluginInfo("DevicePlugin", RESOURCE, "", ("v1beta1",))


async def test_the_plugin_registry_is_asked(short_dir: Path) -> None:
    """Who offers what; a socket with nobody behind it, or with somebody else; files are nothing."""
    (short_dir / "r" / "below").mkdir(parents=True)
    (short_dir / "r" / "file").touch()
    server = GrpcServer(plugin_registration_methods(Found()), name="found")
    await server.start(short_dir / "r" / "below" / "w.sock")
    with sockets.socket(sockets.AF_UNIX) as left:
        left.bind(str(short_dir / "r" / "left.sock"))
    async with FakePlugin(short_dir / "r", socket_name="other.sock"):
        good, stale, other = await ask.ask_registry(short_dir / "r") or ()
    await server.stop()
    assert (good.info, good.problem) == (OFFER, "")
    assert (stale.info, stale.problem) == (None, "no plugin answers: connection refused")
    assert other.info is None
    assert "does not answer GetInfo" in other.problem
    assert await ask.ask_registry(short_dir / "none") == ()
    assert await ask.ask_registry(short_dir / "r" / "file") is None


async def test_a_driver_that_is_replaced_meanwhile_is_asked_at_its_new_socket(
    short_dir: Path,
) -> None:
    """The old socket is no mistake."""
    registry, newer = short_dir / "r", short_dir / "newer.sock"
    registry.mkdir()
    old = registry / "old.sock"

    def replace_it(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if old.exists():
            old.unlink()
            newer.rename(registry / "new.sock")
        writer.close()

    server = GrpcServer(plugin_registration_methods(Found()), name="found")
    await server.start(newer)
    async with await asyncio.start_unix_server(replace_it, old):
        (found,) = await ask.ask_registry(registry) or ()
    await server.stop()
    assert (found.path, found.info) == (registry / "new.sock", OFFER)


async def test_a_plugin_that_is_asked_lists_its_devices(short_dir: Path) -> None:
    """One stream is opened and left again."""
    async with FakePlugin(short_dir, devices=unhealthy("w0")) as plugin:
        answers = await ask.ask_plugins([plugin.socket])
        answer = answers[plugin.socket]
        assert answer.devices is not None
        assert [(each.id, each.health) for each in answer.devices] == [("w0", "Unhealthy")]
        assert (answer.problem, plugin.streams_opened, plugin.allocations) == ("", 1, [])


@pytest.mark.parametrize("fault", ["silent", "ends", "options fail", "gone", "no gRPC"])
async def test_a_plugin_that_does_not_answer(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Each way is told within the deadline."""
    monkeypatch.setattr(ask, "DEADLINE", 0.3)
    with sockets.socket(sockets.AF_UNIX) as raw:
        async with FakePlugin(short_dir) as plugin:
            socket = plugin.socket
            if fault == "silent":
                await plugin.send_bytes(None)
            if fault == "ends":
                plugin.errors["list"] = RpcError(StatusCode.INTERNAL, "no driver")
            if fault == "options fail":
                plugin.errors["options"] = RpcError(StatusCode.UNIMPLEMENTED, "no driver")
            if fault == "gone":
                socket = short_dir / "gone.sock"
            if fault == "no gRPC":
                socket = short_dir / "raw.sock"
                raw.bind(str(socket))
                raw.listen()  # and never answers
            answer = await ask.ask_plugin(socket)
    assert answer.devices is None
    assert answer.problem
    if fault in ("ends", "options fail"):
        assert "no driver" in answer.problem
    if fault == "silent":
        assert "no list of devices within" in answer.problem
