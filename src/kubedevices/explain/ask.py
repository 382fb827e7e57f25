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
from kubedevices.explain.facts import (
    Allocation,
    DeviceState,
    DriverFacts,
    HeldClaim,
    PluginAnswer,
    RefusedPlugin,
    RegistrySocket,
    ResourceFacts,
    ResourceState,
)
from kubedevices.explain.look_names import known_files
from kubedevices.host import deadlines
from kubedevices.kubelet_api.clients import DevicePluginClient, PluginRegistrationClient
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.kubelet_api.kubelet_devices import ask_claims, ask_kubelet
from kubedevices.kubelet_api.proxy_client import ask_proxy
from kubedevices.node.arrival.registry_scan import find_sockets
from kubedevices.node.checkpoint.file import read_bytes
from kubedevices.node.checkpoint.text import BadCheckpoint, parse_checkpoint, restore
from kubedevices.node.services.control_client import ControlClient
from kubedevices.values.socket_paths import PROXY_SOCKET_NAME
from kubedevices.wire.unix_grpc import GrpcChannel

DEADLINE = 5.0
"""Seconds for each call."""


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


async def ask_use(drivers: Sequence[DriverFacts], pod_resources: Path) -> tuple[DriverFacts, ...]:
    """Return the drivers with the kubelet's answer whether containers have their claims."""
    if not any(each.claims for each in drivers):
        return tuple(drivers)
    try:
        used = {"/".join(each) for each in await ask_claims(pod_resources, timeout=DEADLINE)}
    except CannotAsk:  # `ask` reports this
        return tuple(drivers)
    return tuple(
        replace(
            driver,
            claims=tuple(replace(each, is_unused=each.name not in used) for each in driver.claims),
        )
        for driver in drivers
    )


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
        HeldClaim(each["driver"], each["claim"], tuple(each["devices"]), _holders(each))
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


async def ask_registry(directory: Path) -> tuple[RegistrySocket, ...]:
    """Call GetInfo at each socket in the plugin registry directory.

    A kubelet may do this at any time, so no plugin is disturbed.
    """
    found = await asyncio.to_thread(find_sockets, directory)
    return tuple(await asyncio.gather(*map(_ask_watched, sorted(found))))


async def _ask_watched(socket: Path) -> RegistrySocket:
    try:
        async with await GrpcChannel.dial(socket, timeout=DEADLINE) as channel:
            client = PluginRegistrationClient(channel)
            return RegistrySocket(socket, await client.get_info(timeout=DEADLINE))
    except DialError as error:
        return RegistrySocket(socket, problem=f"no plugin answers: {error.reason}")
    except WireError as error:
        return RegistrySocket(socket, problem=f"it does not answer GetInfo: {error}")


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
