"""Defects of widely used plugins that break more than one rule.

Defects that break one rule are in the files of their themes, with the plugin's name.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from tests.check import wire_names as wire
from tests.check.good_plugin import Device, GoodPlugin, identity
from tests.check.listening import accepts
from tests.check.mutants.allocate import (
    DashInEnvName,
    EmptyIdsAccepted,
    OneSpecPerReplica,
    UnknownIdAccepted,
)
from tests.check.mutants.life import (
    GivesUpWaiting,
    NoSigtermHandler,
    OnlyOwnSocketWatched,
)
from tests.check.mutants.preferred import EmptyPreference
from tests.check.mutants.registration import AbsentKubeletNever, StaleSocketPanic
from tests.check.mutants.registry import PLAIN, mutation

GONE = ["life.sockets-wiped", "life.kubelet-away"]
EXITS = [*GONE, "life.refused-dial", "life.wiped-while-away"]
OFTEN_GONE = ["life.all-wiped", "life.kubelet-socket-replaced", "life.stream-cancelled"]
"""Harm that only some kubelets do, or none: a warning."""


@mutation("intel-empty-list-first", warns=["list.complete"])
class EmptyListFirst(GoodPlugin):
    """Begins every stream with an empty list."""

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield wire.ListAndWatchResponse()
        await asyncio.sleep(0.01)
        async for each in super().ListAndWatch(request, context):
            yield each


@mutation("intel-notify-twice-forgets", warns=["list.steady"])
class NotifyTwiceForgets(GoodPlugin):
    """Loses its devices when two scans find the same devices, until the next change."""

    scans = 0

    def scan(self) -> dict[str, Device]:
        self.scans += 1
        found = super().scan()
        if self.scans % 10 < 2:  # the unhealthy ones, so that everything else goes on
            return {name: each for name, each in found.items() if each.health == "Healthy"}
        return found


@mutation("intel-dead-stream-takes-update", fails=["life.lost-updates", "life.dies"])
class DeadStreamTakesUpdate(GoodPlugin):
    """After a restart the dead stream takes one change, and the next change causes a panic."""

    registrations = 0
    took = 0

    async def call_register(self) -> None:
        await super().call_register()
        self.registrations += 1
        self.took = 0

    async def announce(self) -> None:
        if self.registrations > 1:
            self.took += 1
            if self.took > 1:
                print("panic: send on closed channel", file=sys.stderr)
                os._exit(2)
            return
        await super().announce()


@mutation(
    "intel-stops-serving-at-a-change",
    fails=["life.lost-updates", "life.dies"],
    says={"life.lost-updates": "panic: send on closed channel"},
)
class StopsServingAtAChange(GoodPlugin):
    """The dead stream takes a change and stops the server; the next change causes a panic."""

    registrations = 0
    is_stopped = False

    async def call_register(self) -> None:
        await super().call_register()
        self.registrations += 1

    async def announce(self) -> None:
        if self.is_stopped:
            print("panic: send on closed channel", file=sys.stderr)
            os._exit(2)
        if self.registrations > 1:
            self.is_stopped = True
            await self.server.stop(0)
        await super().announce()

    async def until_lost(self) -> None:
        await super().until_lost()
        if self.is_stopped:
            await asyncio.sleep(3600)


@mutation("generic-registers-late", warns=["life.sockets-wiped"])
class RegistersLate(GoodPlugin):
    """Checks the sockets only from time to time, so its second registration is late."""

    was_late = False

    async def until_lost(self) -> None:
        await super().until_lost()
        if not self.was_late and identity(self.path) is None:
            self.was_late = True
            await asyncio.sleep(4.5)


class NeverAgain(GoodPlugin):
    """Registers only once."""

    async def until_lost(self) -> None:
        await asyncio.sleep(3600)


@mutation(
    "akri-never-registers-again",
    fails=GONE,
    warns=[*OFTEN_GONE, "life.own-socket-removed", "life.wiped-while-away"],
    says=dict.fromkeys([*GONE, *OFTEN_GONE], "never registers again"),
)
class NeverRegistersAgain(NeverAgain):
    """Continues to run after a kubelet restart, but does not register: Akri, fake-gpu-operator."""


@mutation(
    "simple-device-plugin",
    fails=GONE,
    warns=[
        *OFTEN_GONE,
        "life.own-socket-removed",
        "life.wiped-while-away",
        "registration.stale-socket",
        "registration.same-second",
        "registration.two-instances",
        "allocate.env-names",
    ],
    notes=["allocate.empty-ids"],
)
class SimpleDevicePlugin(NeverAgain, StaleSocketPanic, DashInEnvName, EmptyIdsAccepted):
    """All defects that were seen in simple-device-plugin."""

    async def open_server(self) -> None:
        if self.mine is None and accepts(self.path):
            self.path.unlink()
            print("panic: listen unix: address already in use", file=sys.stderr)
            os._exit(2)
        await super().open_server()


@mutation(
    "generic-device-plugin",
    warns=["life.kubelet-socket-replaced"],
    notes=["allocate.empty-ids", "preferred.not-offered"],
    options=PLAIN,
)
class GenericDevicePlugin(
    OnlyOwnSocketWatched, EmptyPreference, EmptyIdsAccepted, OneSpecPerReplica
):
    """Most defects that were seen in generic-device-plugin."""


@mutation(
    "kubevirt-panics-at-restart",
    fails=["life.sockets-wiped", "life.dies"],
    warns=["life.all-wiped", "life.kubelet-socket-replaced"],
    says={"life.sockets-wiped": "panic: close of closed channel"},
)
class PanicsAtRestart(GoodPlugin):
    """Panics when kubelet.sock is replaced."""

    async def until_lost(self) -> None:
        await super().until_lost()
        if identity(self.kubelet) != self.registered_at:
            print("panic: close of closed channel", file=sys.stderr)
            os._exit(2)


@mutation(
    "rocm",
    fails=["list.numa", "allocate.unknown-id"],
    warns=[*EXITS, *OFTEN_GONE, "life.own-socket-removed", "life.wiped-before-register"],
    notes=["allocate.empty-ids"],
    says={"life.kubelet-away": "exited without a crash (exit code 1)"},
)
class Rocm(UnknownIdAccepted, EmptyIdsAccepted):
    """Exits when its stream ends, so a supervisor must restart it; more defects of ROCm."""

    numa_node = -1
    had_stream = False

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        is_first, self.had_stream = not self.had_stream, True
        try:
            async for each in super().ListAndWatch(request, context):
                yield each
        finally:
            if is_first and not self.stopping.is_set():
                os._exit(1)


@mutation(
    "gce",
    fails=["registration.absent-kubelet"],
    warns=["life.kubelet-away", "life.wiped-while-away", "life.stop-code", "life.stop-socket"],
    notes=["allocate.empty-ids"],
)
class Gce(NoSigtermHandler, AbsentKubeletNever, GivesUpWaiting, EmptyIdsAccepted):
    """Does not handle SIGTERM, and does not wait for a kubelet, neither at its start nor later."""
