"""Drivers with a mistake in their sockets."""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.check.grpc_driver import messages
from tests.check.grpc_driver.api import SLICES
from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.driver import CannotServe, Driver
from tests.check.grpc_driver.health import Health
from tests.check.grpc_driver.registration import VERSIONS, Registration
from tests.check.listening import accepts


@defect("register.info")
class NamesAnUnknownVersion(Registration):
    versions = (*VERSIONS, "v9.DRAPlugin")


@defect("register.status-refused")
class IgnoresARefusal(Registration):
    def refused(self, text: str) -> None:
        pass


@defect("register.kubelet-absent")
class GivesUpWithoutKubelet(Driver):
    patience = 4.0  # seconds; the published driver waited 30

    def open(self) -> None:
        super().open()
        self.opened_at = time.monotonic()

    def look(self) -> None:
        if not self.registration.was_asked and time.monotonic() > self.opened_at + self.patience:
            raise CannotServe("no kubelet has registered the driver")
        super().look()


@defect("register.kubelet-restart")
class EndsWithItsKubelet(Health):
    def watch(self, response: Any, _request: Any, context: Any) -> Iterator[Any]:
        yield from super().watch(response, _request, context)
        if not self.is_stopped:
            os._exit(1)


@defect("register.socket-wiped")
class NeverLooksAtItsSockets(Driver):
    def look(self) -> None:
        pass


@defect("register.stale-socket")
class EndsAtAnOldSocket(Driver):
    def remove_stale_sockets(self) -> None:
        for each in self.registry.glob("*.sock"):
            if not accepts(each):
                raise CannotServe(f"address already in use: {each}")


@defect("register.two-instances")
class WaitsForItsPredecessor(Driver):
    def open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.lock = (self.directory / "instance.lock").open("a")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        super().open()


@defect("register.stop")
class DeletesItsSlices(Driver):
    def stop(self) -> int:
        code = super().stop()
        for each in self.api.slices()["items"]:
            self.api.call("DELETE", f"{SLICES}/{each['metadata']['name']}")
        return code


@defect("register.long-path")
class EndsWithoutAReason(Driver):
    def cannot_serve(self, error: Exception) -> int:
        self.log("start failed")
        return 1


@defect("register.idle")
class EndsWithoutCalls(Registration):
    patience = 6.0  # seconds; a server of gRPC closes idle connections after 30 minutes

    def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        threading.Timer(self.patience, os._exit, (0,)).start()
        return super().GetInfo(request, context)


@defect("register.info", "too-early")
class AnnouncesBeforeItServes(Driver):
    def open(self) -> None:
        self._serve(self.announced, messages.registration_handlers(self.registration))
        time.sleep(1)
        for server, _ in self.servers.values():
            server.stop(None)
        self.announced.unlink(missing_ok=True)
        super().open()


@defect("register.two-instances", "removes-all")
class RemovesTheSocketsOfAll(Driver):
    def look(self) -> None:
        pass

    def stop(self) -> int:
        for each in self.registry.glob("*.sock"):
            each.unlink(missing_ok=True)
        return super().stop()


@defect("register.stop", "exit-code")
class EndsWithAnError(Driver):
    def stop(self) -> int:
        super().stop()
        return 3


@defect("register.stop", "socket-stays")
class LeavesItsSocket(Driver):
    def stop(self) -> int:
        self.log("stopped")
        return 0


@defect("register.stop", "cuts-a-call")
class CutsItsCalls(Driver):
    def close(self, grace: float) -> None:
        super().close(0)


@defect("register.stop", "service-first")
class EndsItsServiceFirst(Driver):
    def close(self, grace: float) -> None:
        self.health.stop()
        for path, (server, _) in self.servers.items():
            path.unlink(missing_ok=True)
            server.stop(grace).wait(grace + 1)
        self.servers.clear()


@defect("register.status-refused", "exit-0")
class EndsAfterARefusal(Registration):
    def refused(self, text: str) -> None:
        super().refused(text)
        os._exit(0)


@defect("register.two-instances", "wipes")
class WipesItsPredecessor(Driver):
    def open(self) -> None:
        for each in self.options.cdi_dir.glob("*.json"):
            each.unlink()
        super().open()
