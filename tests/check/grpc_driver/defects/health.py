"""Drivers with a mistake in the health of their devices."""

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
