"""What every gRPC peer does and some do not. Misbehaviour here is ours, by hand-made HTTP/2."""

import asyncio

from kubedevices.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.conformance.check import Broken, Phase, Severity, Theme
from kubedevices.conformance.checks.streams import DISTURBING
from kubedevices.conformance.plugin import Plugin
from kubedevices.errors import RpcError, StatusCode, WireError
from kubedevices.kubelet_api.convert import ALLOCATE_REQUEST, EMPTY
from kubedevices.kubelet_api.services import ALLOCATE, LIST_AND_WATCH

FAIL, WARN = Severity.FAIL, Severity.WARN

first = Theme("grpc", phase=Phase.ARRIVAL, needs=("registration.registers",))


@first.check(
    "authority",
    FAIL,
    needs=("registration.serves-first",),
    suffers="No call of a kubelet is answered.",
    source="grpc-go sends :authority localhost on Unix sockets",
    mend="Do not check :authority, or accept localhost.",
)
async def authority(plugin: Plugin) -> str:
    """The plugin answers calls with :authority localhost."""
    if other := plugin.arrival.needs_other_authority:
        raise Broken(
            f"{plugin.arrival.options_problem}; answered with :authority {other}",
        )
    return "localhost"


theme = Theme("grpc", needs=("registration.options",))


@theme.check(
    "unknown-method",
    WARN,
    suffers="Calls that later versions of the API add are taken for answered.",
    source="gRPC: status codes; clients find out so what a server can do",
    mend="Leave unknown methods to the gRPC library.",
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
    suffers="Clients with keepalive take the connection for dead and drop it.",
    source="RFC 9113, section 6.7",
    mend="Leave PING to the HTTP/2 library; do not block its event loop.",
)
async def ping(plugin: Plugin) -> str:
    """The plugin answers a PING."""
    began = asyncio.get_running_loop().time()
    try:
        await plugin.ask(lambda limit: plugin.session.channel.ping(timeout=limit))
    except WireError as error:
        raise Broken(str(error)) from error
    return f"in {1000 * plugin.stage.spent(began):.1f} ms"


@theme.check(
    "broken-connection",
    FAIL,
    track=DISTURBING,
    disturbs=True,
    needs=("list.abandoned-stream",),
    suffers="A kubelet that is killed takes the plugin with it.",
    source="a killed process closes its connections anywhere, in the middle of a frame too",
    mend="Treat a broken connection as the end of its calls, nothing else.",
)
async def broken_connection(plugin: Plugin) -> str:
    """A connection that breaks in a frame or a stream does no harm to other clients."""
    ids = (await plugin.healthy_ids())[:1]
    request = ALLOCATE_REQUEST.to_wire(AllocateRequest((ContainerAllocateRequest(tuple(ids)),)))
    for _ in range(3):
        connection = await plugin.raw_connection()
        connection.call(LIST_AND_WATCH, EMPTY)
        await asyncio.sleep(plugin.timing.hold / 20)
        connection.call(ALLOCATE, request, leave_out=len(request) // 2)
        await asyncio.sleep(plugin.timing.hold / 20)
        connection.hang_up()
    await plugin.stage.pause(plugin.timing.hold)
    return f"answered in {await plugin.must_still_work('after broken connections')}"


@theme.check(
    "idle-connection",
    FAIL,
    track=DISTURBING,
    disturbs=True,
    needs=("list.abandoned-stream",),
    suffers="A client that connects without a request, such as a probe, locks the kubelet out.",
    source="liveness probes and tools connect to sockets without speaking",
    mend="Accept connections independently of what happens on others.",
)
async def idle_connection(plugin: Plugin) -> str:
    """Connections without a request do no harm to other clients."""
    await plugin.device_list()
    silent = []
    try:
        for number in range(4):
            # One after another: what was opened is closed even if the next one fails.
            silent.append(await plugin.raw_connection(is_silent=number % 2 == 0))  # noqa: PERF401
        await plugin.stage.pause(plugin.timing.hold / 5)
        took = await plugin.must_still_work("beside connections that say nothing")
    finally:
        for connection in silent:
            connection.hang_up()
    return f"others were served in {took}"
