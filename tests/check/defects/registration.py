"""How a driver registers and stops, done wrong."""

import asyncio
import os
import sys
from typing import Any

from kubedevices.dra import driver as driver_module
from kubedevices.dra.publisher import Publisher
from kubedevices.dra.sockets import _RegistrationService
from kubedevices.values.allocation import PluginInfo
from tests.check.defects import defect, kubelet_dir, nothing, patch


def informing(**fields: Any) -> None:
    """Let GetInfo answer with other fields."""

    async def get_info(self: _RegistrationService) -> PluginInfo:
        return self._info._replace(**fields)

    patch(_RegistrationService, get_info=get_info)


@defect("register.info")
def _unknown_version() -> None:
    informing(supported_versions=("v1.DRAPlugin", "v9.DRAPlugin"))


@defect("register.status-refused")
def _refusal_unheard() -> None:
    patch(_RegistrationService, notify_registration_status=nothing)


@defect("register.stale-socket")
def _ends_at_an_old_socket() -> None:
    if [*kubelet_dir().glob("plugins_registry/*.sock")]:
        sys.exit("address already in use")


@defect("register.kubelet-restart")
@defect("slices.again")
def _publishes_once() -> None:
    async def published_once(self: Publisher, _version: str, _timeout: float | None) -> bool:
        return await asyncio.Event().wait() and False

    patch(Publisher, _wait_for_change=published_once)


@defect("register.stop")
def _ends_with_an_error() -> None:
    run = driver_module.DraDriver.run

    async def failing(self: Any) -> None:
        try:
            await run(self)
        finally:
            os._exit(3)

    patch(driver_module.DraDriver, run=failing)


@defect("register.idle")
def _ends_without_calls() -> None:
    get_info = _RegistrationService.get_info

    async def limited(self: _RegistrationService) -> PluginInfo:
        asyncio.get_running_loop().call_later(6, os._exit, 0)
        return await get_info(self)

    patch(_RegistrationService, get_info=limited)
