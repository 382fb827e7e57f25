"""A kubelet's device manager as far as its sockets go, with grpc-go at both of them.

Registration is answered as a kubelet does: it dials back, asks for the options, says yes, opens the
list. What goes over the wire is read and made here without our `convert`.
"""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

from kubedevices.errors import RpcError, StatusCode
from tests.check import wire_names as wire
from tests.interop.go_client import GoClient
from tests.interop.go_server import GoServer

PLUGIN = "/v1beta1.DevicePlugin"

AllocateRequest = wire.message("v1beta1.AllocateRequest")


class GoKubelet:
    """One resource at most; `lists` has every device list as ID → health."""

    def __init__(self, socket_dir: Path, **dial_options: Any) -> None:
        self.socket_dir = socket_dir
        self.refuse_with: RpcError | None = None
        self.requests: list[bytes] = []
        self.options: list[bytes] = []
        self.lists: list[dict[str, str]] = []
        self.stream_end: tuple[StatusCode, str] | None = None
        self.plugin: GoClient
        self._dial_options = dial_options
        self._reader: asyncio.Task[None] | None = None
        self._server = GoServer({"/v1beta1.Registration/Register": self._register}, {})

    async def __aenter__(self) -> Self:
        await self._server.start(self.socket_dir / "kubelet.sock")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
            await self.plugin.close()
        await self._server.stop()

    async def _register(self, payload: bytes) -> bytes:
        self.requests.append(payload)
        if self.refuse_with is not None:
            raise self.refuse_with
        endpoint = wire.RegisterRequest.FromString(payload).endpoint
        self.plugin = await GoClient.dial(self.socket_dir / endpoint, **self._dial_options)
        self.options.append(await self.plugin.unary(f"{PLUGIN}/GetDevicePluginOptions", b""))
        self._reader = asyncio.create_task(self._read(), name="lists of a plugin")
        return b""

    async def _read(self) -> None:
        try:
            async with aclosing(self.plugin.stream(f"{PLUGIN}/ListAndWatch", b"")) as lists:
                async for each in lists:
                    devices = wire.ListAndWatchResponse.FromString(each).devices
                    self.lists.append({device.ID: device.health for device in devices})
            self.stream_end = StatusCode.OK, ""
        except RpcError as error:
            self.stream_end = error.code, error.message

    async def allocate(self, *ids: str) -> Any:
        """Allocate without a deadline, as kubelets do; return the container's response."""
        request = AllocateRequest()
        request.container_requests.add(devices_ids=ids)
        payload = request.SerializeToString()
        answer = await self.plugin.unary(f"{PLUGIN}/Allocate", payload, timeout=0)
        (response,) = wire.AllocateResponse.FromString(answer).container_responses
        return response
