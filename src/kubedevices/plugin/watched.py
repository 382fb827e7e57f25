"""A plugin that the kubelet finds: its socket in the plugin registry directory says what it is.

The other way to register: nothing has to be noticed when a kubelet restarts, because it comes by
itself. Served on the plugin's own socket, beside its DevicePlugin service.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from kubedevices.allocation import API_VERSION, PluginInfo
from kubedevices.errors import RegistrationRefused, RpcError, StatusCode

PLUGIN_TYPE = "DevicePlugin"
_LASTING = ("plugin validation failed", "no handler registered")
"""Parts of refusals that trying again cannot mend."""

_log = logging.getLogger(__name__)


class WatchedPlugin:
    """Answers GetInfo and learns from NotifyRegistrationStatus how it went.

    `endpoint` is the path of the plugin's socket as the kubelet sees it; without it the kubelet
    takes the socket that it found. `try_again` is called when a registration failed that may
    succeed the next time: it has to make the socket appear anew, because kubelets before 1.36 do
    not try a socket twice.
    """

    def __init__(
        self, resource: str, try_again: Callable[[], None], endpoint: Path | None = None
    ) -> None:
        self._info = PluginInfo(PLUGIN_TYPE, resource, str(endpoint or ""), (API_VERSION,))
        self._resource, self._try_again = resource, try_again
        self._refused: asyncio.Future[RpcError] = asyncio.get_running_loop().create_future()
        self.is_registered = False
        self.on_change: Callable[[], None] | None = None

    async def get_info(self) -> PluginInfo:
        """Say what is served and where."""
        return self._info

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        """Learn whether a kubelet accepted the plugin."""
        self.is_registered = registered
        if self.on_change is not None:
            self.on_change()
        if registered:
            _log.info("%s: registered by the kubelet that found it", self._resource)
        elif any(part in error for part in _LASTING):
            if not self._refused.done():
                # Raised by `watch`, not here: the kubelet waits for the answer to this call.
                self._refused.set_result(RpcError(StatusCode.UNKNOWN, error))
        else:
            _log.warning("%s: the kubelet could not register it: %s", self._resource, error)
            self._try_again()

    async def watch(self) -> NoReturn:
        """Raise `RegistrationRefused` once a kubelet refuses the plugin for good."""
        raise RegistrationRefused(self._resource, await self._refused)
