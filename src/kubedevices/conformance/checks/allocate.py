"""Allocate: who gets an answer, and which; what stands in it is for `container`."""

import asyncio
from functools import partial

from kubedevices.allocation import AllocateRequest, AllocateResponse, ContainerAllocateRequest
from kubedevices.conformance.check import Broken, Fragile, NotTried, Severity, Theme
from kubedevices.conformance.checks.streams import DISTURBING, OFTEN
from kubedevices.conformance.plugin import UNKNOWN_ID, Plugin, difference, shorten
from kubedevices.errors import RpcError
from kubedevices.kubelet_api.convert import ALLOCATE_REQUEST
from kubedevices.kubelet_api.services import ALLOCATE
from kubedevices.probe.session import PluginSession

FAIL, WARN, NOTE = Severity.FAIL, Severity.WARN, Severity.NOTE

base = Theme("allocate", needs=("registration.options",))


@base.check(
    "answers",
    FAIL,
    suffers="The pod is rejected for good (UnexpectedAdmissionError). The kubelet sets no "
    "deadline: while one Allocate hangs, no pod of the node is admitted.",
    source="kubelet 1.32: Allocate is called during admission, without a deadline",
    mend="Answer from what is known; do slow work in PreStartContainer.",
)
async def answers(plugin: Plugin) -> str:
    """Allocate of a healthy device is answered with one container response, soon."""
    loop = asyncio.get_running_loop()
    name = (await plugin.healthy_ids())[0]
    began = loop.time()
    await plugin.answer_for([name])
    took = plugin.stage.spent(began)
    if took > plugin.timing.call / 2:
        raise Fragile(f"{name} was answered after {took:.1f} s")
    return f"{name} in {1000 * took:.1f} ms"


theme = Theme("allocate", needs=("registration.options", "allocate.answers"))


@theme.check(
    "per-container",
    WARN,
    suffers="Kubelets send one container per call; others that speak the API send several.",
    source="device plugin API: AllocateResponse has a response per container request",
    mend="Loop over container_requests and append one response for each.",
    seen="kubevirt kvm plugin (always one)",
)
async def per_container(plugin: Plugin) -> str:
    """Each container request gets its own response, in order."""
    ids = await plugin.healthy_ids()
    pair = [ids[0], ids[-1]]
    single = [await plugin.answer_for([name]) for name in pair]
    try:
        both = (await plugin.allocate(*([name] for name in pair))).containers
    except RpcError as error:
        raise Broken(f"two containers in one call: {error}") from error
    if len(both) != 2:
        raise Broken(f"{len(both)} responses to two container requests")
    again = [await plugin.answer_for([name]) for name in pair]
    if any(map(difference, single, again)):
        raise NotTried("two responses, but the same request is never answered alike")
    if difference(*single) and not any(map(difference, single, reversed(both))):
        raise Broken(f"the responses for {pair[0]!r} and {pair[1]!r} are swapped")
    for name, alone, beside in zip(pair, single, both, strict=True):
        if found := difference(alone, beside):
            raise Broken(f"the response for {name!r} is another one beside {pair}: {found}")
    return "two responses to two requests, as in calls of their own"


@theme.check(
    "repeatable",
    FAIL,
    suffers="A kubelet asks again for the same devices: for an init container and then for its "
    "app, and after a restart of the pod. There is no call that gives devices back.",
    source="kubelet 1.32: devices of init containers are reused; no deallocation exists",
    mend="Keep no count of what was given away; make the answer of the device alone.",
)
async def repeatable(plugin: Plugin) -> str:
    """The same request gets the same answer twice."""
    ids = await plugin.some_ids()
    if found := await _differ(plugin, ids, ids):
        raise Fragile(f"two answers for {shorten(ids)} differ in {found}")
    return f"the same for {shorten(ids)}"


async def _differ(plugin: Plugin, one: list[str], other: list[str]) -> str:
    """Say how the answers for both differ, if they ever do: what is at random may be equal."""
    began = asyncio.get_running_loop().time()
    for _ in range(OFTEN):
        if found := difference(await plugin.answer_for(one), await plugin.answer_for(other)):
            return found
        if plugin.stage.spent(began) > plugin.timing.call / 2:
            break
    return ""


@theme.check(
    "id-order",
    WARN,
    suffers="A kubelet sends IDs in random order: the same pod sees its devices differently "
    "after each start.",
    source="kubelet 1.32: device IDs come from a Go map",
    mend="Sort the IDs of a request before you answer it.",
    seen="Intel QAT and FPGA (environment variables numbered at random)",
)
async def id_order(plugin: Plugin) -> str:
    """The answer does not depend on the order of the IDs."""
    ids = await plugin.two_ids()
    if found := await _differ(plugin, ids, ids[::-1]):
        raise Broken(f"{shorten(ids)} and the reverse differ in {found}")
    return f"the same for {len(ids)} IDs forward and backward"


