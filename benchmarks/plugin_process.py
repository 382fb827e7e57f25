"""A plugin process of kubedevices beside a minimal plugin on grpcio, seen from the kubelet's side.

Both plugins obey the same commands. The rounds alternate between the plugins, so other work on the
machine slows both down equally. Both plugins register with the same small kubelet (`Kubelet`).
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.kubelet_api.services import registration_methods
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest, RegisterRequest
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.kubelet_api.generate_descriptors import PACKAGE

HERE = Path(__file__).parent
ROOT = HERE.parent
DEADLINE = 60


class Size(NamedTuple):
    """How much is measured; `settle` and `idle` in seconds.

    `lists`: pairs of the length of a list and the number of updates.
    """

    rounds: int
    restarts: int
    calls: int
    lists: Sequence[tuple[int, int]]
    settle: float
    idle: float


FULL = Size(3, 20, 500, ((8, 100), (1_000, 50), (10_000, 20)), 2, 5)
QUICK = Size(1, 1, 3, ((8, 2),), 0, 0.1)
PLUGINS = {
    "kubedevices": [sys.executable, "-m", "benchmarks.our_plugin"],
    "minimal grpcio plugin": [sys.executable, str(HERE / "minimal_grpcio_plugin.py")],
}

COMPARED = tuple(PLUGINS)


@dataclass
class Kubelet:
    """A kubelet that only answers Register, and records the time of each Register call."""

    directory: Path
    registered: asyncio.Queue[tuple[float, RegisterRequest]] = field(default_factory=asyncio.Queue)
    server: GrpcServer | None = None

    async def start(self) -> None:
        self.server = GrpcServer(registration_methods(self), name="kubelet")
        path = self.directory / "kubelet.sock"
        await self.server.start(path, by_rename=True)

    async def stop(self) -> None:
        assert self.server
        await self.server.stop()

    async def register(self, request: RegisterRequest) -> None:
        self.registered.put_nowait((asyncio.get_running_loop().time(), request))

    async def next_registration(self) -> float:
        """Wait for the next Register call; return its time by the clock of the event loop."""
        async with asyncio.timeout(DEADLINE):
            at, _ = await self.registered.get()
        return at


@dataclass
class RunningPlugin:
    """A plugin process that has registered. `started` and `registered` are times of the loop."""

    process: asyncio.subprocess.Process
    kubelet: Kubelet
    started: float
    registered: float

    def flip(self) -> None:
        """Make the plugin change the health of one device."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")

    @property
    def socket(self) -> Path:
        return socket_of_plugin(self.kubelet.directory)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[DevicePluginClient]:
        channel = await GrpcChannel.dial(self.socket)
        async with channel:
            yield DevicePluginClient(channel)


def socket_of_plugin(directory: Path) -> Path:
    """Return the only socket in `directory` beside kubelet.sock."""
    (path,) = (file for file in directory.glob("*.sock") if file.name != "kubelet.sock")
    return path


