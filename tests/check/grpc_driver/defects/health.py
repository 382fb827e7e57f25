"""Drivers with a mistake in the health of their devices."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.health import Health
from tests.check.grpc_driver.inventory import Device
from tests.check.grpc_driver.registration import VERSIONS, Registration


@defect("health.served")
class NamesNoHealthService(Registration):
    versions = tuple(each for each in VERSIONS if "Health" not in each)


@defect("health.first")
class ForgetsDevices(Health):
    def complete(self, response: Any, devices: dict[str, Device]) -> Any:
        return super().complete(response, dict([*devices.items()][:1]))


@defect("health.stays-open")
class EndsItsStream(Health):
    def watch(self, response: Any, _request: Any, context: Any) -> Iterator[Any]:
        yield self.complete(response, self.inventory.devices)
        time.sleep(0.3)


@defect("health.refresh")
class SendsChangesOnly(Health):
    refresh = None

    def complete(self, response: Any, devices: dict[str, Device]) -> Any:
        made = super().complete(response, devices)
        for each in made.devices:
            each.health_check_timeout_seconds = 3
        return made


@defect("health.two-watchers")
class ServesOneStream(Health):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.turn = threading.Semaphore()

    def watch(self, response: Any, _request: Any, context: Any) -> Iterator[Any]:
        while context.is_active() and not self.turn.acquire(timeout=0.1):
            pass
        if context.is_active():
            try:
                yield from super().watch(response, _request, context)
            finally:
                self.turn.release()


@defect("health.recovers")
class StaysUnhealthy(Health):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.bad: set[str] = set()

    def complete(self, response: Any, devices: dict[str, Device]) -> Any:
        self.bad |= {name for name, each in devices.items() if each.is_broken}
        known = {n: each._replace(is_broken=n in self.bad) for n, each in devices.items()}
        return super().complete(response, known)


@defect("health.message")
class SaysOnlyUnhealthy(Health):
    def complete(self, response: Any, devices: dict[str, Device]) -> Any:
        made = super().complete(response, devices)
        for each in made.devices:
            each.message = ""
        return made


@defect("health.first", "twice")
class NamesADeviceTwice(Health):
    def complete(self, response: Any, devices: dict[str, Device]) -> Any:
        made = super().complete(response, devices)
        made.devices.add().CopyFrom(made.devices[0])
        return made
