"""The podresources service of a kubelet without pods: some plugins do not start without it."""

from collections.abc import Callable, Iterable
from pathlib import Path

from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.pod_resources import (
    PodEntry,
    allocatable_entries,
    allocatable_to_wire,
    pod_resources_methods,
)
from kubedevices.values.device import ReportedDevice
from kubedevices.wire.unix_grpc import GrpcServer


class NoPods:
    """Serves `socket`, v1 and v1alpha1: no pod, and the devices of `devices` as allocatable."""

    def __init__(
        self, socket: Path, devices: Callable[[], Iterable[tuple[str, ReportedDevice]]]
    ) -> None:
        self._socket, self._devices = socket, devices
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        """Listen; replace the socket of an earlier start. Raises `CannotAsk`."""
        self._server = GrpcServer(pod_resources_methods(self), name="probe's podresources")
        await self._server.start(self._socket, by_rename=True)

    async def stop(self) -> None:
        """End every connection and remove the socket."""
        server, self._server = self._server, None
        if server:
            await server.stop()

    async def list_pods(self) -> Iterable[bytes]:
        """Answer v1.List."""
        return ()

    async def get_pod(self, name: str, namespace: str) -> bytes:
        """Answer v1.Get, as a kubelet does for an unknown pod."""
        raise RpcError(StatusCode.UNKNOWN, f"pod {name} in namespace {namespace} not found")

    async def get_allocatable(self) -> bytes:
        """Answer v1.GetAllocatableResources: the healthy devices."""
        return b"".join(
            allocatable_to_wire(entry)
            for resource, device in self._devices()
            for entry in allocatable_entries(resource, device)
        )

    async def list_pods_v1alpha1(self) -> Iterable[PodEntry]:
        """Answer v1alpha1.List."""
        return ()
