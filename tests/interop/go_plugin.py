"""`FakePlugin` served and registered by grpc-go: a node must not see a difference."""

from pathlib import Path
from typing import Any, cast

from kubedevices.kubelet_api.convert import REGISTER_REQUEST
from kubedevices.kubelet_api.services import REGISTER, device_plugin_methods
from kubedevices.values.allocation import RegisterRequest
from kubedevices.wire.unix_grpc import UnaryMethod
from tests.fake_plugin import FakePlugin
from tests.interop.go_client import GoClient
from tests.interop.go_server import GoServer
from tests.wire.behaviour import UnaryHandler


def _awaited(method: UnaryMethod) -> UnaryHandler:
    """Return the handler of a method, to be awaited even where it answers at once."""

    async def handler(payload: bytes) -> bytes:
        answer = method.handler(payload)
        return answer if isinstance(answer, bytes) else await answer

    return handler


class GoFakePlugin(FakePlugin):
    """One resource on one socket of grpc-go's; `options` are `serverOptions` of server.go."""

    def __init__(
        self, socket_dir: Path, *, options: dict[str, Any] | None = None, **arguments: Any
    ) -> None:
        super().__init__(socket_dir, **arguments)
        methods = device_plugin_methods(self)
        unary, streams = {}, {}
        for name, method in methods.items():
            if isinstance(method, UnaryMethod):
                unary[name] = _awaited(method)
            else:
                streams[name] = method.handler
        self.go = GoServer(unary, streams, **(options or {}))
        self._server = cast("Any", self.go)

    async def register(self, *, version: str = "v1beta1", endpoint: str | None = None) -> None:
        """Call Register as plugins on grpc-go do; raises `RpcError` when refused."""
        endpoint = self.socket_name if endpoint is None else endpoint
        request = RegisterRequest(version, endpoint, self.resource)
        client = await GoClient.dial(self.socket_dir / "kubelet.sock", authority="")
        try:
            await client.unary(REGISTER, REGISTER_REQUEST.to_wire(request), timeout=20)
        finally:
            await client.close()
