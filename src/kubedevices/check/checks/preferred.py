"""Checks the optional call GetPreferredAllocation."""

from collections.abc import Sequence

from kubedevices.check.answers import shorten
from kubedevices.check.check import FAIL, NOTE, WARN, Broken, Harm, NotTried, Theme
from kubedevices.check.plugin import SEVERAL, Plugin
from kubedevices.errors import RpcError
from kubedevices.errors.words import counted

works = Theme("preferred", needs=("registration.options",), harm=Harm.POD)


async def _available(plugin: Plugin) -> list[str]:
    """Return devices from which the plugin chooses; raises `NotTried` if it offers no choice."""
    if not plugin.session.options.get_preferred_allocation_available:
        raise NotTried("GetPreferredAllocation is not offered")
    return (await plugin.healthy_ids())[:SEVERAL]


async def _prefer(
    plugin: Plugin, available: Sequence[str], must_include: Sequence[str], size: int
) -> list[str]:
    try:
        answers = await plugin.ask(
            lambda limit: plugin.session.prefer(available, must_include, size, timeout=limit)
        )
    except RpcError as error:
        raise Broken(f"{size} of {counted(len(available), 'device')}: {error}") from error
    return list(answers[0]) if answers else []


@works.check(
    "answers",
    FAIL,
    suffers="The preference is only a hint, but an error rejects the pod.",
    source="kubelet 1.32: an error of GetPreferredAllocation rejects the pod",
    mend="Without a preference, answer with an empty list; never answer with an error.",
)
async def answers(plugin: Plugin) -> str:
    """GetPreferredAllocation, if offered, answers with available devices."""
    available = await _available(plugin)
    chosen = await _prefer(plugin, available, [], 1)
    foreign = set(chosen) - set(available)
    if foreign:
        raise Broken(f"preferred {shorten(sorted(foreign))}, not available")
    return f"1 of {len(available)}: {shorten(chosen) or 'no preference'}"


preferred = Theme("preferred", needs=("registration.options", "preferred.answers"))


@preferred.check(
    "must-include",
    WARN,
    suffers="The preference has no effect: the kubelet takes the must-include devices, then random "
    "devices.",
    source="device plugin API: the preferred devices include must_include_deviceIDs",
    mend="Begin with the devices that must be included.",
    seen="Intel gpu plugin with the balanced policy",
)
async def must_include(plugin: Plugin) -> str:
    """The preferred devices contain the must-include devices."""
    available = await _available(plugin)
    if len(available) < 2:
        raise NotTried("it has only one healthy device")
    for must in available:
        chosen = await _prefer(plugin, available, [must], 2)
        if chosen and must not in chosen:
            raise Broken(f"2 devices with {must!r} requested, preferred: {shorten(chosen)}")
    return f"each of {counted(len(available), 'must-include device')} was preferred"


@preferred.check(
    "size",
    WARN,
    suffers="If there are too many preferred devices, the kubelet takes some of them at random; if "
    "there are too few, it adds random devices.",
    source="kubelet 1.32: it ignores the order of the answer",
    mend="Return exactly allocation_size devices, or no device.",
)
async def size(plugin: Plugin) -> str:
    """The number of preferred devices is the requested number."""
    available = await _available(plugin)
    for count in range(1, len(available) + 1):
        chosen = await _prefer(plugin, available, [], count)
        if chosen and len(chosen) != count:
            raise Broken(
                f"{counted(count, 'device')} requested, {len(chosen)} preferred: {shorten(chosen)}"
            )
        if len(set(chosen)) != len(chosen):
            raise Broken(f"a device twice: {shorten(chosen, SEVERAL)}")
    return f"up to {counted(len(available), 'device')}"


@preferred.check(
    "too-large",
    NOTE,
    suffers="A caller that requests more devices than are available does not notice its mistake.",
    source="no kubelet sends such a request; other clients of the API may",
    mend="Answer INVALID_ARGUMENT if allocation_size is larger than the number of available "
    "devices.",
)
async def too_large(plugin: Plugin) -> str:
    """A request for more devices than available is an error."""
    available = await _available(plugin)
    try:
        answers = await plugin.ask(
            lambda limit: plugin.session.prefer(available, [], len(available) + 1, timeout=limit)
        )
    except RpcError as error:
        return error.code.name
    answer = shorten(answers[0] if answers else ()) or "no preference"
    raise Broken(f"{len(available) + 1} requested, {len(available)} available: OK, {answer}")


@works.check(
    "not-offered",
    NOTE,
    suffers="A caller believes that the empty answer is a preference.",
    source="gRPC: a call that is not offered returns UNIMPLEMENTED",
    mend="Return UNIMPLEMENTED.",
    seen="generic, smarter, GCE, SR-IOV (OK without a container response)",
)
async def not_offered(plugin: Plugin) -> str:
    """GetPreferredAllocation, if not offered, answers with an error."""
    if plugin.session.options.get_preferred_allocation_available:
        raise NotTried("it is offered")
    ids = (await plugin.healthy_ids())[:1]
    try:
        answers = await plugin.ask(lambda limit: plugin.session.prefer(ids, [], 1, timeout=limit))
    except RpcError as error:
        return error.code.name
    raise Broken(f"answered OK, preferred: {shorten(answers[0] if answers else ()) or 'no device'}")
