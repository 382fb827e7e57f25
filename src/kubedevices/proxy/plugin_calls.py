"""The calls of a plugin behind the proxy as abilities of a scanner.

The plugin's answers and errors are passed on unchanged. Each call has a deadline of the proxy,
because a kubelet sets none for Allocate and GetPreferredAllocation and admits one pod after the
other: a plugin that hangs would stop its node.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from kubedevices.errors import (
    PluginAway,
    PluginLate,
    RpcError,
    StatusCode,
    WireError,
)
from kubedevices.node.arrival.endpoint import Endpoint
from kubedevices.plugin.capabilities import (
    Allocator,
    ContainerPreStarter,
    PreferredAllocator,
    StandIn,
)
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)

Answer = TypeVar("Answer")

_LATE_SHARE = 0.98
"""DEADLINE_EXCEEDED after this share of a limit counts as late.

The plugin knows the limit and may itself answer DEADLINE_EXCEEDED shortly before it.
"""

_log = logging.getLogger(__name__)


class CallLimits(NamedTuple):
    """How many seconds the plugin may take for one answer."""

    allocate: float = 30.0
    preferred: float = 5.0
    """After this time the proxy answers without a preference."""

    pre_start: float = 25.0
    """Less than the kubelet's own limit of 30."""


class CallsOnly(StandIn):
    """Offers Allocate, and the other calls that `options` names; ignores all other hooks."""

    def __init__(self, name: str, options: PluginOptions) -> None:
        self.stands_for, self.unknown_options = name, options.unknown
        found: set[type] = {Allocator}
        if options.get_preferred_allocation_available:
            found.add(PreferredAllocator)
        if options.pre_start_required:
            found.add(ContainerPreStarter)
        self.offered = frozenset(found)

    async def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Do nothing: the API has no such call."""

    async def on_type_added(self, device_type: str) -> None:
        """Do nothing: the API has no such call."""

    async def on_type_removed(self, device_type: str) -> None:
        """Do nothing: the API has no such call."""


class PluginCalls(CallsOnly):
    """The calls of the plugin of `resource`. `current` returns the instance that answers now.

    Each call raises `PluginAway`, `PluginLate`, and the plugin's own errors.
    """

    def __init__(
        self,
        resource: str,
        options: PluginOptions,
        current: Callable[[], Endpoint | None],
        limits: CallLimits,
    ) -> None:
        super().__init__(resource, options)
        self.resource = resource
        self._current, self._limits = current, limits

    async def allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Return the plugin's answer."""
        return await self._ask(
            "Allocate",
            lambda plugin: plugin.relay_allocate(request),
            self._limits.allocate,
            "--allocate-timeout",
        )

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Return the plugin's answer, or no preference if it is late."""
        try:
            return await self._ask(
                "GetPreferredAllocation",
                lambda plugin: plugin.relay_preferred(request),
                self._limits.preferred,
                "--preferred-timeout",
            )
        except PluginLate as error:
            _log.warning("%s; answering without preference", error.message)
            return PreferredAllocationResponse(tuple(() for _ in request.containers))

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Return the plugin's answer."""
        return await self._ask(
            "PreStartContainer",
            lambda plugin: plugin.relay_pre_start(request),
            self._limits.pre_start,
            "--pre-start-timeout",
        )

    async def _ask(
        self,
        call: str,
        ask: Callable[[Endpoint], Awaitable[Answer]],
        seconds: float,
        option: str,
    ) -> Answer:
        plugin = self._current()
        if plugin is None:
            raise PluginAway(self.resource, call)
        clock = asyncio.get_running_loop().time
        until = clock() + seconds * _LATE_SHARE
        try:
            # The endpoint's own deadline is `seconds`. It is not stopped: it is the current one.
            return await ask(plugin)
        except WireError as error:
            code = error.code if isinstance(error, RpcError) else None
            if code is StatusCode.DEADLINE_EXCEEDED and clock() >= until:
                socket = plugin.socket.name
                raise PluginLate(self.resource, call, socket, seconds, option) from None
            # On an open connection the error is the plugin's answer. Without a connection the
            # plugin is away, and `hold` above this may wait for it and ask again.
            if plugin.is_connected:
                raise
            raise PluginAway(self.resource, call) from error
