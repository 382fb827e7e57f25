"""The other way to register: the kubelet finds the socket in its plugin registry directory.

The plugin serves the Registration service (pluginregistration v1) at its own socket, beside its
DevicePlugin service. It need not notice the restart of a kubelet: the kubelet finds it again.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from kubedevices.errors import RegistrationRefused, RpcError, StatusCode
from kubedevices.values.allocation import API_VERSION, PluginInfo

PLUGIN_TYPE = "DevicePlugin"
_LASTING = ("plugin validation failed", "no handler registered")
"""Parts of refusals after which another attempt would fail, too."""

_log = logging.getLogger(__name__)


class WatchedPlugin:
    """Answers GetInfo; NotifyRegistrationStatus reports the result.

    `endpoint` is the path of the plugin's socket as the kubelet sees it; without `endpoint` the
    kubelet uses the socket that it found. `try_again` is called after a failure that may pass. It
    must create the socket again, because kubelets before 1.36 do not try a socket twice.
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
        """Return the resource, and the socket that serves it."""
        return self._info

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        """Record whether a kubelet accepted the plugin."""
        self.is_registered = registered
        if self.on_change is not None:
            self.on_change()
        if registered:
            _log.info("%s: registered by the kubelet that found it", self._resource)
        elif any(part in error for part in _LASTING):
            if not self._refused.done():
                # `watch` raises the error, not this call: the kubelet waits for its answer.
                self._refused.set_result(RpcError(StatusCode.UNKNOWN, error))
        else:
            _log.warning("%s: the kubelet could not register it: %s", self._resource, error)
            self._try_again()

    async def watch(self) -> NoReturn:
        """Raise `RegistrationRefused` when a kubelet refuses the plugin with a lasting error."""
        raise RegistrationRefused(self._resource, await self._refused)
