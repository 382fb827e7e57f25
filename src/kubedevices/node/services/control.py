"""The control service of a node, for `kubedevices devices`, `allocate`, `release` and other verbs.

JSON in gRPC frames on `<state_dir>/control.sock`. Only the user of the node has access.
`control_client` calls the service, `overview` makes the answers, the device manager decides.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kubedevices.errors import (
    AdmissionRejected,
    KubedevicesError,
    RpcError,
    StatusCode,
    UsageError,
)
from kubedevices.errors.words import did_you_mean
from kubedevices.kubelet_api.services import JsonAnswer, json_methods
from kubedevices.node.admission.concurrency import PodQueue
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.node.overview import (
    describe_pod,
    describe_pods,
    describe_registrations,
    encode_node,
)
from kubedevices.node.pods.hold_owner import read_owners
from kubedevices.node.pods.pod import Pod, parse_pod
from kubedevices.node.services.control_client import SERVICE
from kubedevices.values.socket_paths import (
    CONTROL_SOCKET_NAME,
    SHORTER_STATE_DIR,
    check_socket_path,
)
from kubedevices.wire.unix_grpc import GrpcServer

logger = logging.getLogger(__name__)


_QUESTION_LIMIT = 4 * 1024 * 1024
_ANSWERS_LIMIT = 2**30
"""Bytes of answers that wait for their readers: only the user of the node may ask."""

_WATCH_PAUSE = 0.05
"""Seconds. Several changes within this time are sent as one answer, because a person reads them."""


class ControlService:
    """Answers for one device manager."""

    def __init__(self, manager: DeviceManager, state_dir: Path) -> None:
        self._manager = manager
        self._being_admitted: list[Pod] = []
        # In addition to the queue of the manager: here a turn ends after the release of a pod whose
        # options failed.
        self._pod_queue = PodQueue()
        self.socket = check_socket_path(state_dir / CONTROL_SOCKET_NAME, SHORTER_STATE_DIR)
        self._server = GrpcServer(
            json_methods(
                SERVICE,
                {
                    "Devices": _checked(self.devices),
                    "Capacity": _checked(self.capacity),
                    "Registrations": _checked(self.registrations),
                    "Allocate": _checked(self.allocate),
                    "Release": _checked(self.release),
                    "Pods": _checked(self.pods),
                },
                {"WatchDevices": self.watch_devices},
            ),
            name="control.sock",
            max_receive=_QUESTION_LIMIT,
            max_held=_ANSWERS_LIMIT,
        )

    async def start(self) -> None:
        """Listen; raises `CannotAsk`."""
        await self._server.start(self.socket, by_rename=True)

    async def stop(self) -> None:
        """End every connection and remove the socket."""
        await self._server.stop()

    # ------------------------------------------------------------ methods

    async def devices(self, request: dict[str, Any]) -> JsonAnswer:
        """Return every resource with its devices, or one `resource`."""
        return await self._node_now(_text(request, "resource"))

    async def _node_now(self, resource: str) -> bytes:
        return await LoopSlices().run(encode_node(self._manager, resource=resource))

    async def watch_devices(self, request: dict[str, Any]) -> AsyncGenerator[JsonAnswer, None]:
        """Send the answer of `Devices` now and after every change."""
        resource = _text(request, "resource")
        with self._manager.subscribe(backlog=1) as changes:
            yield await self._node_now(resource)
            async for _ in changes:
                await asyncio.sleep(_WATCH_PAUSE)
                # Before the answer is made, so that a change meanwhile causes one more answer.
                changes.clear()
                yield await self._node_now(resource)

    async def capacity(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return capacity and allocatable per resource."""
        capacity = self._manager.get_capacity()
        return {"capacity": dict(capacity.capacity), "allocatable": dict(capacity.allocatable)}

    async def registrations(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the registered plugins and the refused registrations."""
        return describe_registrations(self._manager)

    async def allocate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Admit the pod of a manifest and return the run options of each container.

        If the options of a container fail, a new pod is released: a refused caller must not keep
        devices. Another call for the same pod waits until then.
        """
        pod = parse_pod(request.get("pod"))
        self._being_admitted.append(pod)
        try:
            return await self._pod_queue.take(pod.uid, lambda: self._allocate(pod))
        finally:
            self._being_admitted.remove(pod)

    async def _allocate(self, pod: Pod) -> dict[str, Any]:
        was_admitted = self._manager.get_pod(pod.uid) is not None
        try:
            self._check_resources(pod)
            await self._manager.allocate(pod)
            options = {
                container.name: await self._manager.get_device_run_container_options(
                    pod, container.name
                )
                for container in pod
            }
        except AdmissionRejected as error:
            return {"admitted": False, "reason": error.reason, "message": error.message}
        except BaseException:
            if not was_admitted:
                # Shielded: without this, a second cancellation would leave the devices with a pod
                # that no caller knows.
                await asyncio.shield(self._manager.release(pod.uid))
            raise
        return {"admitted": True} | describe_pod(self._manager, pod, options)

    def _check_resources(self, pod: Pod) -> None:
        """Refuse resources that no plugin offers. In a cluster the scheduler does this.

        The device manager ignores unknown resources, as the device manager of the kubelet does.
        """
        for container in pod:
            for resource, count in container.limits.items():
                if count and not self._manager.inventory.is_known(resource):
                    raise AdmissionRejected(
                        f"OutOf{resource}",
                        f"Node didn't have enough resource: {resource}, requested: {count}, "
                        f"used: 0, capacity: 0{did_you_mean(resource, self._manager.inventory)}",
                    )

    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        """Release a pod, named by uid, name or namespace/name.

        The pod may be in its admission: its plugin may never answer.
        """
        pod = self._find(_text(request, "pod"), besides=self._being_admitted)
        released = await self._manager.release(pod.uid)
        return {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "devices": {name: list(ids) for name, ids in released.items()},
        }

    async def pods(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return every admitted pod with the devices of its containers.

        `left_behind` says why the devices are not in use; it is empty if they may be in use.
        """
        owners = await asyncio.to_thread(read_owners, self._manager.state_dir)
        return describe_pods(self._manager, owners)

    def _find(self, wanted: str, *, besides: Sequence[Pod]) -> Pod:
        if pod := self._manager.get_pod(wanted):
            return pod
        pods = {pod.uid: pod for pod in (*besides, *self._manager.pods())}
        if pod := pods.get(wanted):
            return pod
        namespace, _, name = wanted.rpartition("/")
        found = [
            pod
            for pod in pods.values()
            if name and pod.name == name and namespace in ("", pod.namespace)
        ]
        if not found:
            raise RpcError(StatusCode.NOT_FOUND, f"no pod {wanted!r} holds devices on this node")
        if len(found) > 1:
            choices = ", ".join(
                sorted(pod.uid if namespace else f"{pod.namespace}/{pod.name}" for pod in found)
            )
            raise RpcError(
                StatusCode.INVALID_ARGUMENT, f"several pods have the name {wanted!r}: {choices}"
            )
        return found[0]


def _text(request: dict[str, Any], key: str) -> str:
    value = request.get(key, "")
    if not isinstance(value, str):
        raise RpcError(StatusCode.INVALID_ARGUMENT, f"{key} must be text, not {value!r}")
    return value


Answer = TypeVar("Answer", bound=JsonAnswer)


def _checked(
    method: Callable[[dict[str, Any]], Awaitable[Answer]],
) -> Callable[[dict[str, Any]], Awaitable[Answer]]:
    """Return `method` with a status code for the caller's mistakes and one for refusals."""

    async def answer(request: dict[str, Any]) -> Answer:
        try:
            return await method(request)
        except RpcError:
            raise
        except UsageError as error:
            raise RpcError(StatusCode.INVALID_ARGUMENT, str(error)) from error
        except KubedevicesError as error:
            raise RpcError(StatusCode.FAILED_PRECONDITION, str(error)) from error

    return answer
