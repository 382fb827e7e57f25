"""Kubelet restarts, leaks, SIGTERM."""

import asyncio
import os
import sys
import threading
import time
from typing import Any

import grpc

from tests.check.good_plugin import POLL, GoodPlugin, Refused, identity
from tests.check.listening import accepts
from tests.check.mutants.registry import mutation

LONG = 0.8
"""Less than half of the seconds without a kubelet in `kubelet-away`; other restarts are short."""


class WithMark(GoodPlugin):
    """Stores a file beside its socket."""

    async def open_server(self) -> None:
        await super().open_server()
        self.mark = self.socket_dir / "widget.state"
        self.mark.touch()


@mutation("needs-its-own-file", warns=["life.all-wiped"])
class NeedsItsOwnFile(WithMark):
    """Exits when its own file is removed together with the sockets."""

    async def until_lost(self) -> None:
        await super().until_lost()
        if not self.mark.exists():
            raise Refused(f"{self.mark.name} is gone")


@mutation("stopped-by-its-own-file", fails=["life.sockets-wiped"])
class StoppedByItsOwnFile(WithMark):
    """Believes that its own file belongs to another instance, if the kubelet restarts quickly."""

    async def until_lost(self) -> None:
        served = time.monotonic()
        while not self.kubelet.exists() or (
            identity(self.path) == self.mine and identity(self.kubelet) == self.registered_at
        ):
            if self.streams:
                served = time.monotonic()
            elif self.kubelet.exists() and time.monotonic() - served > LONG:
                return
            await asyncio.sleep(POLL)
        lost = identity(self.path) is None and identity(self.kubelet) != self.registered_at
        if lost and self.mark.exists() and time.monotonic() - served < LONG:
            await asyncio.sleep(3600)


@mutation("generic-only-own-socket-watched", warns=["life.kubelet-socket-replaced"])
class OnlyOwnSocketWatched(GoodPlugin):
    """Watches only its own socket: generic, Intel, SR-IOV, simple."""

    async def until_lost(self) -> None:
        while identity(self.path) == self.mine:
            if identity(self.kubelet) != self.registered_at:
                await asyncio.sleep(POLL)
                continue
            await asyncio.wait({asyncio.create_task(super().until_lost())}, timeout=0.1)
            if not self.streams and identity(self.kubelet) == self.registered_at:
                await asyncio.sleep(0.3)
                if not self.streams and identity(self.kubelet) == self.registered_at:
                    return


@mutation("stream-end-ignored", warns=["life.stream-cancelled"])
class StreamEndIgnored(GoodPlugin):
    """Does not notice that its stream has ended, like all plugins."""

    async def until_lost(self) -> None:
        self.streams.add(self)
        await super().until_lost()


@mutation("nvidia-own-socket-not-watched", warns=["life.own-socket-removed"])
class OwnSocketNotWatched(GoodPlugin):
    """Watches only kubelet.sock: NVIDIA, smarter, ROCm."""

    async def until_lost(self) -> None:
        before = self.mine
        while True:
            await super().until_lost()
            lost = identity(self.path)
            if lost == before or identity(self.kubelet) != self.registered_at:
                return
            self.mine = lost


@mutation("retries-without-socket", fails=["life.wiped-before-register"])
class RetriesWithoutSocket(GoodPlugin):
    """Repeats a failed Register, but does not check whether its socket still exists."""

    async def call_register(self) -> None:
        while True:
            try:
                return await super().call_register()
            except grpc.aio.AioRpcError as error:
                if "dial" not in error.details():
                    raise
                await asyncio.sleep(0.1)


@mutation("start-race-exits", warns=["life.wiped-before-register"])
class StartRaceExits(GoodPlugin):
    """Exits if the kubelet could not dial it, so a supervisor must restart it."""

    async def call_register(self) -> None:
        try:
            await super().call_register()
        except grpc.aio.AioRpcError as error:
            if "dial" in error.details():
                raise Refused(error.details()) from error
            raise


