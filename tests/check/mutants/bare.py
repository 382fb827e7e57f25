"""One-file plugins on grpcio alone, which share no code with the good plugin."""

import argparse
import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from tests.check import wire_names as wire
from tests.check.mutants.registry import mutation

if TYPE_CHECKING:
    from pathlib import Path

RESOURCE = "example.com/bare"
GONE = ["life.sockets-wiped", "life.kubelet-away"]
FRAGILE = [
    "life.wiped-while-away",
    "life.all-wiped",
    "life.kubelet-socket-replaced",
    "life.stream-cancelled",
    "life.own-socket-removed",
    "registration.two-instances",
]
NOTES = ["allocate.empty-ids"]


class Bare:
    """Two devices, a thread pool, one Register call: like most example plugins."""

    workers = 64

    def __init__(self, args: argparse.Namespace) -> None:
        self.socket_dir: Path = args.socket_dir
        self.path = self.socket_dir / "bare.sock"
        self.stopping = threading.Event()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return wire.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        response = wire.ListAndWatchResponse()
        for name in ("bare0", "bare1"):
            response.devices.add(ID=name, health="Healthy")
        yield response
        gone = threading.Event()
        context.add_callback(gone.set)
        while not gone.wait(0.1) and not self.stopping.is_set():
            pass

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = wire.AllocateResponse()
        for container in request.container_requests:
            if not set(container.devices_ids) <= {"bare0", "bare1"}:
                context.abort(grpc.StatusCode.NOT_FOUND, "no such device")
            answer = response.container_responses.add()
            answer.envs["BARE"] = ",".join(sorted(container.devices_ids))
        return response

    def serve(self) -> grpc.Server:
        """Listen; remove the socket of a former process first."""
        self.path.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(self.workers))
        names = ("GetDevicePluginOptions", "ListAndWatch", "Allocate")
        methods = {name: getattr(self, name) for name in names}
        server.add_generic_rpc_handlers((wire.handlers("v1beta1.DevicePlugin", methods),))
        server.add_insecure_port(f"unix:{self.path}")
        server.start()
        return server

    def register(self) -> None:
        """Wait for a kubelet, and register once."""
        kubelet = self.socket_dir / "kubelet.sock"
        while not self.stopping.wait(0.05):
            with grpc.insecure_channel(f"unix:{kubelet}") as channel:
                call = channel.unary_unary(
                    "/v1beta1.Registration/Register",
                    wire.RegisterRequest.SerializeToString,
                    wire.Empty.FromString,
                )
                request = wire.RegisterRequest(
                    version="v1beta1",
                    endpoint=self.path.name,
                    resource_name=RESOURCE,
                    options=wire.DevicePluginOptions(),
                )
                try:
                    call(request, timeout=30)
                except grpc.RpcError as error:
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
                        raise
                else:
                    return

    async def run(self) -> int:
        """Serve until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)
        return await asyncio.to_thread(self.work)

    def work(self) -> int:
        """Serve until SIGTERM, in a thread."""
        server = self.serve()
        self.register()
        self.stopping.wait()
        server.stop(0.2).wait()
        self.path.unlink(missing_ok=True)
        return 0


@mutation("bare-registers-once", fails=GONE, warns=FRAGILE, notes=NOTES)
class RegistersOnce(Bare):
    """Serves correctly, but does not handle kubelet restarts."""


@mutation(
    "bare-mixes-containers-up",
    fails=GONE,
    warns=["allocate.per-container", *FRAGILE],
    notes=NOTES,
)
class MixesContainersUp(Bare):
    """Gives each container the devices of all containers of the call."""

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = super().Allocate(request, context)
        everything = ",".join(answer.envs["BARE"] for answer in response.container_responses)
        for answer in response.container_responses:
            answer.envs["BARE"] = everything
        return response
