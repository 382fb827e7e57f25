"""Checks the optional call PreStartContainer."""

import asyncio
from collections.abc import Sequence

from kubedevices.check.answers import shorten
from kubedevices.check.check import FAIL, NOTE, WARN, Broken, Fragile, Harm, NotTried, Theme
from kubedevices.check.plugin import UNKNOWN_ID, Plugin
from kubedevices.errors import RpcError
from kubedevices.errors.words import counted

theme = Theme("prestart", needs=("registration.options",), harm=Harm.POD)


async def _pre_start(plugin: Plugin, ids: Sequence[str]) -> None:
    limit = plugin.timing.pre_start
    await plugin.ask(lambda limit: plugin.session.pre_start(ids, timeout=limit), limit)


async def _must_refuse(plugin: Plugin, ids: Sequence[str]) -> str:
    try:
        await _pre_start(plugin, ids)
    except RpcError as error:
        return error.code.name
    raise Broken("answered OK")


def _need_pre_start(plugin: Plugin) -> None:
    if not plugin.session.options.pre_start_required:
        raise NotTried("PreStartContainer is not required")


@theme.check(
    "answers",
    FAIL,
    suffers="The container does not start; the kubelet tries again and again "
    "(CreateContainerConfigError).",
    source="kubelet 1.32: PreStartContainer has a deadline of 30 s; an error fails the start",
    mend="Prepare devices faster, or earlier; return an error only if the device is not usable.",
)
async def pre_start(plugin: Plugin) -> str:
    """PreStartContainer, if required, succeeds within 30 s."""
    _need_pre_start(plugin)
    ids = await plugin.some_ids()
    began = asyncio.get_running_loop().time()
    try:
        await _pre_start(plugin, ids)
    except RpcError as error:
        raise Broken(f"{shorten(ids)}: {error}") from error
    took = plugin.harness.spent(began)
    if took > plugin.timing.pre_start * 2 / 3:
        raise Fragile(f"{shorten(ids)}: {took:.1f} s of {plugin.timing.pre_start:g} s")
    return f"{counted(len(ids), 'device')} in {1000 * took:.1f} ms"


@theme.check(
    "unknown-id",
    WARN,
    needs=("prestart.answers",),
    suffers="A container starts with a device that does not exist any more.",
    source="devices may vanish between admission and start",
    mend="Look up every ID; for an unknown ID, answer NOT_FOUND.",
)
async def pre_start_unknown(plugin: Plugin) -> str:
    """PreStartContainer with an unknown ID is an error."""
    _need_pre_start(plugin)
    return await _must_refuse(plugin, [UNKNOWN_ID])


@theme.check(
    "not-offered",
    NOTE,
    suffers="A caller believes that the plugin has prepared the device.",
    source="gRPC: a call that is not offered returns UNIMPLEMENTED",
    mend="Return UNIMPLEMENTED.",
)
async def pre_start_not_offered(plugin: Plugin) -> str:
    """PreStartContainer, if not required, answers with an error."""
    if plugin.session.options.pre_start_required:
        raise NotTried("it is required")
    return await _must_refuse(plugin, (await plugin.healthy_ids())[:1])
