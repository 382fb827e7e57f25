"""The health of devices, told wrong."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from kubedevices.dra.service import ClaimService
from kubedevices.kubelet_api.dra import DeviceHealth, HealthStatus
from tests.check.defects import defect, patch
from tests.check.defects.registration import informing


@defect("health.served")
def _no_health() -> None:
    informing(supported_versions=("v1.DRAPlugin",))


@defect("health.first")
def _only_one_device() -> None:
    _health(lambda devices: devices[:1])


@defect("health.stays-open")
def _ends_its_stream() -> None:
    watch = ClaimService.watch_health

    async def once(self: ClaimService) -> AsyncIterator[list[DeviceHealth]]:
        async with contextlib.aclosing(watch(self)) as lists:  # type: ignore[type-var]
            async for each in lists:
                yield each
                await asyncio.sleep(0.3)
                return

    patch(ClaimService, watch_health=once)


def _health(change: Callable[[list[DeviceHealth]], list[DeviceHealth]]) -> None:
    watch = ClaimService.watch_health

    async def changed(self: ClaimService) -> AsyncIterator[list[DeviceHealth]]:
        async for each in watch(self):
            yield change(each)

    patch(ClaimService, watch_health=changed)


@defect("health.refresh")
def _sends_changes_only() -> None:
    watch = ClaimService.watch_health

    async def once(self: ClaimService) -> AsyncIterator[list[DeviceHealth]]:
        async with contextlib.aclosing(watch(self)) as lists:  # type: ignore[type-var]
            async for each in lists:
                yield [device._replace(timeout=3) for device in each]
                await asyncio.Event().wait()

    patch(ClaimService, watch_health=once)


@defect("health.two-watchers")
def _serves_one_stream() -> None:
    watch = ClaimService.watch_health
    streams: list[object] = []

    async def first_only(self: ClaimService) -> AsyncIterator[list[DeviceHealth]]:
        streams.append(self)
        if len(streams) > 1:
            await asyncio.Event().wait()
        async for each in watch(self):
            yield each

    patch(ClaimService, watch_health=first_only)


@defect("health.recovers")
def _never_healthy_again() -> None:
    bad: dict[str, DeviceHealth] = {}

    def change(devices: list[DeviceHealth]) -> list[DeviceHealth]:
        bad.update({d.device: d for d in devices if d.health is HealthStatus.UNHEALTHY})
        return [bad.get(each.device, each) for each in devices]

    _health(change)


@defect("health.message")
def _says_nothing() -> None:
    _health(lambda devices: [each._replace(message="") for each in devices])
