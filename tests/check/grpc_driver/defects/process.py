"""Drivers with a mistake in the life of their process, or in what they do at the API server."""

import os
import threading
from typing import Any

from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.driver import Driver
from tests.check.grpc_driver.publisher import Publisher
from tests.check.grpc_driver.registration import Registration
from tests.check.grpc_driver.service import Service


@defect("process.stderr-secrets")
class PrintsItsKubeconfig(Driver):
    def build(self) -> None:
        self.log(self.options.kubeconfig.read_text())
        super().build()


@defect("rights.missing")
class ListsPods(Driver):
    def build(self) -> None:
        super().build()
        self.api.call("GET", "/api/v1/pods")


@defect("process.dies")
class EndsWhenNobodyCalls(Publisher):
    patience = 4.0  # seconds

    def registered(self) -> None:
        threading.Timer(self.patience, os._exit, (1,)).start()


@defect("process.dies", "bad-claim")
class EndsAtABadClaim(Service):
    def error_text(self, error: Exception) -> str:
        os._exit(2)


@defect("process.exit-code")
class FailsWithSuccess(Driver):
    def cannot_serve(self, error: Exception) -> int:
        super().cannot_serve(error)
        return 0


@defect("process.open-files")
class KeepsAFileForEachKubelet(Registration):
    def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        os.open(os.devnull, os.O_RDONLY)
        return super().GetInfo(request, context)
