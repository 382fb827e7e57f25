"""Checks Allocate: which requests get an answer. `allocate_container` checks their content."""

import asyncio
from functools import partial

from kubedevices.check.answers import difference, shorten, text_of
from kubedevices.check.check import FAIL, NOTE, WARN, Broken, Fragile, Harm, NotTried, Theme
from kubedevices.check.checks.list_streams import DISTURBING, OFTEN
from kubedevices.check.plugin import SEVERAL, UNKNOWN_ID, Plugin
from kubedevices.errors import RpcError
from kubedevices.errors.words import counted
from kubedevices.kubelet_api.services import ALLOCATE
from kubedevices.testing.kubelet.session import PluginSession
from kubedevices.values.allocation import AllocateResponse, ContainerAllocateResponse

base = Theme("allocate", needs=("registration.options",), harm=Harm.POD)


@base.check(
    "answers",
    FAIL,
    suffers="The pod is rejected (UnexpectedAdmissionError) and not tried again. The kubelet sets "
    "no deadline: while one Allocate hangs, the node admits no pod.",
    source="kubelet 1.32: it calls Allocate during admission, without a deadline",
    mend="Answer without slow work; do slow work in PreStartContainer.",
)
async def answers(plugin: Plugin) -> str:
    """Allocate of a healthy device returns one container response within 7 s."""
    loop = asyncio.get_running_loop()
    name = (await plugin.healthy_ids())[0]
    began = loop.time()
    if await plugin.unless_hanging(plugin.answer_for([name])) is None:
        raise Broken(f"Allocate of {name} has no answer within {plugin.timing.call:g} s")
    took = plugin.harness.spent(began)
    if took > plugin.timing.call / 2:
        raise Fragile(f"{name} was answered after {took:.1f} s")
    return f"{name} in {1000 * took:.1f} ms"


theme = Theme("allocate", needs=("registration.options", "allocate.answers"), harm=Harm.POD)


@theme.check(
    "per-container",
    WARN,
    suffers="Kubelets send one container per call, but other clients of the API send several; they "
    "get a wrong answer.",
    source="device plugin API: AllocateResponse has a response per container request",
    mend="Loop over container_requests and append one response for each.",
    seen="kubevirt kvm plugin (always one)",
)
async def per_container(plugin: Plugin) -> str:
    """Each container request gets its own response, in the order of the requests."""
    ids = await plugin.healthy_ids()
    pair = [ids[0], ids[-1]]
    single = [await plugin.answer_for([name]) for name in pair]
    try:
        both = (await plugin.allocate(*([name] for name in pair))).containers
    except RpcError as error:
        raise Broken(f"two containers in one call: {error}") from error
    if len(both) != 2:
        raise Broken(f"{counted(len(both), 'response')} to two container requests")
    again = [await plugin.answer_for([name]) for name in pair]
    if any(map(difference, single, again)):
        raise NotTried("two responses, but each answer to the same request differs")
    if difference(*single) and not any(map(difference, single, reversed(both))):
        raise Broken(f"the responses for {pair[0]!r} and {pair[1]!r} are swapped")
    for name, alone, beside in zip(pair, single, both, strict=True):
        if found := difference(alone, beside):
            raise Broken(
                f"the response for {name!r} differs in a call for {shorten(pair)}: {found}"
            )
    return "two responses to two requests, as in separate calls"


@theme.check(
    "repeatable",
    FAIL,
    suffers="A kubelet allocates the same devices again: first for an init container, then for the "
    "application container, and for the next pod. The API has no call that frees devices.",
    source="kubelet 1.32: it reuses devices of init containers; no deallocation exists",
    mend="Do not count allocations; the answer must depend only on the devices.",
)
async def repeatable(plugin: Plugin) -> str:
    """The same request gets the same answer twice."""
    ids = await plugin.some_ids()
    if found := await _difference_of(plugin, ids, ids):
        raise Fragile(f"two answers for {shorten(ids)} differ in {found}")
    return f"the same answer for {shorten(ids)}"


async def _difference_of(plugin: Plugin, one: list[str], other: list[str]) -> str:
    """Return how the answers for `one` and `other` differ, `""` if they do not.

    Compares several answers: two answers with random content may be equal by chance.
    """
    began = asyncio.get_running_loop().time()
    for _ in range(OFTEN):
        if found := difference(await plugin.answer_for(one), await plugin.answer_for(other)):
            return found
        if plugin.harness.spent(began) > plugin.timing.call / 2:
            break
    return ""


@theme.check(
    "id-order",
    WARN,
    suffers="A kubelet sends IDs in random order, so the same pod may see its devices in another "
    "order after each start.",
    source="kubelet 1.32: it takes device IDs from a Go map",
    mend="Sort the IDs of a request before you answer it.",
    seen="Intel QAT and FPGA (environment variables in random order)",
)
async def id_order(plugin: Plugin) -> str:
    """The answer does not depend on the order of the IDs."""
    ids = await plugin.two_ids()
    if found := await _difference_of(plugin, ids, ids[::-1]):
        raise Broken(f"the answers for {shorten(ids)} and for the reverse order differ in {found}")
    return f"the same answer for {counted(len(ids), 'ID')} in both orders"