@contextlib.asynccontextmanager
async def plugin(name: str, devices: int) -> AsyncIterator[RunningPlugin]:
    """Run a kubelet and the plugin `name`; the context begins when the plugin has registered."""
    directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    kubelet = Kubelet(directory)
    await kubelet.start()
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{GENERATED.name}:{ROOT}:{ROOT}/src"}
    started = asyncio.get_running_loop().time()
    process = await asyncio.create_subprocess_exec(
        *PLUGINS[name],
        str(directory),
        str(devices),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        registered = await kubelet.next_registration()
        yield RunningPlugin(process, kubelet, started, registered)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await kubelet.stop()
        shutil.rmtree(directory, ignore_errors=True)


GENERATED = tempfile.TemporaryDirectory(prefix="kd-bench-")


def generate_modules() -> None:
    """Generate the protobuf modules that the grpcio plugin imports."""
    from grpc_tools import protoc  # noqa: PLC0415 - only this benchmark needs the compiler

    protoc.main(
        [
            "protoc",
            f"-I{PACKAGE / 'proto'}",
            f"--python_out={GENERATED.name}",
            "deviceplugin_v1beta1.proto",
        ]
    )


async def re_registration(name: str, rounds: int) -> list[float]:
    """Return the milliseconds from a new kubelet.sock to Register.

    Before each start of the kubelet all files in the directory are deleted.
    """
    times = []
    loop = asyncio.get_running_loop()
    async with plugin(name, 8) as running:
        for _ in range(rounds):
            await running.kubelet.stop()
            for file in running.kubelet.directory.iterdir():
                file.unlink()
            await asyncio.sleep(0.3)  # as in a restart: the kubelet is away for a short time
            began = loop.time()
            await running.kubelet.start()
            times.append((await running.kubelet.next_registration() - began) * 1e3)
    return times


async def allocate(name: str, devices: int, calls: int) -> list[float]:
    """Return the milliseconds of each of `calls` Allocate calls for `devices` devices."""
    ids = tuple(f"widget-{n}" for n in range(devices))
    request = AllocateRequest((ContainerAllocateRequest(ids),))
    async with plugin(name, 8) as running, running.client() as client:
        return [
            await measure.milliseconds(client.allocate(request, timeout=DEADLINE))
            for _ in range(calls)
        ]


async def updates(name: str, devices: int, rounds: int) -> list[float]:
    """Return the milliseconds from the command to change a device until the client has the list."""
    times = []
    loop = asyncio.get_running_loop()
    async with plugin(name, devices) as running, running.client() as client:
        stream = client.list_and_watch()
        async with contextlib.aclosing(stream), asyncio.timeout(DEADLINE):
            await anext(stream)
            for _ in range(rounds):
                began = loop.time()
                running.flip()
                await anext(stream)
                times.append((loop.time() - began) * 1e3)
    return times


async def footprint(name: str, size: Size) -> tuple[dict[str, float], int, float]:
    """Return memory in MB, number of threads, and wake-ups per second, with one idle stream."""
    async with plugin(name, 8) as running, running.client() as client:
        stream = client.list_and_watch()
        async with contextlib.aclosing(stream), asyncio.timeout(DEADLINE):
            await anext(stream)
            await asyncio.sleep(size.settle)
            before = measure.wake_ups(running.process.pid)
            await asyncio.sleep(size.idle)
            idle = (measure.wake_ups(running.process.pid) - before) / size.idle
        pid = running.process.pid
        return measure.memory(pid), measure.threads(pid), idle


def write_checkpoint(directory: Path) -> None:
    """Replace the checkpoint in `directory`, as a kubelet does at every admission."""
    with tempfile.NamedTemporaryFile(
        dir=directory, prefix=".kubelet_internal_checkpoint", delete=False
    ) as file:
        file.write(b"x" * 20_000)
    Path(file.name).replace(directory / "kubelet_internal_checkpoint")


async def side_by_side(
    title: str, run: Callable[[str], Awaitable[list[float]]], rounds: int
) -> list[str]:
    """Measure both plugins in turns; return a row with p50, p99 and maximum of each."""
    values: dict[str, list[float]] = {name: [] for name in COMPARED}
    for _ in range(rounds):
        for name in COMPARED:
            values[name] += await run(name)
    ours, baseline = values.values()
    shown = [
        f"{measure.median(each):.2f} / {measure.percentile(each, 99):.2f} / {max(each):.2f}"
        for each in (ours, baseline)
    ]
    return [title, *shown, f"{measure.median(ours) / measure.median(baseline):.2f}"]


async def memory_table(size: Size) -> None:
    """Print memory, threads and wake-ups of an idle plugin process."""
    found = {name: await footprint(name, size) for name in COMPARED}
    transports = {
        "kubedevices": "asyncio, logging, argparse, ctypes",
        "minimal grpcio plugin": "grpc, google.protobuf.message_factory",
    }
    rows = []
    for name, (memory, thread_count, idle) in found.items():
        bare = await measure.bare_imports_pss(transports[name])
        rows.append(
            [
                name,
                f"{memory['pss']:.1f}",
                f"{bare:.1f}",
                f"{memory['pss'] - bare:+.1f}",
                f"{memory['rss']:.1f}",
                str(thread_count),
                f"{idle:.1f}",
            ]
        )
    measure.table(
        "Plugin process: memory in MB, threads, wake-ups per second of an idle process",
        ["", "PSS", "PSS of bare imports", "difference", "RSS", "threads", "wake-ups/s"],
        rows,
    )


async def time_table(size: Size) -> None:
    """Print the times of a registration, of calls and of updates."""
    rows = [
        await side_by_side(
            f"kubelet.sock back to Register, {size.restarts} restarts",
            lambda name: re_registration(name, size.restarts),
            1,
        ),
    ]
    rows += [
        await side_by_side(
            f"Allocate, {devices} device{'s' * (devices > 1)}",
            partial(allocate, devices=devices, calls=size.calls),
            size.rounds,
        )
        for devices in (1, 8)
    ]
    rows += [
        await side_by_side(
            f"a device changes, until the client has the list of {devices:,}",
            partial(updates, devices=devices, rounds=changes),
            size.rounds,
        )
        for devices, changes in size.lists
    ]
    measure.table(
        "Plugin process: milliseconds, p50 / p99 / maximum",
        ["", *COMPARED, "ratio of p50"],
        rows,
    )


async def main(*, quick: bool = False) -> None:
    """Print the tables of the plugin process."""
    size = QUICK if quick else FULL
    generate_modules()
    await memory_table(size)
    await time_table(size)
