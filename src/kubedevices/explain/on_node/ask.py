"""Asks a kubedevices node, a kubelet's podresources socket, the checkpoint and plugins.

Every call has a deadline. No call changes anything. The caller decides whether to ask plugins,
because some plugins lose an update when a second client reads their list.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kubedevices.errors import (
    CannotAsk,
    DialError,
    KubedevicesError,
    KubeletSilent,
    NodeError,
    WireError,
)
from kubedevices.explain.on_node.facts import (
    Allocation,
    DeviceState,
    HeldClaim,
    PluginAnswer,
    RefusedPlugin,
    RegistrySocket,
    ResourceFacts,
    ResourceState,
)
from kubedevices.explain.on_node.look_names import known_files
from kubedevices.host import deadlines, listing
from kubedevices.kubelet_api.clients import DevicePluginClient, PluginRegistrationClient
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.kubelet_api.dra import PACKAGES
from kubedevices.kubelet_api.kubelet_devices import ask_kubelet
from kubedevices.kubelet_api.proxy_client import ask_proxy
from kubedevices.node.arrival.registry_scan import find_sockets
from kubedevices.node.checkpoint.file import read_bytes
from kubedevices.node.checkpoint.text import BadCheckpoint, parse_checkpoint, restore
from kubedevices.node.services.control_client import ControlClient
from kubedevices.values.socket_paths import PROXY_SOCKET_NAME
from kubedevices.wire.unix_grpc import GrpcChannel

DEADLINE = 5.0
"""Seconds for each call."""

_PAUSE = 0.2
"""Seconds before a socket that did not answer is asked again."""


async def ask(
    socket_dir: Path,
    state_dir: Path,
    pod_resources: Path,
    checkpoint: Path,
    proxy_state_dir: Path | None = None,
) -> ResourceFacts:
    """Return the answers of the node, or else of the kubelet, of the checkpoint and of a proxy."""
    proxied = await ask_proxy((proxy_state_dir or state_dir) / PROXY_SOCKET_NAME)
    unasked = []
    answers = ResourceFacts()
    try:
        answers = await _ask_node(socket_dir, state_dir)
    except CannotAsk as error:
        unasked.append(str(error).partition(": start one with")[0])
        try:
            answers = await _ask_kubelet(pod_resources)
        except KubeletSilent as silent:
            unasked.append(str(silent))
            answers = ResourceFacts(is_kubelet=True, is_silent=True, waited=silent.seconds)
        except CannotAsk as refused:
            unasked.append(str(refused))
    files = await asyncio.to_thread(known_files, state_dir)
    answers = replace(read_checkpoint(checkpoint, answers), device_files=files)
    return replace(answers, unasked=tuple(unasked), proxied=proxied)


async def ask_held_claims(
    answers: ResourceFacts, pod_resources: Path
) -> tuple[HeldClaim, ...] | None:
    """Return the claims that containers have; None if the kubelet does not answer.

    `answers` may have them already, unless a kubedevices node gave the answers.
    """
    if answers.is_kubelet:
        return None if answers.is_silent else answers.claims
    try:
        return (await _ask_kubelet(pod_resources)).claims
    except CannotAsk:  # `ask` reports this
        return None


async def _ask_node(socket_dir: Path, state_dir: Path) -> ResourceFacts:
    async with await ControlClient.connect(socket_dir, state_dir) as client:
        document = await client.devices()
        try:
            registrations = await client.registrations()
        except (CannotAsk, NodeError):  # a node of an older version
            registrations = {}
    return ResourceFacts(
        f"node of {socket_dir}",
        resources=_resources_of(document, registrations.get("sockets", {})),
        refusals=tuple(
            RefusedPlugin(each["resource"], each["socket"], each["reason"])
            for each in registrations.get("refused", ())
        ),
        topology_policy=registrations.get("topology_policy"),
    )


async def _ask_kubelet(socket: Path) -> ResourceFacts:
    document = await ask_kubelet(socket, timeout=DEADLINE)
    claims = tuple(
        HeldClaim(
            each["driver"],
            each["claim"],
            tuple(each["devices"]),
            _holders(each),
            tuple(each["parts"]),
        )
        for each in document["claims"]
    )
    resources = _resources_of(document)
    return ResourceFacts(
        f"kubelet at {socket}", is_kubelet=True, resources=resources, claims=claims
    )


def _resources_of(
    document: Mapping[str, Any], sockets: Mapping[str, str] = MappingProxyType({})
) -> dict[str, ResourceState]:
    """Read the document that `kubedevices devices` shows.

    `sockets` maps a resource to the socket path of its plugin.
    """
    return {
        each["resource"]: ResourceState(
            each["resource"],
            tuple(_device(device) for device in each["devices"]),
            each["capacity"],
            each["allocatable"],
            each["plugin"],
            Path(sockets.get(each["resource"], "")).name,
        )
        for each in document["resources"]
    }


def _device(document: Mapping[str, Any]) -> DeviceState:
    numa_nodes = tuple(document["numa_nodes"])
    return DeviceState(document["id"], document["health"], numa_nodes, _holders(document))


def _holders(document: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        (f"{each['namespace']}/{each['pod']}" if each["pod"] else each["uid"])
        + f" ({each['container']})"
        for each in document["held_by"]
    )


# ---------------------------------------------------------------- checkpoint


def read_checkpoint(path: Path, answers: ResourceFacts) -> ResourceFacts:
    """Return `answers` with the registered devices and the allocations of the checkpoint added."""
    try:
        data = read_bytes(path)
    except CannotAsk as error:
        return replace(answers, checkpoint_problem=str(error))
    if data is None:
        return answers
    checkpoint = parse_checkpoint(data)
    if isinstance(checkpoint, BadCheckpoint):
        return replace(answers, checkpoint=path, checkpoint_problem=checkpoint.reason)
    restored = restore(checkpoint, CONTAINER_RESPONSE.from_wire)
    return replace(
        answers,
        checkpoint=path,
        registered={name: ids or () for name, ids in (checkpoint.registered or {}).items()},
        allocations=tuple(
            Allocation(
                each.pod_uid,
                each.container,
                each.resource,
                each.held.device_ids,
                each.held.response,
            )
            for each in restored.holdings
        ),
    )


# ---------------------------------------------------------------- plugins


async def ask_registry(directory: Path) -> tuple[RegistrySocket, ...] | None:
    """Call GetInfo at each socket in the plugin registry directory; None if it cannot be read.

    A kubelet may do this at any time, so no plugin is disturbed. A driver that is replaced
    meanwhile is asked at its new socket: the old one listened, and is gone.
    """
    found = await asyncio.to_thread(_sockets_in, directory)
    if found is None:
        return None
    answers = await asyncio.gather(*map(_ask_watched, sorted(found)))
    now = await asyncio.to_thread(_sockets_in, directory) or ()
    answers += await asyncio.gather(*map(_ask_watched, sorted({*now} - {*found})))
    return tuple(each for each in answers if each.info or each.path in now)


def _sockets_in(directory: Path) -> tuple[Path, ...] | None:
    try:
        next(listing.below(directory, 1), None)
    except FileNotFoundError:
        return ()
    except OSError:
        return None
    return tuple(find_sockets(directory))


async def _ask_watched(socket: Path) -> RegistrySocket:
    loop = asyncio.get_running_loop()
    began = loop.time()
    found = await _ask_once(socket)
    # A process that is about to end closes the connection, and then removes the socket.
    if found.info is None and loop.time() - began < DEADLINE / 2:
        await asyncio.sleep(_PAUSE)
        found = await _ask_once(socket)
    return found


async def _ask_once(socket: Path) -> RegistrySocket:
    try:
        async with await GrpcChannel.dial(socket, timeout=DEADLINE) as channel:
            info = await PluginRegistrationClient(channel).get_info(timeout=DEADLINE)
    except DialError as error:
        return RegistrySocket(socket, problem=f"no plugin answers: {error.reason}")
    except WireError as error:
        return RegistrySocket(socket, problem=f"it does not answer GetInfo: {error}")
    is_known = bool(PACKAGES.keys() & {*info.supported_versions})
    return RegistrySocket(socket, info, has_known_api=is_known)


async def ask_plugins(sockets: Sequence[Path]) -> dict[Path, PluginAnswer]:
    """Ask every plugin for its options and its first list, all plugins at the same time."""
    answers = await asyncio.gather(*map(ask_plugin, sockets))
    return dict(zip(sockets, answers, strict=True))


async def ask_plugin(socket: Path) -> PluginAnswer:
    """Ask one plugin; the stream is cancelled after its first list."""
    try:
        async with await GrpcChannel.dial(socket, timeout=DEADLINE) as channel:
            client = DevicePluginClient(channel)
            await client.get_device_plugin_options(timeout=DEADLINE)
            with contextlib.suppress(TimeoutError, StopAsyncIteration):
                async with deadlines.timeout(DEADLINE), aclosing(client.list_and_watch()) as lists:
                    return PluginAnswer(await anext(lists))
            return PluginAnswer(problem=f"sends no list of devices within {DEADLINE:g} s")
    except KubedevicesError as error:
        return PluginAnswer(problem=f"does not answer: {error}")
