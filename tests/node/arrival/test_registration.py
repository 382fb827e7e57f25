"""The Registration service: the calls that it accepts, and the text of every refusal."""

import asyncio
import contextlib
import contextvars
import re
import socket
from pathlib import Path

import pytest

from kubedevices.errors import (
    BadEndpoint,
    BadSocketPath,
    DialPluginFailed,
    ListenFailed,
    RpcError,
    SocketInUse,
    SocketPathTooLong,
    StatusCode,
)
from kubedevices.kubelet_api.clients import RegistrationClient
from kubedevices.node.arrival import registration
from kubedevices.node.arrival.endpoint import PluginTimeouts
from kubedevices.node.arrival.registration import RegistrationServer
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.settings import NodeSettings
from kubedevices.pages.prometheus import PrometheusMetrics
from kubedevices.values.allocation import PluginOptions, RegisterRequest
from kubedevices.wire.peers import NOBODY, Peer
from kubedevices.wire.unix_grpc import CALLER, GrpcChannel
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.full_disk import refuse_sockets
from tests.golden_data import load
from tests.node_manager import listed
from tests.waiting import until

MESSAGES = load("messages")


async def accept(resource: str, path: Path) -> None:
    """Replace connecting: every plugin answers."""


async def register(directory: Path, version: str, endpoint: str, resource: str) -> None:
    async with await GrpcChannel.dial(directory / "kubelet.sock") as channel:
        await RegistrationClient(channel).register(
            RegisterRequest(version, endpoint, resource), timeout=20
        )


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "case", ["register_bad_version", "register_bad_name", "register_no_socket"]
)
async def test_a_refusal_has_the_kubelets_words(plugins: Path, case: str) -> None:
    """Version, name and socket are checked. Text and code are those of the kubelet."""
    golden = MESSAGES[case]
    given = golden["in"]
    async with DeviceManager(
        plugins, settings=NodeSettings(timeouts=PluginTimeouts(dial=0.3))
    ) as manager:
        began = asyncio.get_running_loop().time()
        with pytest.raises(RpcError) as error:
            await register(plugins, given["version"], given["endpoint"], given["resource_name"])
        waited = asyncio.get_running_loop().time() - began
        assert (error.value.code.name, error.value.message) == (golden["code"], golden["text"])
        assert manager.get_capacity().capacity == {}
    if "after_seconds" in golden:  # the kubelet dialled until the deadline
        assert waited >= 0.3


def test_the_default_deadlines_are_those_of_the_kubelet() -> None:
    """Ten seconds for a dial, and thirty for PreStartContainer."""
    assert MESSAGES["register_no_socket"]["after_seconds"] == PluginTimeouts().dial
    assert PluginTimeouts().pre_start == 30


async def test_a_plugin_may_register_shortly_before_it_listens(
    manager: DeviceManager, plugins: Path
) -> None:
    """The node repeats the dial until the deadline."""
    plugin = FakePlugin(plugins, devices=healthy("a"))
    registering = asyncio.ensure_future(plugin.register())
    await until(lambda: len(asyncio.all_tasks()) > 2)
    async with plugin:
        await asyncio.wait_for(registering, 5)
        await manager.wait_for(RESOURCE, allocatable=1)


async def test_a_plugin_whose_options_call_fails_is_refused(
    manager: DeviceManager, plugins: Path
) -> None:
    """The error has both texts. ListAndWatch is never called."""
    async with FakePlugin(plugins) as plugin:
        plugin.options = RpcError(StatusCode.UNIMPLEMENTED, "no options here")
        with pytest.raises(RpcError) as error:
            await plugin.register()
        assert error.value.code is StatusCode.UNKNOWN
        assert error.value.message == (
            "failed to get device plugin options: "
            "rpc error: code = Unimplemented desc = no options here"
        )
        assert plugin.streams_opened == 0
        assert manager.get_capacity().capacity == {}
        assert not manager.inventory.is_known(RESOURCE)


async def test_a_plugin_whose_options_call_hangs_is_refused_after_a_deadline(plugins: Path) -> None:
    """A kubelet waits without a limit."""
    timeouts = PluginTimeouts(options=0.1)
    async with (
        DeviceManager(plugins, settings=NodeSettings(timeouts=timeouts)),
        FakePlugin(plugins) as plugin,
    ):
        plugin.hang("options")
        with pytest.raises(RpcError, match=r"failed to get device plugin options: .*Deadline"):
            await plugin.register()