@theme.check(
    "unknown-id",
    FAIL,
    suffers="If a device vanishes between decision and call, a container starts without the "
    "device, and without an error.",
    source="plugins seen: NOT_FOUND or UNKNOWN; the kubelet trusts whatever OK says",
    mend="Look every ID up; answer NOT_FOUND naming the one that is not there.",
    seen="ROCm (only /dev/kfd), SR-IOV (empty env)",
)
async def unknown_id(plugin: Plugin) -> str:
    """An unknown ID is refused with an error status."""
    return await _must_refuse(plugin, UNKNOWN_ID, "an unknown ID")


@theme.check(
    "unhealthy-id",
    FAIL,
    suffers="A container gets a broken device.",
    source="health may change between the kubelet's decision and its call",
    mend="Check health in Allocate; answer FAILED_PRECONDITION.",
)
async def unhealthy_id(plugin: Plugin) -> str:
    """The ID of an unhealthy device is refused with an error status."""
    return await _must_refuse(plugin, await plugin.unhealthy_id(), "an unhealthy ID")


async def _must_refuse(plugin: Plugin, name: str, what: str) -> str:
    try:
        response = await plugin.allocate([name])
    except RpcError as error:
        _died_of(plugin, what)
        return f"{what}: {error.code.name}"
    answer = response.containers[0] if response.containers else None
    given = "no container response" if answer is None else f"env {answer.env}"
    raise Broken(f"{what}, {name!r}: OK with {given}")


def _died_of(plugin: Plugin, what: str) -> None:
    if not plugin.session.is_alive:
        raise Broken(f"{what}: the connection broke")


@theme.check(
    "empty-ids",
    NOTE,
    suffers="A mistake of the caller goes unnoticed: the container starts without device.",
    source="plugins seen: all of fourteen answer OK",
    mend="Answer INVALID_ARGUMENT to a request without device IDs.",
    seen="all that were tried",
)
async def empty_ids(plugin: Plugin) -> str:
    """A container request without IDs is refused."""
    try:
        await plugin.allocate([])
    except RpcError as error:
        _died_of(plugin, "an empty ID list")
        return error.code.name
    raise Broken("answered OK, as most plugins do")


@theme.check(
    "concurrent",
    FAIL,
    track=DISTURBING,
    disturbs=True,
    needs=("list.abandoned-stream",),
    suffers="Streams of former kubelets, and those of tools, eat the workers; then every pod "
    "admission hangs.",
    source="a stream of a dead kubelet can stay open for minutes",
    mend="Do not serve streams from the pool of workers that serves calls, or make it large.",
    seen="most one-file Python plugins (a pool of 4 to 10 workers)",
)
async def concurrent(plugin: Plugin) -> str:
    """Sixteen Allocate calls at once are answered beside a dozen open streams."""
    timing = plugin.timing
    loop, changes = asyncio.get_running_loop(), plugin.stage.notes.changes
    await plugin.stage.steady()
    ids = await plugin.healthy_ids()
    ids = sorted(changes.untouched(ids)) or ids
    asked = [ids[number % len(ids)] for number in range(timing.calls_at_once)]
    session = await plugin.dial_again()
    streams = [session.open_stream() for _ in range(timing.streams_beside)]
    try:
        silent = [each for each in streams if await plugin.first(each, timing.first_list) is None]
        if silent:
            raise Broken(
                f"{len(silent)} of {len(streams)} streams got no list within "
                f"{timing.first_list:g} s"
            )
        began = loop.time()
        results = await asyncio.gather(
            *(plugin.ask(partial(_allocate, session, name)) for name in asked),
            return_exceptions=True,
        )
        failed = [
            each
            for name, each in zip(asked, results, strict=True)
            if isinstance(each, BaseException) and changes.untouched([name])
        ]
        if failed:
            raise Broken(f"{len(failed)} of {len(results)} calls failed: {failed[0]}")
    finally:
        await session.close()
    return f"{len(results)} calls in {1000 * plugin.stage.spent(began):.0f} ms"


async def _allocate(session: PluginSession, name: str, timeout: float) -> AllocateResponse:
    return await session.allocate([name], timeout=timeout)


@theme.check(
    "hang-up",
    FAIL,
    track=DISTURBING,
    disturbs=True,
    needs=("list.abandoned-stream",),
    suffers="After a restart of the kubelet during an admission, the plugin answers no client "
    "any more.",
    source="kubelet 1.32: its connections end with it, calls in flight as well",
    mend="Release locks and bookkeeping of a call also when it is cancelled.",
)
async def hang_up(plugin: Plugin) -> str:
    """A client that ends its Allocate call early does no harm to other clients."""
    ids = (await plugin.healthy_ids())[:1]
    request = AllocateRequest((ContainerAllocateRequest(tuple(ids)),))
    for pause in (0, 0.001, 0.002, 0.004, 0.008, 0.016):
        connection = await plugin.raw_connection()
        connection.call(ALLOCATE, ALLOCATE_REQUEST.to_wire(request))
        await asyncio.sleep(pause)
        connection.hang_up()
    return f"answered in {await plugin.must_still_work('after clients that hung up')}"
