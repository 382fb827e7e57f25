"""The control service and its client: questions to a running node, over the service's own
socket.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubedevices.errors import (
    AdmissionRejected,
    CannotAsk,
    NodeError,
    RpcError,
    StatusCode,
    UsageError,
)
from kubedevices.kubelet_api.clients import JsonClient
from kubedevices.kubelet_api.services import JsonObject, json_methods
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.events import EventKind, NodeEvent
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.services.control import ControlService
from kubedevices.node.services.control_client import SERVICE, ControlClient
from kubedevices.values.allocation import (
    AllocateResponse,
    ContainerAllocateResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device import DeviceSpec, Mount
from kubedevices.values.socket_paths import CONTROL_SOCKET_NAME, default_state_dir
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.host_needs import needs
from tests.waiting import until

STRANGER = 65534
"""The user ID of nobody."""

NONE: dict[str, Any] = {"conflicts": []}
EMPTY: dict[str, Any] = {
    "env": {},
    "devices": [],
    "mounts": [],
    "annotations": {},
    "cdi_devices": [],
}


class Node(NamedTuple):
    """A node with one plugin, and a client that is connected to the node."""

    manager: DeviceManager
    client: ControlClient
    plugin: FakePlugin


@asynccontextmanager
async def node_with(plugin: FakePlugin, *, allocatable: int = 3) -> AsyncIterator[Node]:
    directory = plugin.socket_dir
    async with DeviceManager(directory) as manager, plugin:
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=allocatable)
        service = ControlService(manager, manager.state_dir)
        await service.start()
        try:
            async with await ControlClient.connect(directory, manager.state_dir) as client:
                yield Node(manager, client, plugin)
        finally:
            await service.stop()


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[Node]:
    """Give a node with three devices a, b and c."""
    plugin = FakePlugin(short_dir / "p", devices=healthy("a", "b", "c", numa=(0, 1)))
    async with node_with(plugin) as running:
        yield running


def pod(name: str, count: int = 1, namespace: str = "default", uid: str = "") -> Pod:
    return Pod(name, namespace, uid, containers=(Container("c", {RESOURCE: count}),))


# ---------------------------------------------------------------- devices


async def test_devices_are_described_with_their_holders(node: Node) -> None:
    """The document of `devices -o json`, key by key."""
    await node.client.allocate(pod("p"))
    await node.plugin.send([*healthy("b"), *unhealthy("c")])
    await node.manager.wait_for(RESOURCE, capacity=2)
    holder = {"namespace": "default", "pod": "p", "uid": "default/p", "container": "c"}
    assert await node.client.devices() == {
        "resources": [
            {
                "resource": RESOURCE,
                "capacity": 2,
                "allocatable": 1,
                "held": 1,
                "plugin": "connected",
                "devices": [
                    {"id": "a", "health": "Unknown", "numa_nodes": [], "held_by": [holder]},
                    {"id": "b", "health": "Healthy", "numa_nodes": [], "held_by": []},
                    {"id": "c", "health": "Unhealthy", "numa_nodes": [], "held_by": []},
                ],
            }
        ]
    }
    assert await node.client.devices("example.com/other") == {"resources": []}


async def test_devices_have_the_state_of_their_plugin(short_dir: Path) -> None:
    """`starting` until the first list, `connected`, `stopped`, and `missing` if only held devices
    are known.
    """
    plugin = FakePlugin(short_dir / "p", devices=healthy("a"))
    async with node_with(plugin, allocatable=1) as node:

        async def state() -> str:
            (resource,) = (await node.client.devices())["resources"]
            text: str = resource["plugin"]
            return text

        assert await state() == "connected"
        await node.client.allocate(pod("p"))
        await plugin.stop()
        await node.manager.wait_for(RESOURCE, allocatable=0)
        assert await state() == "stopped"
        node.manager.inventory.grace_period = 0
        node.manager.get_capacity()
        assert await state() == "missing"
        async with FakePlugin(short_dir / "p", socket_name="again.sock") as again:
            await again.send_bytes(None)
            await again.register()
            assert await state() == "starting"


async def test_capacity_has_two_numbers_for_each_resource(node: Node) -> None:
    """All devices and the healthy devices."""
    assert await node.client.capacity() == {
        "capacity": {RESOURCE: 3},
        "allocatable": {RESOURCE: 3},
    }


async def test_registrations_have_sockets_refusals_and_the_topology_policy(node: Node) -> None:
    """The socket of each resource, each refusal with its reason, and the policy."""
    with pytest.raises(RpcError):
        await node.plugin.register(endpoint="nowhere.sock", version="v1alpha")
    assert await node.client.registrations() == {
        "topology_policy": "none",
        "sockets": {RESOURCE: str(node.plugin.socket)},
        "refused": [
            {
                "resource": RESOURCE,
                "socket": "nowhere.sock",
                "reason": 'requested API version "v1alpha" is not supported by kubelet. '
                'Supported version is ["v1beta1"]',
            }
        ],
    }


async def test_watching_sends_the_present_state_and_later_changes(node: Node) -> None:
    """Several changes may be one document. The last state is always sent."""

    def allocatable(document: dict[str, Any]) -> int:
        number: int = document["resources"][0]["allocatable"]
        return number

    async with aclosing(node.client.watch_devices()) as documents:
        assert allocatable(await anext(documents)) == 3
        for devices in (healthy("a"), healthy("a", "b"), unhealthy("a")):
            await node.plugin.send(devices)
        seen = 3
        while seen != 0:
            seen = allocatable(await asyncio.wait_for(anext(documents), 5))


async def test_watching_joins_many_quick_changes(node: Node) -> None:
    """A person cannot read faster, and a document with many devices costs time."""
    async with aclosing(node.client.watch_devices()) as documents:
        await anext(documents)
        for count in range(30):
            await node.plugin.send(healthy(*(f"d{n}" for n in range(count))))
            await node.manager.wait_for(RESOURCE, capacity=count)
        capacity = -1
        while capacity != 29:
            document = await asyncio.wait_for(anext(documents), 5)
            capacity = document["resources"][0]["capacity"]
        with pytest.raises(TimeoutError):  # no further document
            await asyncio.wait_for(anext(documents), 0.3)


async def test_a_watcher_that_does_not_read_needs_no_memory(node: Node) -> None:
    """A slow client gets only the state at its next read, so the node stores no events for it."""
    async with aclosing(node.client.watch_devices()) as documents:
        await anext(documents)
        events = node.manager._events
        for _ in range(100):
            events.publish(NodeEvent(EventKind.LIST_CHANGED, RESOURCE))
        assert max(len(stream.backlog) for stream in events._streams) == 1


async def test_watching_ends_when_the_node_stops(node: Node) -> None:
    """The error says that the node stopped."""
    documents = node.client.watch_devices()
    await anext(documents)

    async def read_on() -> None:
        async for _ in documents:
            pass

    await node.manager.stop()
    with pytest.raises(CannotAsk, match="the node stopped"):
        await asyncio.wait_for(read_on(), 5)


# ---------------------------------------------------------------- pods


async def test_allocate_returns_the_options_of_every_container(node: Node) -> None:
    """The document of `allocate -o json`, key by key. `allocate` calls PreStartContainer too."""
    node.plugin.allocate_answer = lambda _: AllocateResponse(
        [
            ContainerAllocateResponse(
                env={"A": "1"},
                mounts=[Mount("/h", "/c", read_only=True)],
                devices=[DeviceSpec("/dev/h", "/dev/c", "r")],
                annotations={"k": "v"},
                cdi_devices=["v/c=x"],
            )
        ]
    )
    asked = Pod(
        "p",
        init_containers=(
            Container("i", {RESOURCE: 1}),
            Container("s", {}, is_sidecar=True),
        ),
        containers=(Container("c", {RESOURCE: 1}),),
    )
    options = {
        "env": {"A": "1"},
        "devices": [{"host_path": "/dev/h", "container_path": "/dev/c", "permissions": "r"}],
        "mounts": [{"host_path": "/h", "container_path": "/c", "read_only": True}],
        "annotations": {"k": "v"},
        "cdi_devices": ["v/c=x"],
    }
    document = {"namespace": "default", "name": "p", "uid": "default/p"}
    containers = [
        {"name": "i", "kind": "init", "devices": {RESOURCE: ["a"]}, "options": options, **NONE},
        {"name": "s", "kind": "sidecar", "devices": {}, "options": EMPTY, **NONE},
        {"name": "c", "kind": "app", "devices": {RESOURCE: ["a"]}, "options": options, **NONE},
    ]
    assert await node.client.allocate(asked) == document | {"containers": containers}
    for container in containers:
        del container["options"], container["conflicts"]
    listed = document | {"containers": containers, "left_behind": ""}
    assert await node.client.pods() == {"pods": [listed]}


async def test_a_refused_pod_is_an_error_with_the_kubelets_words(node: Node) -> None:
    """The client gets reason and message."""
    with pytest.raises(AdmissionRejected, match="Requested: 4, Available: 3") as error:
        await node.client.allocate(pod("p", 4))
    assert error.value.reason == "UnexpectedAdmissionError"


async def test_an_unknown_resource_is_refused(node: Node) -> None:
    """A scheduler would not have placed such a pod. A request of zero is allowed."""
    other = Pod("p", containers=(Container("c", {"example.com/typo": 2}),))
    with pytest.raises(AdmissionRejected, match=r"example\.com/typo, requested: 2") as error:
        await node.client.allocate(other)
    assert error.value.reason == "OutOfexample.com/typo"
    meant = f"{RESOURCE[:-2]}{RESOURCE[:-3:-1]}"  # the last two letters swapped
    typo = Pod("p", containers=(Container("c", {meant: 1}),))
    with pytest.raises(AdmissionRejected, match=rf"did you mean '{RESOURCE}'\?"):
        await node.client.allocate(typo)
    none = Pod("p", containers=(Container("c", {"example.com/typo": 0}),))
    assert (await node.client.allocate(none))["containers"][0]["devices"] == {}


async def test_a_failed_pre_start_releases_a_new_pod(short_dir: Path) -> None:
    """A pod that was admitted before keeps its devices."""
    plugin = FakePlugin(short_dir / "p", devices=healthy("a", "b"), pre_start=True)
    async with node_with(plugin, allocatable=2) as node:
        await node.client.allocate(pod("stays"))
        assert plugin.pre_starts == [("a",)]
        plugin.errors["pre_start"] = RpcError(StatusCode.INTERNAL, "reset failed")
        for name in ("stays", "new"):
            with pytest.raises(NodeError, match=r"PreStartContainer rpc failed .* reset failed"):
                await node.client.allocate(pod(name))
        assert [each.name for each in node.manager.pods()] == ["stays"]


class FirstStartFails(FakePlugin):
    """Answers PreStartContainer after its gate is open; the first call fails."""

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        self.pre_starts.append(request.device_ids)
        if len(self.pre_starts) == 1:
            await self.hang("first start").wait()
            raise RpcError(StatusCode.INTERNAL, "reset failed")
        return PreStartContainerResponse()


async def test_a_repeated_allocate_keeps_the_devices_of_its_pod(short_dir: Path) -> None:
    """If the second call succeeds, the failure of the first call does not release the pod."""
    plugin = FirstStartFails(short_dir / "p", devices=healthy("a"), pre_start=True)
    async with node_with(plugin, allocatable=1) as node:
        first = asyncio.ensure_future(node.client.allocate(pod("p")))
        await until(lambda: plugin.pre_starts)
        second = asyncio.ensure_future(node.client.allocate(pod("p")))
        await asyncio.wait({second}, timeout=0.2)
        plugin.hang("first start").set()
        with pytest.raises(NodeError, match="reset failed"):
            await first
        assert (await second)["containers"][0]["devices"] == {RESOURCE: ["a"]}
        assert node.manager.get_allocation("default/p") == {"c": {RESOURCE: ("a",)}}


async def test_a_cancelled_client_frees_the_devices_of_its_pod(node: Node) -> None:
    """As Ctrl-C during `allocate`."""
    gate = node.plugin.hang("allocate")
    asking = asyncio.ensure_future(node.client.allocate(pod("p")))
    await until(lambda: node.plugin.allocations)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await until(lambda: not node.manager.inventory.reserved(RESOURCE))
    gate.set()
    assert not node.manager.pods()


@pytest.mark.parametrize("wanted", ["p", "default/p", "the-uid"])
async def test_a_pod_is_released_by_its_name_or_uid(node: Node, wanted: str) -> None:
    """The answer has the released devices."""
    await node.client.allocate(pod("p", 2, uid="the-uid"))
    assert await node.client.release(wanted) == {
        "namespace": "default",
        "name": "p",
        "uid": "the-uid",
        "devices": {RESOURCE: ["a", "b"]},
    }
    with pytest.raises(NodeError, match=f"no pod '{wanted}' holds devices on this node"):
        await node.client.release(wanted)


async def test_a_pod_whose_plugin_does_not_answer_can_be_released_by_name(node: Node) -> None:
    """The pod holds no device yet. The caller of its admission gets an error at once."""
    gate = node.plugin.hang("allocate")
    asking = asyncio.ensure_future(node.client.allocate(pod("p", uid="the-uid")))
    await until(lambda: node.plugin.allocations)
    assert (await node.client.release("p"))["devices"] == {}
    with pytest.raises(AdmissionRejected, match="released while the pod was being admitted"):
        await asyncio.wait_for(asking, 5)
    gate.set()
    assert not node.manager.inventory.reserved(RESOURCE)
    with pytest.raises(NodeError, match="no pod 'p' holds devices on this node"):
        await node.client.release("p")


async def test_a_pod_released_during_pre_start_is_not_admitted(short_dir: Path) -> None:
    """Otherwise the pod would start without its devices."""
    plugin = FakePlugin(short_dir / "p", devices=healthy("a"), pre_start=True)
    async with node_with(plugin, allocatable=1) as node:
        gate = plugin.hang("pre_start")
        asking = asyncio.ensure_future(node.client.allocate(pod("p")))
        await until(lambda: plugin.pre_starts)
        await node.manager.release("default/p")
        gate.set()
        with pytest.raises(AdmissionRejected, match='released while its container "c" was being'):
            await asking


async def test_an_ambiguous_name_is_refused(node: Node) -> None:
    """The error lists the possible pods."""
    await node.client.allocate(pod("p", namespace="one"))
    await node.client.allocate(pod("p", namespace="two"))
    with pytest.raises(UsageError, match="several pods have the name 'p': one/p, two/p"):
        await node.client.release("p")
    await node.client.allocate(pod("q", namespace="n", uid="u1", count=0))
    await node.client.allocate(pod("q", namespace="n", uid="u2", count=0))
    with pytest.raises(UsageError, match="several pods have the name 'n/q': u1, u2"):
        await node.client.release("n/q")


async def test_a_pod_without_a_name_is_released_by_its_uid_only(node: Node) -> None:
    """Such a pod is from a kubelet's checkpoint.

    An empty name, for example of an unset variable, matches no pod.
    """
    nameless = Pod("", "", "uid-9", containers=(Container("c", {RESOURCE: 1}),))
    await node.manager.allocate(nameless)
    for wanted in ("", "/"):
        with pytest.raises(NodeError, match="no pod"):
            await node.client.release(wanted)
    assert (await node.client.release("uid-9"))["uid"] == "uid-9"


# ---------------------------------------------------------------- errors


async def ask_raw(node: Node, method: str, request: dict[str, Any]) -> RpcError:
    socket = node.manager.state_dir / "control.sock"
    async with await GrpcChannel.dial(socket) as channel:
        with pytest.raises(RpcError) as error:
            await JsonClient(channel, SERVICE).call(method, request, timeout=5)
    return error.value


@pytest.mark.parametrize(
    ("method", "request_", "text"),
    [
        ("Allocate", {}, "a pod manifest must be a mapping"),
        ("Allocate", {"pod": {"spec": 3}}, "metadata.name"),
        ("Release", {"pod": 3}, "pod must be text, not 3"),
        ("Devices", {"resource": ["x"]}, "resource must be text"),
        ("WatchDevices", {"resource": 3}, "resource must be text"),
    ],
)
async def test_a_malformed_request_is_an_invalid_argument(
    node: Node, method: str, request_: dict[str, Any], text: str
) -> None:
    """The node still answers the next request."""
    error = await ask_raw(node, method, request_)
    assert error.code is StatusCode.INVALID_ARGUMENT
    assert text in error.message
    await node.client.devices()


async def test_without_a_node_the_message_says_how_to_start_one(short_dir: Path) -> None:
    """Exit code 3: the question was not answered."""
    with pytest.raises(CannotAsk) as error:
        await ControlClient.connect(short_dir, short_dir / "my state")
    options = f"--socket-dir {short_dir} --state-dir '{short_dir}/my state'"
    assert str(error.value) == (
        f"no kubedevices node is running for {options}: start one with `kubedevices node {options}`"
    )
    assert error.value.exit_code == 3


async def test_a_node_with_a_state_directory_of_its_own_is_thought_of(short_dir: Path) -> None:
    """A program serves in the directory, and by the socket nobody can say whether it is a node."""
    (short_dir / "kubelet.sock").touch()
    with pytest.raises(CannotAsk, match="if one runs with a --state-dir of its own, name it here"):
        await ControlClient.connect(short_dir, default_state_dir(short_dir))


@pytest.mark.parametrize("what", ["access", "stat"])
async def test_without_permission_the_message_says_so(
    node: Node, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The message does not say that no node is running."""
    socket = node.manager.state_dir / "control.sock"
    socket.unlink()
    socket.touch()

    def refuse(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    if what == "access":
        monkeypatch.setattr(os, "access", lambda *_: False)
    else:
        monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(CannotAsk, match=r"no permission to use .*control\.sock: ask as its owner"):
        await ControlClient.connect(node.plugin.socket_dir, node.manager.state_dir)


async def test_a_lost_connection_during_a_request_is_cannot_ask(node: Node) -> None:
    """Exit code 3, too."""
    node.plugin.hang("allocate")
    asking = asyncio.ensure_future(node.client.allocate(pod("p")))
    await until(lambda: node.plugin.allocations)
    await node.client._channel.close()
    with pytest.raises(CannotAsk):
        await asking


async def test_the_control_socket_is_for_its_owner_only(node: Node) -> None:
    """Mode 0600 in a directory with mode 0700."""
    mode = (node.manager.state_dir / "control.sock").lstat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


@needs("root")
async def test_a_socket_of_another_user_is_not_asked(short_dir: Path) -> None:
    """He could give root commands in the answer, as environment variables of `with`."""
    asked: list[object] = []

    async def answer(request: JsonObject) -> JsonObject:
        asked.append(request)
        return {}

    state = short_dir / "state"
    state.mkdir()
    os.chown(state, STRANGER, STRANGER)
    short_dir.chmod(0o711)
    server = GrpcServer(json_methods(SERVICE, {"Devices": answer}, {}), name="another user's")
    os.seteuid(STRANGER)
    try:
        await server.start(state / CONTROL_SOCKET_NAME)
    finally:
        os.seteuid(0)
    with pytest.raises(CannotAsk, match=f"user {STRANGER} serves it"):
        await ControlClient.connect(short_dir, state)
    assert not asked
    await server.stop()
