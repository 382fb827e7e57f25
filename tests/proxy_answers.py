"""A socket with the answers of a proxy, or with wrong answers."""

from pathlib import Path
from typing import Any

from kubedevices.kubelet_api.proxy_client import METHOD, SERVICE
from kubedevices.kubelet_api.services import json_methods
from kubedevices.values.proxied_plugin import (
    DeviceReason,
    OutsideResource,
    ProxiedPlugin,
)
from kubedevices.wire.unix_grpc import GrpcServer
from tests.fake_plugin import RESOURCE

PLUGIN = ProxiedPlugin(
    "vendor.org/card",
    "/in/card.sock",
    is_here=True,
    healthy=1,
    unhealthy=1,
    rules=("calls card widget", "hold: a minute"),
    outside=(OutsideResource(RESOURCE, 2, 1),),
    cordoned=(DeviceReason(RESOURCE, "w1", "fan"),),
    reasons=(DeviceReason(RESOURCE, "w2", "hot"),),
)
"""One plugin, as a proxy describes it."""


async def start_answering(path: Path, plugins: list[Any]) -> GrpcServer:
    """Serve `plugins` on `path`; each call gets the present content of the list."""

    async def answer(_: dict[str, Any]) -> dict[str, Any]:
        return {"plugins": plugins}

    server = GrpcServer(json_methods(SERVICE, {METHOD: answer}, {}), name="proxy.sock")
    await server.start(path)
    return server
