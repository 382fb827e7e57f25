"""Drivers with a mistake in Prepare while the API server is slow, or in what refusals say."""

from typing import Any

from tests.check.grpc_driver.api import ApiError
from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.service import Devices, Service


@defect("prepare.slow-api")
class SuccessWithoutClaim(Service):
    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        try:
            return super().prepare(claim, context, left)
        except ApiError:
            return []


@defect("prepare.deadline")
class WaitsForEver(Service):
    def read(self, claim: Any, context: Any, left: int) -> Devices:
        found = self.api.claim(claim.namespace, claim.name, 1000, lambda _: None)
        return self.reader.read(found, claim.uid, self.inventory.devices)


@defect("prepare.text")
class GivesNoReason(Service):
    def error_text(self, error: Exception) -> str:
        return "failed"


@defect("prepare.text", "token")
class QuotesItsKubeconfig(Service):
    def error_text(self, error: Exception) -> str:
        return f"{error} (token {self.api.token})"
