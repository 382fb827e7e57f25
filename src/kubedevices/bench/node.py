"""The device manager of a bench: honest, until it is told how to answer Register otherwise.

Everything about devices stays as it is; only the moment at which a plugin arrives is open to
faults, and what a start finds in the plugin directory.
"""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Literal

from kubedevices.errors import RegistrationError
from kubedevices.node.arrival.plugin_directory import clean_plugin_directory, make_directory
from kubedevices.node.device_manager import DeviceManager
from kubedevices.probe.arrival import LIKE_A_KUBELET, RegisterBehavior

Wipe = Literal["everything", "sockets", "nothing"]


class Registrations:
    """How plugins are received, and how often each tried; outlives restarts of the node."""

    def __init__(self) -> None:
        self.behavior = LIKE_A_KUBELET
        self.attempts: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    async def behave(self, behavior: RegisterBehavior) -> None:
        """Receive plugins like this from now on; who was kept waiting is received at once."""
        async with self._changed:
            self.behavior = behavior
            self._changed.notify_all()

    async def begin(self, resource: str) -> None:
        """Let a plugin wait as told; raises `RegistrationError` if it is to be refused."""
        behavior = self.behavior
        async with self._changed:
            self.attempts[resource] += 1
            self._changed.notify_all()
        if behavior.refusal:
            raise RegistrationError(behavior.refusal)
        if behavior.delay:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(behavior.delay), self._changed:
                    await self._changed.wait_for(lambda: self.behavior is not behavior)

    async def wait_attempts(self, resource: str, number: int, timeout: float) -> bool:
        """Return whether `resource` called Register so often within `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self.attempts[resource] >= number)
        return self.attempts[resource] >= number


class BenchNode(DeviceManager):
    """A device manager that receives plugins as `registrations` says."""

    registrations: Registrations
    wipe: Wipe = "sockets"

    def prepare_directory(self, kubelet_socket: Path) -> None:
        """Find the plugin directory as the kubelet of some version would leave it."""
        make_directory(kubelet_socket.parent, 0o750)
        if self.wipe == "nothing":
            kubelet_socket.unlink(missing_ok=True)
        else:
            clean_plugin_directory(kubelet_socket.parent, every_file=self.wipe == "everything")

    async def connect_plugin(self, resource: str, socket: Path) -> None:
        """Let it wait, refuse it, or take it in."""
        await self.registrations.begin(resource)
        await super().connect_plugin(resource, socket)
