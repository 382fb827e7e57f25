"""Register, unusual starts, the plugin watcher."""

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from tests.check import wire_names as wire
from tests.check.good_plugin import GoodPlugin, Refused, identity
from tests.check.listening import accepts
from tests.check.mutants.registry import WATCHED, mutation
from tests.check.unusual_plugin import OneAfterTheOther


@mutation("never-registers", fails=["registration.registers"])
class NeverRegisters(GoodPlugin):
    """Serves, but does not register."""

    async def register(self) -> bool:
        await asyncio.sleep(3600)
        return True


@mutation("registers-first", warns=["registration.serves-first"])
class RegistersFirst(GoodPlugin):
    """Calls Register shortly before its socket exists."""

    async def call_register(self) -> None:
        aside = self.path.with_name("not.yet")
        self.path.rename(aside)
        call = asyncio.create_task(super().call_register())
        await asyncio.sleep(0.1)
        with contextlib.suppress(FileNotFoundError):
            aside.rename(self.path)
            self.mine = identity(self.path)
        await call


@mutation(
    "serves-after-register",
    fails=["registration.serves-first"],
    says={"registration.serves-first": "could not be dialled"},
)
class ServesAfterRegister(GoodPlugin):
    """Listens and calls Register, but serves only after the answer."""

    async def open_server(self) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.path))
            listener.listen()
            self.mine = identity(self.path)
            await self.call_register()
        self.path.unlink()
        await super().open_server()


@mutation("serves-elsewhere", fails=["registration.serves-first"])
class ServesElsewhere(GoodPlugin):
    """Sends the name of a socket on which it does not serve."""

    def register_request(self) -> Any:
        request = super().register_request()
        request.endpoint = "elsewhere.sock"
        return request


@mutation("old-version", fails=["registration.version"])
class OldVersion(GoodPlugin):
    """Registers with version v1alpha, like k8s-dummy-device-plugin."""

    version = "v1alpha"


@mutation("endpoint-with-directory", fails=["registration.endpoint"])
class EndpointWithDirectory(GoodPlugin):
    """Sends the whole path of its socket as endpoint."""

    def register_request(self) -> Any:
        request = super().register_request()
        request.endpoint = str(self.path)
        return request


@mutation("invalid-resource-name", fails=["registration.resource-name"])
class InvalidResourceName(GoodPlugin):
    """Has capital letters in its domain."""

    resource = "Example.com/widget"


@mutation("no-options", fails=["registration.options"])
class NoOptions(GoodPlugin):
    """Has no GetDevicePluginOptions."""

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


@mutation(
    "kubevirt-options-panic",
    fails=["registration.options", "life.dies"],
    says={"registration.options": "its process ended (exit code 2) during"},
    never="cancelled Register",
)
class OptionsPanic(GoodPlugin):
    """Crashes in GetDevicePluginOptions, like kubevirt's kvm and bridge plugins."""

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        os._exit(2)


@mutation("options-differ", warns=["registration.options-equal"])
class OptionsDiffer(GoodPlugin):
    """Sends no options in Register, although it has options."""

    def register_request(self) -> Any:
        request = super().register_request()
        request.ClearField("options")
        return request


@mutation("registers-again-and-again", warns=["registration.once"])
class RegistersAgainAndAgain(GoodPlugin):
    """Registers twice a second, if the kubelet was there at its start."""

    async def keep_serving(self) -> None:
        self.is_late = self.kubelet.exists()
        await super().keep_serving()

    async def until_lost(self) -> None:
        limit = 0.5 if self.is_late else None
        await asyncio.wait({asyncio.create_task(super().until_lost())}, timeout=limit)


@mutation("impatient", fails=["registration.slow-kubelet"])
class Impatient(GoodPlugin):
    """Has a deadline for Register that is too short."""

    register_limit = 0.8


@mutation("intel-exits-without-kubelet", warns=["registration.absent-kubelet"])
class AbsentKubeletExits(GoodPlugin):
    """Exits 1 without a kubelet, like Intel's plugins."""

    async def keep_serving(self) -> None:
        if not self.kubelet.exists():
            raise Refused("there is no kubelet")
        await super().keep_serving()


@mutation("gce-absent-kubelet-never", fails=["registration.absent-kubelet"])
class AbsentKubeletNever(GoodPlugin):
    """If it starts without a kubelet, it runs but never registers, like GCE's plugin."""

    async def keep_serving(self) -> None:
        if not self.kubelet.exists():
            await asyncio.sleep(3600)
        await super().keep_serving()


@mutation(
    "registers-twice-after-a-wait",
    warns=["registration.absent-kubelet"],
    says={"registration.absent-kubelet": "and 2 times within"},
)
class RegistersTwiceAfterAWait(GoodPlugin):
    """Starts before the kubelet, and registers for the dial and for the new file."""

    async def keep_serving(self) -> None:
        self.is_early = not self.kubelet.exists()
        await super().keep_serving()

    async def until_lost(self) -> None:
        if self.is_early:
            self.is_early = False
            await asyncio.sleep(1)
            return
        await super().until_lost()


@mutation("refusal-storm", warns=["registration.refused"])
class RefusalStorm(GoodPlugin):
    """Registers again at once after a refusal."""

    async def register(self) -> bool:
        while True:
            try:
                return await super().register()
            except Refused:
                await asyncio.sleep(0.01)