async def test_a_socket_that_sends_nothing_is_refused_after_the_deadline(plugins: Path) -> None:
    """A connection without any HTTP/2 frame counts as not dialled."""
    async with DeviceManager(plugins, settings=NodeSettings(timeouts=PluginTimeouts(dial=0.2))):
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(plugins / "mute.sock"))
            mute.listen()
            with pytest.raises(RpcError, match="failed to dial device plugin: context deadline"):
                await register(plugins, "v1beta1", "mute.sock", RESOURCE)


@pytest.mark.parametrize("part", ["version", "endpoint", "resource"])
async def test_only_the_beginning_of_a_long_text_is_stored(plugins: Path, part: str) -> None:
    """A refusal is stored, logged and counted; a defective plugin must not fill the memory."""
    given = {"version": "v1beta1", "endpoint": "x.sock", "resource": RESOURCE}
    given[part] = "x" * 60_000
    metrics = PrometheusMetrics()
    async with DeviceManager(plugins, metrics=metrics) as manager:
        with pytest.raises(RpcError, match="xxx"):
            await register(plugins, *given.values())
        assert sum(map(len, manager.refusals[0])) < 10_000
        assert len(metrics.text()) < 10_000


async def test_a_refusal_is_an_event(manager: DeviceManager, plugins: Path) -> None:
    """Listeners of the node see which plugin was refused, and why."""
    with manager.subscribe() as events:
        with pytest.raises(RpcError):
            await register(plugins, "v1beta1", "x.sock", "bad")
        assert (await anext(events)).as_dict() == {
            "event": "refused",
            "resource": "bad",
            "socket": "x.sock",
            "reason": MESSAGES["register_bad_name"]["text"],
        }


# ---------------------------------------------------------------- callers that give up


async def register_in_a_hurry(plugin: FakePlugin) -> None:
    """Call Register and give up when the node asks for the options."""
    asked = plugin.options_asked
    calling = asyncio.ensure_future(plugin.register())
    await until(lambda: plugin.options_asked > asked)
    calling.cancel()
    await asyncio.wait({calling})


async def test_an_abandoned_register_call_is_finished(
    manager: DeviceManager, plugins: Path
) -> None:
    """A kubelet does the same. Many plugins wait for less time than a busy node needs."""
    async with FakePlugin(plugins, devices=healthy("a")) as plugin:
        answer = plugin.hang("options")
        await register_in_a_hurry(plugin)
        answer.set()
        await manager.wait_for(RESOURCE, allocatable=1)


async def test_a_plugin_that_ends_while_it_registers_is_refused(plugins: Path) -> None:
    """The event has the reason, without a wait for the deadline (KubeVirt: options panic)."""
    timeouts = PluginTimeouts(dial=300, options=300)
    async with (
        DeviceManager(plugins, settings=NodeSettings(timeouts=timeouts)) as manager,
        FakePlugin(plugins) as plugin,
    ):
        with manager.subscribe() as events:
            plugin.hang("options")
            plugin.options = RpcError(StatusCode.UNAVAILABLE, "gone")
            await register_in_a_hurry(plugin)
            await plugin.stop()
            refused = (await asyncio.wait_for(anext(events), 30)).as_dict()
        assert (refused["event"], refused["resource"]) == ("refused", RESOURCE)
        assert refused["reason"].startswith("failed to get device plugin options: ")


async def test_a_register_call_with_a_missing_socket_fails_at_once(plugins: Path) -> None:
    """A plugin that has ended leaves no socket: the node does not dial until the deadline."""
    timeouts = PluginTimeouts(dial=300)
    async with (
        DeviceManager(plugins, settings=NodeSettings(timeouts=timeouts)),
        FakePlugin(plugins) as plugin,
    ):
        with pytest.raises(RpcError, match=r"deadline exceeded: there is no socket .*/gone\.sock"):
            await asyncio.wait_for(plugin.register(endpoint="gone.sock"), 30)


