"""Reports the plugins behind the proxy, and which of their devices the kubelet gets.

`kubedevices devices` and `explain` ask by `kubelet_api.proxy_client`. Only the proxy's own user may
open the socket.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from kubedevices.errors import CannotAsk
from kubedevices.kubelet_api.proxy_client import METHOD, SERVICE
from kubedevices.kubelet_api.services import json_methods
from kubedevices.proxy.proxied_resource import ProxiedResource
from kubedevices.proxy.proxy_config import ProxyRule, served_names
from kubedevices.rules.cordon import Cordoned
from kubedevices.rules.replicas import device_of
from kubedevices.values.device import Device
from kubedevices.values.proxied_plugin import (
    HIDDEN,
    MOST_REASONS,
    DeviceReason,
    OutsideResource,
    ProxiedPlugin,
)
from kubedevices.values.socket_paths import PROXY_SOCKET_NAME, SHORTER_STATE_DIR, check_socket_path
from kubedevices.wire.unix_grpc import GrpcServer

RuleOf = Callable[[str], ProxyRule | None]

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving_state(
    state_dir: Path, resources: Mapping[str, ProxiedResource], rule_of: RuleOf
) -> AsyncIterator[None]:
    """Answer while the context lasts; if the socket cannot be bound, log it and do not answer."""

    async def answer(_: dict[str, Any]) -> dict[str, Any]:
        plugins = [describe(each, rule_of) for _, each in sorted(resources.items())]
        return {"plugins": [each.as_dict() for each in plugins]}

    server = GrpcServer(json_methods(SERVICE, {METHOD: answer}, {}), name=PROXY_SOCKET_NAME)
    try:
        path = check_socket_path(state_dir / PROXY_SOCKET_NAME, SHORTER_STATE_DIR)
        await server.start(path, by_rename=True)
    except CannotAsk as error:
        _log.warning("`kubedevices devices` and `explain` cannot ask this proxy: %s", error)
    try:
        yield
    finally:
        await server.stop()


def describe(resource: ProxiedResource, rule_of: RuleOf) -> ProxiedPlugin:
    """Return the current state of one resource."""
    plugin, chain, name = resource.plugin, resource.chain, str(resource.plugin.resource)
    rules: list[str] = []
    names: tuple[str, ...] = ()
    cordoned: list[tuple[str, str, str]] = []
    if chain is None:
        is_hidden = rule_of(name) is None
        rules.append(HIDDEN if is_hidden else "not served, the log of the proxy says why")
    else:
        names = served_names(name, chain.rule)
        for layer in chain.layers.values():
            if isinstance(layer, Cordoned):
                cordoned += [each for each in layer.cordoned if each[0] in names]
            elif line := layer.line():
                rules.append(line)
    servers = resource.runner.servers.values() if resource.runner is not None else ()
    listed = {each.resource: each.devices for each in servers}
    return ProxiedPlugin(
        name,
        str(plugin.socket or ""),
        plugin.is_here,
        *_count(plugin.list.devices),
        tuple(rules),
        tuple(OutsideResource(each, *_count(listed.get(each, {}))) for each in names),
        tuple(DeviceReason(*each) for each in sorted(cordoned)),
        tuple(islice(_reasons(listed, {each[:2] for each in cordoned}), MOST_REASONS)),
    )


def _reasons(
    listed: Mapping[str, Mapping[str, Device]], cordoned: Collection[tuple[str, ...]]
) -> Iterator[DeviceReason]:
    for resource, devices in sorted(listed.items()):
        for each in devices.values():
            names = {(resource, each.id), (resource, device_of(each.id))}
            if each.reason and not each.is_healthy and names.isdisjoint(cordoned):
                yield DeviceReason(resource, each.id, each.reason)


def _count(devices: Mapping[str, Device]) -> tuple[int, int]:
    healthy = sum(each.is_healthy for each in devices.values())
    return healthy, len(devices) - healthy