@mutation("gives-up-waiting", warns=["life.kubelet-away", "life.wiped-while-away"])
class GivesUpWaiting(GoodPlugin):
    """Exits when no kubelet returns: GCE, Intel, ROCm, SR-IOV."""

    was_registered = False

    async def register(self) -> bool:
        registering = asyncio.create_task(super().register())
        began = time.monotonic()
        while not (await asyncio.wait({registering}, timeout=0.1))[0]:
            if self.was_registered and time.monotonic() - began > 0.6:
                raise Refused("the kubelet is gone")
        self.was_registered = True
        return registering.result()


@mutation(
    "never-after-a-long-absence", fails=["life.kubelet-away"], warns=["life.wiped-while-away"]
)
class NeverAfterALongAbsence(GoodPlugin):
    """Stops to wait for a kubelet after some time, but continues to run."""

    async def register(self) -> bool:
        began = time.monotonic()
        while not self.kubelet.exists() or not accepts(self.kubelet):
            if self.registered_at and time.monotonic() - began > 0.6:
                await asyncio.sleep(3600)
            await asyncio.sleep(POLL)
        return await super().register()


@mutation("gives-up-a-dead-kubelet", fails=["life.kubelet-away"])
class GivesUpADeadKubelet(GoodPlugin):
    """Gives up if an old kubelet.sock refuses connections for long, and waits for a new one."""

    async def register(self) -> bool:
        refused_since = time.monotonic()
        while self.registered_at and not accepts(self.kubelet):
            if not self.kubelet.exists():
                refused_since = time.monotonic()
            elif time.monotonic() - refused_since > 1.1:
                await asyncio.sleep(3600)
            await asyncio.sleep(POLL)
        return await super().register()


@mutation("intel-exits-when-wiped", warns=["life.wiped-while-away"])
class ExitsWhenWiped(GoodPlugin):
    """Exits if its socket is removed and no kubelet follows: GCE, Intel, ROCm, SR-IOV."""

    async def open_server(self) -> None:
        if self.registered_at and not self.kubelet.exists():
            await asyncio.sleep(0.4)
            if not self.kubelet.exists():
                raise Refused("the kubelet is gone")
        await super().open_server()


class AfterARefusedDial(GoodPlugin):
    """Does something if a new kubelet.sock does not accept connections yet."""

    answered_by: object = None

    async def call_register(self) -> None:
        try:
            await super().call_register()
        except grpc.aio.AioRpcError as error:
            is_new = self.registered_at not in (None, self.answered_by)
            if is_new and "refused" in error.details().lower():
                await self.after_refusal(error.details())
            raise
        self.answered_by = self.registered_at

    async def after_refusal(self, details: str) -> None:
        raise NotImplementedError


@mutation("never-after-a-refused-dial", fails=["life.refused-dial"])
class NeverAfterARefusedDial(AfterARefusedDial):
    """Waits for the next kubelet.sock."""

    async def after_refusal(self, details: str) -> None:
        await asyncio.sleep(3600)


@mutation(
    "gce-dies-of-a-refused-dial",
    fails=["life.refused-dial", "life.dies"],
    says={"life.refused-dial": "panic: cannot register"},
)
class DiesOfARefusedDial(AfterARefusedDial):
    """Crashes: GCE."""

    async def after_refusal(self, details: str) -> None:
        print(f"panic: cannot register: {details}", file=sys.stderr)
        os._exit(2)


@mutation("generic-change-after-restart-lost", fails=["life.lost-updates"])
class ChangeAfterRestartLost(GoodPlugin):
    """The loop of a dead stream takes the first change after a restart: generic."""

    times = 0
    pending = False

    async def call_register(self) -> None:
        await super().call_register()
        self.times += 1
        self.pending = self.times > 1

    async def announce(self) -> None:
        if self.pending and self.times > 3:
            self.pending = False
            return
        await super().announce()