async def test_a_repeated_register_replaces_the_abandoned_call(
    manager: DeviceManager, plugins: Path
) -> None:
    """Repeated calls do not pile up: the abandoned registration ends when the next one begins."""
    async with FakePlugin(plugins, devices=healthy("a")) as plugin:
        answer = plugin.hang("options")
        for _ in range(3):
            await register_in_a_hurry(plugin)
        asked = plugin.options_asked
        again = asyncio.ensure_future(plugin.register())
        await until(lambda: plugin.options_asked > asked)
        answer.set()
        await again
        await manager.wait_for(RESOURCE, allocatable=1)
        assert plugin.streams_opened == 1


async def test_a_stop_cancels_abandoned_register_calls(
    manager: DeviceManager, plugins: Path
) -> None:
    """No plugin is registered at a stopped node."""
    async with FakePlugin(plugins, devices=healthy("a")) as plugin:
        answer = plugin.hang("options")
        await register_in_a_hurry(plugin)
        await manager.stop()
        answer.set()
        assert not manager.inventory.is_known(RESOURCE)
        assert not [task for task in asyncio.all_tasks() if "registration" in task.get_name()]


# ---------------------------------------------------------------- checks of the request


async def test_the_options_of_the_request_are_ignored(
    manager: DeviceManager, plugins: Path
) -> None:
    """The answer of GetDevicePluginOptions counts, called once for each registration."""
    async with FakePlugin(plugins) as plugin:
        async with await GrpcChannel.dial(plugins / "kubelet.sock") as channel:
            await RegistrationClient(channel).register(
                RegisterRequest("v1beta1", "widget.sock", RESOURCE, PluginOptions(True, True)),
                timeout=5,
            )
        await manager.wait_for(RESOURCE)
        instance = manager.inventory.endpoint(RESOURCE)
        assert instance is not None
        assert instance.options == PluginOptions(False, False)
        assert plugin.options_asked == 1


STRICT = ["", ".", "..", "../outside.sock", "/abs.sock", "a/b.sock", "x" * 256, "nul\0.sock"]


@pytest.mark.parametrize("endpoint", STRICT, ids=repr)
async def test_an_endpoint_must_be_a_file_name(short_dir: Path, endpoint: str) -> None:
    """A path that could leave the plugin directory is refused."""
    server = RegistrationServer(short_dir, accept)
    with pytest.raises(BadEndpoint, match="it must be a file name in the plugin directory"):
        await server.register(RegisterRequest("v1beta1", endpoint, RESOURCE))


async def test_an_endpoint_must_not_be_a_link(short_dir: Path) -> None:
    """A link could lead to any directory."""
    (short_dir / "link.sock").symlink_to("/elsewhere.sock")
    server = RegistrationServer(short_dir, accept)
    with pytest.raises(BadEndpoint, match="it must be a socket, not a link to one"):
        await server.register(RegisterRequest("v1beta1", "link.sock", RESOURCE))


# ---------------------------------------------------------------- the socket


def test_the_directory_must_be_absolute() -> None:
    """The text is the kubelet's."""
    with pytest.raises(BadSocketPath, match=f"^{re.escape(MESSAGES['relative_socket'])}$"):
        RegistrationServer(Path("relative"), accept)