@mutation("refusal-ignored", warns=["registration.refused"])
class RefusalIgnored(GoodPlugin):
    """Continues to run without registration after a refusal."""

    rest = 3600.0

    async def register(self) -> bool:
        try:
            return await super().register()
        except Refused:
            await asyncio.sleep(self.rest)
            return False


@mutation(
    "nvidia-registers-by-a-timer",
    warns=["registration.refused"],
    says={"registration.refused": "s after that"},
    never="does not register",
)
class RegistersByATimer(RefusalIgnored):
    """Registers again long after a refusal, like NVIDIA's plugin after 30 s."""

    rest = 5.8


@mutation("refusal-exits-0", warns=["registration.refused"])
class RefusalExitsZero(GoodPlugin):
    """Exits with code 0 after a refusal."""

    async def register(self) -> bool:
        try:
            return await super().register()
        except Refused:
            os._exit(0)


@mutation("stale-socket-never", fails=["registration.stale-socket"])
class StaleSocketNever(GoodPlugin):
    """Does not start while its socket path exists."""

    async def open_server(self) -> None:
        if self.mine is None and self.path.exists() and not accepts(self.path):
            raise Refused("address already in use")
        await super().open_server()


@mutation(
    "simple-stale-socket-panic", warns=["registration.stale-socket", "registration.same-second"]
)
class StaleSocketPanic(GoodPlugin):
    """Panics if its socket exists, but removes it, like simple-device-plugin."""

    async def open_server(self) -> None:
        if self.mine is None and self.path.exists() and not accepts(self.path):
            self.path.unlink()
            print("panic: listen unix: address already in use", file=sys.stderr)
            os._exit(2)
        await super().open_server()


@mutation("generic-starts-in-one-second", warns=["registration.same-second"])
class StartsInOneSecond(StaleSocketNever):
    """Has the second of its start in the socket name, and removes no old socket: generic, GCE."""

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self.path = self.path.with_name(f"widget-{int(time.time())}.sock")


@mutation("waits-for-a-stream", warns=["registration.unopened-stream"])
class WaitsForAStream(OneAfterTheOther):
    """Registers its second resource only when the stream of the first is open."""

    async def call_register(self) -> None:
        await GoodPlugin.call_register(self)

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.is_registered.set()
        async for each in super().ListAndWatch(request, context):
            yield each


@mutation(
    "exits-without-a-stream",
    warns=["registration.unopened-stream"],
    says={"registration.unopened-stream": "its process ended (exit code 1)"},
)
class ExitsWithoutAStream(OneAfterTheOther):
    """Exits if one of its streams was not opened after a second, unless the kubelet is slow."""

    async def call_register(self) -> None:
        began = time.monotonic()
        await super().call_register()
        if time.monotonic() - began < 1:
            self.watching = asyncio.create_task(self.watch_streams())

    async def watch_streams(self) -> None:
        first = second = False
        for _ in range(12):
            await asyncio.sleep(0.1)
            first, second = first or bool(self.streams), second or bool(self.second.streams)
        if first != second:
            os._exit(1)


@mutation("two-instances-yield", fails=["registration.two-instances"])
class TwoInstancesYield(GoodPlugin):
    """Exits if another instance runs, and so does the other instance."""

    async def open_server(self) -> None:
        mark = self.socket_dir / "yield"
        if self.mine is None and accepts(self.path):
            mark.touch()
            raise Refused("another instance runs")
        await super().open_server()
        self.marking = asyncio.create_task(self.yield_to(mark))

    async def yield_to(self, mark: Any) -> None:
        while True:
            if mark.exists():
                self.stopping.set()
            await asyncio.sleep(0.02)


@mutation("nvidia-exit-unlinks-successor", warns=["registration.two-instances"])
class ExitUnlinksSuccessor(GoodPlugin):
    """The first instance removes the socket of the second, which does not notice: NVIDIA."""

    async def open_server(self) -> None:
        self.took_over = self.mine is None and accepts(self.path)
        if self.took_over:
            self.path.unlink()
        await super().open_server()

    async def until_lost(self) -> None:
        if self.took_over:
            await asyncio.sleep(3600)
        while True:
            await super().until_lost()
            if identity(self.path) == self.mine or not accepts(self.path):
                return
            self.mine = identity(self.path)  # belongs to the second instance, but counts as ours

    async def close_server(self, grace: float = 0) -> None:
        await super().close_server(grace)
        if self.stopping.is_set():
            self.path.unlink(missing_ok=True)


# ---------------------------------------------------------------- the plugin watcher


@mutation("watcher-wrong-type", fails=["registration.watcher"], options=WATCHED)
class WatcherWrongType(GoodPlugin):
    """Has the plugin type of a CSI driver."""

    async def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        info = await super().GetInfo(request, context)
        info.type = "CSIPlugin"
        return info


@mutation("watcher-without-version", fails=["registration.watcher"], options=WATCHED)
class WatcherWithoutVersion(GoodPlugin):
    """Supports no version that a kubelet supports."""

    version = "1.0.0"


@mutation("watcher-notify-error", fails=["registration.watcher"], options=WATCHED)
class WatcherNotifyError(GoodPlugin):
    """Answers NotifyRegistrationStatus with an error after a success."""

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.plugin_registered:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return await super().NotifyRegistrationStatus(request, context)


@mutation("watcher-refused-crash", warns=["registration.watcher-refused"], options=WATCHED)
class WatcherRefusedCrash(GoodPlugin):
    """Crashes in NotifyRegistrationStatus after a refusal."""

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not request.plugin_registered:
            os._exit(2)
        return wire.RegistrationStatusResponse()