@mutation("leaks-descriptors", warns=["life.descriptors"])
class LeaksDescriptors(GoodPlugin):
    """Opens two files per registration."""

    async def call_register(self) -> None:
        os.open("/dev/null", os.O_RDONLY)
        os.open("/dev/null", os.O_RDONLY)
        await super().call_register()


@mutation("sriov-leaks-threads", warns=["life.threads"])
class LeaksThreads(GoodPlugin):
    """Starts a thread per registration, like SR-IOV's probe."""

    async def call_register(self) -> None:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        await super().call_register()


@mutation("leaks-memory", warns=["life.memory"])
class LeaksMemory(GoodPlugin):
    """Keeps four megabytes per registration."""

    kept: list[bytes] = []  # noqa: RUF012  shared on purpose

    async def call_register(self) -> None:
        self.kept.append(os.urandom(4 << 20))
        await super().call_register()


# ---------------------------------------------------------------- SIGTERM


class OtherStop(GoodPlugin):
    """Base of plugins with another SIGTERM handler."""

    last_allocate = 0.0
    was_registered = False

    async def call_register(self) -> None:
        await super().call_register()
        self.was_registered = True

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.last_allocate = time.monotonic()
        return await super().Allocate(request, context)

    async def close_server(self, grace: float = 0) -> None:
        if self.stopping.is_set():
            busy = time.monotonic() - self.last_allocate < 0.1
            await self.on_stop(busy=busy, waiting=not self.was_registered)
        await super().close_server(grace)

    async def on_stop(self, *, busy: bool, waiting: bool) -> None:
        raise NotImplementedError


@mutation("stops-slowly", warns=["life.stop-time"])
class StopsSlowly(OtherStop):
    """Waits before it exits, if it is idle."""

    async def on_stop(self, *, busy: bool, waiting: bool) -> None:
        if not busy and not waiting:
            await asyncio.sleep(10)


@mutation("stops-with-143", warns=["life.stop-code"])
class StopsWith143(OtherStop):
    """Exits with the code of a signal."""

    async def on_stop(self, *, busy: bool, waiting: bool) -> None:
        self.path.unlink(missing_ok=True)
        os._exit(143)


@mutation("rocm-leaves-socket", warns=["life.stop-socket"])
class LeavesSocket(OtherStop):
    """Exits and leaves its socket, like ROCm."""

    async def on_stop(self, *, busy: bool, waiting: bool) -> None:
        os._exit(0)


@mutation("gce-no-sigterm-handler", warns=["life.stop-code", "life.stop-socket"])
class NoSigtermHandler(OtherStop):
    """Has no SIGTERM handler, so SIGTERM kills it, like the plugins of GCE and Intel."""

    async def on_stop(self, *, busy: bool, waiting: bool) -> None:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(10)


@mutation("stop-in-allocate-panics", warns=["life.stop-in-allocate"])
class StopInAllocatePanics(OtherStop):
    """Panics on SIGTERM while calls run."""

    async def on_stop(self, *, busy: bool, waiting: bool) -> None:
        if busy:
            print("panic: send on closed channel", file=sys.stderr)
            os._exit(2)


@mutation(
    "race-in-allocate",
    fails=["allocate.concurrent", "life.dies"],
    says={"life.stop-in-allocate": "at the same time, without a stop"},
)
class RaceInAllocate(GoodPlugin):
    """Panics after some calls of Allocate at the same time, stopped or not."""

    running = 0
    raced = 0

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.running += 1
        try:
            self.raced += self.running > 1
            if self.raced > 2:
                print("panic: concurrent map writes", file=sys.stderr)
                os._exit(2)
            await asyncio.sleep(0.005)
            return await super().Allocate(request, context)
        finally:
            self.running -= 1


@mutation("deaf-while-waiting", warns=["life.stop-while-waiting"])
class DeafWhileWaiting(OtherStop):
    """Ignores SIGTERM until it has registered."""

    async def on_stop(self, *, busy: bool, waiting: bool) -> None:
        if waiting:
            await asyncio.sleep(10)