@theme.check(
    "unknown-id",
    FAIL,
    harm=Harm.WRONG_DEVICE,
    suffers="If a device vanishes between the kubelet's decision and its call, a container starts "
    "without the device and without an error.",
    source="other plugins answer NOT_FOUND or UNKNOWN; the kubelet accepts every OK",
    mend="Look up every ID; for an unknown ID, answer NOT_FOUND and name the ID.",
    seen="ROCm (answers with /dev/kfd only), SR-IOV (answers with an empty environment)",
)
async def unknown_id(plugin: Plugin) -> str:
    """The plugin refuses an unknown ID with an error status, unless all IDs have one answer."""
    what = "an unknown ID"
    try:
        answer = await _answer_for(plugin, UNKNOWN_ID)
    except RpcError as error:
        return f"{what}: {_refusal(plugin, what, error)}"
    if answer is None:
        raise Broken(f"{what}, {UNKNOWN_ID}: OK without a container response")
    # The devices are interchangeable, for example places at /dev/kvm: nothing is missing.
    for name in (await plugin.healthy_ids())[:SEVERAL]:
        if difference(await plugin.answer_for([name]), answer):
            raise Broken(f"{what}, {UNKNOWN_ID}: OK with {text_of(answer)}")
    return f"{what} has the same answer as every device: {text_of(answer)}"


@theme.check(
    "unhealthy-id",
    FAIL,
    harm=Harm.WRONG_DEVICE,
    suffers="A container gets a broken device.",
    source="health may change between the kubelet's decision and its call",
    mend="Check health in Allocate; answer FAILED_PRECONDITION.",
)
async def unhealthy_id(plugin: Plugin) -> str:
    """The plugin refuses the ID of an unhealthy device with an error status."""
    name, what = await plugin.unhealthy_id(), "an unhealthy ID"
    try:
        answer = await _answer_for(plugin, name)
    except RpcError as error:
        return f"{what}: {_refusal(plugin, what, error)}"
    given = "without a container response" if answer is None else f"with {text_of(answer)}"
    raise Broken(f"{what}, {name!r}: OK {given}")


async def _answer_for(plugin: Plugin, *ids: str) -> ContainerAllocateResponse | None:
    """Return the container response for these IDs, None if the answer has none."""
    response = await plugin.allocate(ids)
    return response.containers[0] if response.containers else None


def _refusal(plugin: Plugin, what: str, error: RpcError) -> str:
    """Return the status of a refusal; raises `Broken` if the connection broke with it."""
    if not plugin.session.is_alive:
        raise Broken(f"{what}: the connection broke")
    return error.code.name


@theme.check(
    "empty-ids",
    NOTE,
    suffers="Nobody notices a mistake of the caller: the container starts without a device.",
    source="measured: all of fourteen plugins answer OK",
    mend="Answer INVALID_ARGUMENT to a request without device IDs.",
    seen="all plugins that were tried",
)
async def empty_ids(plugin: Plugin) -> str:
    """The plugin refuses a container request without IDs."""
    try:
        answer = await _answer_for(plugin)
    except RpcError as error:
        return _refusal(plugin, "an empty ID list", error)
    given = "no container response" if answer is None else text_of(answer)
    raise Broken(f"answered OK with {given}, as most plugins do")


@theme.check(
    "concurrent",
    FAIL,
    track=DISTURBING,
    disturbs=True,
    needs=("list.abandoned-stream",),
    suffers="Streams of former kubelets and of tools occupy all worker threads; then every pod "
    "admission hangs.",
    source="a stream of a dead kubelet can stay open for minutes",
    mend="Use a large thread pool, or serve streams in other threads than calls.",
    seen="most one-file Python plugins (a pool of 4 to 10 worker threads)",
)
async def concurrent(plugin: Plugin) -> str:
    """The plugin answers sixteen Allocate calls at the same time, with twelve open streams."""
    timing = plugin.timing
    loop, changes = asyncio.get_running_loop(), plugin.harness.shared.changes
    await plugin.harness.steady()
    ids = await plugin.healthy_ids()
    ids = sorted(changes.untouched(ids)) or ids
    if not await plugin.can_allocate() and plugin.harness.shared.hanging[plugin.resource].is_set():
        raise NotTried("a single Allocate is not answered")
    asked = [ids[number % len(ids)] for number in range(timing.calls_at_once)]
    session = await plugin.dial_again()
    streams = [session.open_stream() for _ in range(timing.streams_beside)]
    try:
        silent = [each for each in streams if await plugin.first(each, timing.first_list) is None]
        if silent:
            raise Broken(
                f"{len(silent)} of {counted(len(streams), 'stream')} got no list within "
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
            raise Broken(f"{len(failed)} of {counted(len(results), 'call')} failed: {failed[0]}")
    finally:
        await session.close()
    return f"{counted(len(results), 'call')} in {1000 * plugin.harness.spent(began):.0f} ms"


async def _allocate(session: PluginSession, name: str, timeout: float) -> AllocateResponse:
    return await session.allocate([name], timeout=timeout)


@theme.check(
    "hang-up",
    FAIL,
    track=DISTURBING,
    disturbs=True,
    needs=("list.abandoned-stream",),
    suffers="If the kubelet restarts during an admission, the plugin answers no client afterwards.",
    source="kubelet 1.32: when it ends, its connections and its calls end",
    mend="Release the locks and the state of a call also if the call is cancelled.",
)
async def hang_up(plugin: Plugin) -> str:
    """A client that ends its Allocate call early does no harm to other clients."""
    request = await plugin.allocate_message()
    for pause in (0, 0.001, 0.002, 0.004, 0.008, 0.016):
        connection = await plugin.raw_connection()
        connection.call(ALLOCATE, request)
        await asyncio.sleep(pause)
        connection.hang_up()
    return f"answered in {await plugin.must_still_work('after clients that hung up')}"
