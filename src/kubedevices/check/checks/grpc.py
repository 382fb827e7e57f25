"""Checks gRPC and HTTP/2. Some checks break the protocol on a `RawConnection`."""

import asyncio

from kubedevices.check.check import FAIL, WARN, Broken, Harm, Phase, Theme
from kubedevices.check.checks.list_streams import DISTURBING
from kubedevices.check.plugin import Plugin
from kubedevices.errors import RpcError, StatusCode, WireError
from kubedevices.kubelet_api.convert import EMPTY
from kubedevices.kubelet_api.services import ALLOCATE, LIST_AND_WATCH

first = Theme("grpc", phase=Phase.ARRIVAL, needs=("registration.registers",), harm=Harm.ALL_DEVICES)


@first.check(
    "authority",
    FAIL,
    needs=("registration.serves-first",),
    suffers="The plugin answers no call of the kubelet.",
    source="grpc-go sends :authority localhost on Unix sockets",
    mend="Do not check :authority, or accept localhost.",
)
async def authority(plugin: Plugin) -> str:
    """The plugin answers calls whose :authority is localhost."""
    if other := plugin.arrival.needs_other_authority:
        raise Broken(f"{plugin.arrival.options_problem}; answered with :authority {other}")
    return "localhost"


theme = Theme("grpc", needs=("registration.options",), harm=Harm.ALL_DEVICES)


@theme.check(
    "unknown-method",
    WARN,
    suffers="A client believes that the plugin supports a call of a later version of the API.",
    source="gRPC: status codes; UNIMPLEMENTED tells a client what a server does not support",
    mend="Do not handle unknown methods; the gRPC library answers them.",
)
async def unknown_method(plugin: Plugin) -> str:
    """The plugin answers an unknown method with UNIMPLEMENTED."""
    method = "/v1beta1.DevicePlugin/KubedevicesCheck"
    try:
        channel = plugin.session.channel
        await plugin.ask(lambda limit: channel.unary(method, EMPTY, timeout=limit))
    except RpcError as error:
        if error.code is StatusCode.UNIMPLEMENTED:
            return error.code.name
        raise Broken(str(error)) from error
    raise Broken("answered OK")


@theme.check(
    "ping",
    WARN,
    suffers="A client with keepalive believes that the connection is dead, and drops it.",
    source="RFC 9113, section 6.7",
    mend="Do not handle PING; the HTTP/2 library answers it, unless its event loop is blocked.",
)
async def ping(plugin: Plugin) -> str:
    """The plugin answers an HTTP/2 PING."""
    began = asyncio.get_running_loop().time()
    try:
        await plugin.ask(lambda limit: plugin.session.channel.ping(timeout=limit))
    except WireError as error:
        raise Broken(str(error)) from error
    return f"in {1000 * plugin.harness.spent(began):.1f} ms"


@theme.check(
    "broken-connection",
    FAIL,
    track=DISTURBING,
    disturbs=True,
    needs=("list.abandoned-stream",),
    suffers="When the kubelet is killed, the plugin stops serving as well.",
    source="a killed process closes its connections at any point, also within a frame",
    mend="When a connection breaks, end only the calls of this connection.",
)
async def broken_connection(plugin: Plugin) -> str:
    """A connection that breaks within a frame or a stream does no harm to other clients."""
    request = await plugin.allocate_message()
    for _ in range(3):
        connection = await plugin.raw_connection()
        connection.call(LIST_AND_WATCH, EMPTY)
        await asyncio.sleep(plugin.timing.hold / 20)
        connection.call(ALLOCATE, request, leave_out=len(request) // 2)
        await asyncio.sleep(plugin.timing.hold / 20)
        connection.hang_up()
    await plugin.harness.pause(plugin.timing.hold)
    return f"answered in {await plugin.must_still_work('after broken connections')}"


@theme.check(
    "idle-connection",
    FAIL,
    track=DISTURBING,
    disturbs=True,
    needs=("list.abandoned-stream",),
    suffers="While a client is connected that sends no request, such as a liveness probe, the "
    "kubelet cannot connect.",
    source="liveness probes and tools connect to sockets and send nothing",
    mend="Accept each connection independently of the others, for example in its own task.",
)
async def idle_connection(plugin: Plugin) -> str:
    """Connections without a request do no harm to other clients."""
    await plugin.device_list()
    silent = []
    try:
        for number in range(4):
            # One by one: if the next connection fails, the `finally` block closes the others.
            silent.append(await plugin.raw_connection(is_silent=number % 2 == 0))  # noqa: PERF401
        await plugin.harness.pause(plugin.timing.hold / 5)
        took = await plugin.must_still_work("beside connections without a request")
    finally:
        for connection in silent:
            connection.hang_up()
    return f"other clients were served in {took}"