async def test_kubelet_sock_appears_only_when_it_accepts_connections(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After listen(), so a plugin that dials as soon as the file appears is accepted."""
    path = short_dir / "kubelet.sock"
    appeared: list[bool] = []
    listen = socket.socket.listen

    def watched(self: socket.socket, backlog: int) -> None:
        appeared.append(path.exists())
        listen(self, backlog)
        appeared.append(path.exists())

    monkeypatch.setattr(socket.socket, "listen", watched)
    server = RegistrationServer(short_dir, accept)
    await server.start()
    assert appeared[:2] == [False, False]  # asyncio calls listen() again, which changes nothing
    assert path.is_socket()
    await server.stop()


async def test_stop_removes_the_socket_and_may_be_repeated(short_dir: Path) -> None:
    """`stop` also works without a start."""
    server = RegistrationServer(short_dir, accept)
    await server.stop()
    await server.start()
    assert (short_dir / "kubelet.sock").is_socket()
    assert server.is_serving
    await server.stop()
    await server.stop()
    assert not (short_dir / "kubelet.sock").exists()


async def test_a_socket_that_cannot_be_bound_is_a_clear_error(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the kubelet's words, the exit code is 3, and `stop` still works."""
    refuse_sockets(short_dir, monkeypatch)
    manager = DeviceManager(short_dir, state_dir=short_dir / "state")
    with pytest.raises(ListenFailed, match="failed to listen to socket while starting") as error:
        await manager.start()
    assert error.value.exit_code == 3
    await manager.stop()


def test_a_too_long_path_is_an_error_before_anything_is_created(short_dir: Path) -> None:
    """No directory is created for a socket that cannot exist."""
    directory = short_dir / ("x" * 90)
    with pytest.raises(SocketPathTooLong, match="choose a shorter --socket-dir"):
        DeviceManager(directory)
    assert not directory.exists()


async def test_a_served_directory_is_not_taken_over(manager: DeviceManager, plugins: Path) -> None:
    """A second manager with another state directory is refused. The first one continues."""
    async with listed(manager, healthy("a")) as one:
        other = DeviceManager(plugins, state_dir=plugins.with_name("other"))
        with pytest.raises(SocketInUse):
            await other.start()
        assert one.socket.is_socket()
        await one.send(healthy("a", "b"))
        await manager.wait_for(RESOURCE, allocatable=2)


async def test_metrics_have_names_of_accepted_plugins_only(plugins: Path) -> None:
    """Any process may send any number of names: the number of label values stays small."""
    metrics = PrometheusMetrics()

    async def connect(resource: str, _: Path) -> None:
        if resource != RESOURCE:
            raise DialPluginFailed("context deadline exceeded")

    plugins.mkdir()
    server = RegistrationServer(plugins, connect, metrics=metrics)
    await server.start()
    try:
        await register(plugins, "v1beta1", "a.sock", RESOURCE)
        for number in range(5):
            for resource in (f"example.com/r{number}", f"invalid {number}"):
                with pytest.raises(RpcError):
                    await register(plugins, "v1beta1", "a.sock", resource)
        with pytest.raises(RpcError):
            await register(plugins, "v1", "a.sock", RESOURCE)
    finally:
        await server.stop()
    lines = metrics.text().decode().splitlines()
    assert sorted(line.partition("{")[2] for line in lines if not line.startswith("#")) == [
        f'resource_name="{RESOURCE}"}} 2.0',
        'resource_name="other"} 10.0',
    ]


async def test_hanging_registrations_lock_nobody_out(
    plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registration that hangs longest makes room, with a status that allows another try."""
    monkeypatch.setattr(registration, "DIAL_LIMIT", 3)
    async with (
        DeviceManager(plugins) as manager,
        FakePlugin(plugins) as good,
        contextlib.AsyncExitStack() as stack,
    ):
        calls = []
        for number in range(10):
            name = f"example.com/h{number}"
            hanging = FakePlugin(plugins, name, socket_name=f"{number}.sock")
            await stack.enter_async_context(hanging)
            hanging.hang("options")
            calls.append(asyncio.ensure_future(hanging.register()))
            await until(lambda: hanging.options_asked)  # noqa: B023
        await good.register()
        assert [*manager.inventory] == [RESOURCE]
        ended = [each for each in calls if each.done()]
        assert len(ended) == 8
        for each in ended:
            error = each.exception()
            assert isinstance(error, RpcError)
            assert error.code is StatusCode.RESOURCE_EXHAUSTED
            assert "did not answer, and others wait" in error.message
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_process_that_floods_waits_for_itself(plugins: Path) -> None:
    """A few of its registrations get on at the same time; another process gets in at once."""
    begun: list[str] = []
    goes_on = asyncio.Event()

    async def connect(resource: str, path: Path) -> None:
        begun.append(resource)
        await goes_on.wait()

    plugins.mkdir()
    server = RegistrationServer(plugins, connect)

    def call(peer: Peer, resource: str) -> asyncio.Task[None]:
        context = contextvars.copy_context()
        context.run(CALLER.set, peer)
        request = RegisterRequest("v1beta1", "w.sock", resource)
        return asyncio.create_task(server.register(request), context=context)

    calls = [call(Peer(0, 7), f"a.b/c{number}") for number in range(20)]
    await until(lambda: len(begun) == registration.AT_ONCE_OF_PEER)
    calls += [call(Peer(0, 8), "honest.org/a"), call(NOBODY, "honest.org/b")]
    await until(lambda: {"honest.org/a", "honest.org/b"} <= {*begun})
    assert len(begun) == registration.AT_ONCE_OF_PEER + 2
    goes_on.set()
    await asyncio.gather(*calls)
    assert len(begun) == len(calls)
    assert not server._turns, "nobody's turns are kept"
