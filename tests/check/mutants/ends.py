"""Plugins whose process ends unexpectedly."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from tests.check.frame_relay import RST_STREAM, Frame
from tests.check.good_plugin import GoodPlugin, identity
from tests.check.listening import accepts
from tests.check.mutants.field import EXITS, OFTEN_GONE
from tests.check.mutants.grpc import GetsStuck, Relayed
from tests.check.mutants.registry import mutation

GO_CRASH = """\
I1122 10:00:00.000000       1 server.go:100] Starting gRPC server
panic: send on closed channel

goroutine 42 [running]:
github.com/example/widget/pkg/server.(*Server).Update(0xc0001a2000)
\t/build/pkg/server/server.go:77 +0x1d
created by github.com/example/widget/pkg/manager.(*Manager).Run in goroutine 1
\t/build/pkg/manager/manager.go:12 +0x3a
"""


async def crash_after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    print(GO_CRASH, file=sys.stderr, flush=True)
    os._exit(2)


@mutation(
    "intel-panics-after-a-restart",
    fails=["life.dies"],
    says={"life.dies": "server.(*Server).Update at /build/pkg/server/server.go:77"},
)
class PanicsAfterARestart(GoodPlugin):
    """Registers again after a restart, and seconds later panics in its old stream: Intel."""

    registrations = 0

    async def call_register(self) -> None:
        await super().call_register()
        self.registrations += 1
        if self.registrations == 2:
            self.crash = asyncio.create_task(crash_after(0.8))


@mutation(
    "rocm-any-stream-end-exits",
    fails=["list.abandoned-stream", "life.dies"],
    warns=[*EXITS, *OFTEN_GONE, "life.own-socket-removed", "life.wiped-before-register"],
    says={"list.abandoned-stream": "its process ended (exit code 1)"},
    never="SETTINGS",
)
class AnyStreamEndExits(GoodPlugin):
    """Exits when any stream ends, like ROCm. Only the check that ended the stream reports this."""

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        try:
            async for each in super().ListAndWatch(request, context):
                yield each
        finally:
            if not self.stopping.is_set():
                os._exit(1)


@mutation("hangs-after-a-lost-stream", fails=["list.abandoned-stream"])
class HangsAfterALostStream(GetsStuck):
    """Gets stuck when a client has cancelled a stream."""

    async def wanted(self, frame: Frame, client: asyncio.StreamWriter) -> bool:
        self.is_stuck |= frame.kind == RST_STREAM
        return True


@mutation(
    "panics-without-its-socket",
    fails=["life.dies"],
    warns=["life.own-socket-removed"],
    says={"life.dies": "life.own-socket-removed began"},
)
class PanicsWithoutItsSocket(GoodPlugin):
    """Panics if its own socket is removed while the kubelet runs; only a warning covers this."""

    async def until_lost(self) -> None:
        await super().until_lost()
        await asyncio.sleep(0.3)
        if self.path.exists() or identity(self.kubelet) != self.registered_at:
            return
        if accepts(self.kubelet):
            print(GO_CRASH, file=sys.stderr, flush=True)
            os._exit(2)


@mutation(
    "dies-late-of-a-lost-stream",
    fails=["list.abandoned-stream", "life.dies"],
    says={"list.abandoned-stream": "panic: send on closed channel"},
)
class DiesLateOfALostStream(Relayed):
    """Notices a cancelled stream only when it sends the next list, and panics then."""

    async def wanted(self, frame: Frame, client: asyncio.StreamWriter) -> bool:
        if frame.kind == RST_STREAM:
            self.crash = asyncio.create_task(crash_after(0.9))
        return True
