"""The client of a node's control service, for the command line and `explain`.

A module of its own, because `control` imports the device manager, which clients do not need.
"""

import errno
import os
import shlex
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

from kubedevices.errors import (
    AdmissionRejected,
    CannotAsk,
    DialError,
    KubedevicesError,
    NodeError,
    NoNode,
    NotPermitted,
    RpcError,
    StatusCode,
    UsageError,
)
from kubedevices.kubelet_api.clients import JsonClient
from kubedevices.node.pods.pod import Pod, format_pod
from kubedevices.values.socket_paths import (
    CONTROL_SOCKET_NAME,
    KUBELET_SOCKET_NAME,
    default_state_dir,
)
from kubedevices.wire.unix_grpc import GrpcChannel

SERVICE = "kubedevices.control.v1.Control"


_ANSWER_LIMIT = 256 * 1024 * 1024


def node_options(socket_dir: Path, state_dir: Path) -> str:
    """Return the options that name a node on the command line, quoted for a shell."""
    words = ["--socket-dir", str(socket_dir)]
    if state_dir != default_state_dir(socket_dir):
        words += ["--state-dir", str(state_dir)]
    return shlex.join(words)


class ControlClient:
    """Calls a running node. Each error says what to do next."""

    def __init__(self, channel: GrpcChannel) -> None:
        self._channel = channel
        self._client = JsonClient(channel, SERVICE)

    @classmethod
    async def connect(cls, socket_dir: Path, state_dir: Path) -> Self:
        """Connect to the node of `socket_dir`; raises `CannotAsk` if no node runs."""
        socket = state_dir / CONTROL_SOCKET_NAME
        try:
            channel = await GrpcChannel.dial(socket, timeout=10, max_receive=_ANSWER_LIMIT)
            try:
                return cls(channel)
            except DialError as error:
                await channel.close()
                raise CannotAsk(str(error)) from error
        except DialError as error:
            if _is_forbidden(socket):
                raise NotPermitted(f"use {socket}", "ask as its owner") from error
            if error.errno == errno.ETIMEDOUT:
                raise CannotAsk(
                    f"the node of {socket_dir} does not answer: {error.reason}"
                ) from error
            is_default = state_dir == default_state_dir(socket_dir)
            raise NoNode(
                str(socket_dir),
                node_options(socket_dir, state_dir),
                may_have_state=is_default and _is_there(socket_dir / KUBELET_SOCKET_NAME),
            ) from error

    async def __aenter__(self) -> Self:
        """Use as a context manager, so that the connection is closed."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def devices(self, resource: str = "") -> dict[str, Any]:
        """Return every resource with its devices, or one resource."""
        return await self._ask("Devices", {"resource": resource})

    async def watch_devices(self, resource: str = "") -> AsyncGenerator[dict[str, Any], None]:
        """Yield the answer of `devices` now and after every change; raises if the node stops."""
        try:
            async with aclosing(
                self._client.stream("WatchDevices", {"resource": resource})
            ) as answers:
                async for answer in answers:
                    yield answer
        except RpcError as error:
            raise _as_asked(error) from error
        raise CannotAsk("the node stopped")

    async def capacity(self) -> dict[str, Any]:
        """Return capacity and allocatable per resource."""
        return await self._ask("Capacity", {})

    async def registrations(self) -> dict[str, Any]:
        """Return the socket of each resource, the refused registrations and the topology policy."""
        return await self._ask("Registrations", {})

    async def allocate(self, pod: Pod) -> dict[str, Any]:
        """Admit `pod`; return the devices of its containers; raises `AdmissionRejected`."""
        answer = await self._ask("Allocate", {"pod": format_pod(pod)}, timeout=600)
        if not answer.pop("admitted", False):
            raise AdmissionRejected(str(answer.get("reason")), str(answer.get("message")))
        return answer

    async def release(self, pod: str) -> dict[str, Any]:
        """Release a pod, named by uid, name or namespace/name."""
        return await self._ask("Release", {"pod": pod})

    async def pods(self) -> dict[str, Any]:
        """Return every admitted pod."""
        return await self._ask("Pods", {})

    async def _ask(
        self, method: str, request: dict[str, Any], *, timeout: float = 60
    ) -> dict[str, Any]:
        try:
            return await self._client.call(method, request, timeout=timeout)
        except RpcError as error:
            raise _as_asked(error) from error


def _as_asked(error: RpcError) -> KubedevicesError:
    """Return `error` as an error for the user."""
    if error.code is StatusCode.INVALID_ARGUMENT:
        return UsageError(error.message)
    if error.code in (StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION):
        return NodeError(error.message)
    if error.code is StatusCode.DEADLINE_EXCEEDED:
        return CannotAsk("the node did not answer in time")
    if error.code is StatusCode.UNAVAILABLE:
        return CannotAsk("the node stopped")
    return CannotAsk(f"the node could not answer: {error.message}")


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def _is_forbidden(socket: Path) -> bool:
    try:
        socket.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(socket, os.W_OK)
