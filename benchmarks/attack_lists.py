"""Floods of device lists at a proxy and at a node, from plugins in a process of their own.

The attacked process gets the memory limit of our manifests as its soft limit (`ulimit -m`), because
only with a limit the lists of all plugins have one.
"""

import asyncio
import contextlib
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure
from benchmarks.attacks import LIMIT, ROOT, Attack, Outcome, beside, serving, until
from kubedevices.errors import KubedevicesError
from kubedevices.kubelet_api.convert import device_list_to_wire, reported_to_wire
from kubedevices.manifests import memory
from tests.fake_plugin import FakePlugin, healthy

SECONDS = 8.0
MOST_BYTES = 4 * 2**20
_HONEST = 10_000


class Flood(NamedTuple):
    """`plugins` plugins at a time; each lists `entries` until 4 MiB or `most` devices are full."""

    plugins: int
    entries: Callable[[], Iterator[bytes]]
    most: int
    stays: bool = True


def _usual() -> Iterator[bytes]:
    return (_entry(b"GPU-%060d" % number, b"\x12\x07Healthy") for number in count())


def _short() -> Iterator[bytes]:
    return (_entry(b"%x" % number) for number in count())


def _entry(name: bytes, rest: bytes = b"") -> bytes:
    body = b"\x0a" + bytes([len(name)]) + name + rest
    return b"\x0a" + bytes([len(body)]) + body


def _empty() -> Iterator[bytes]:
    return (b"\x0a\x00" for _ in count())


FLOODS = {
    "12 lists of 3 MiB": Flood(12, _usual, 40_000),
    "a list of 400,000 short IDs": Flood(1, _short, 400_000),
    "a list of two million empty devices": Flood(1, _empty, 2_000_000),
    "400 names without a list": Flood(50, lambda: iter(()), 0, stays=False),
    "400 names with a list": Flood(50, _usual, 100, stays=False),
}


async def flood(sockets: Path, name: str) -> None:
    """Register plugins; those that do not stay end, and others with other names come."""
    print("ready", flush=True)
    spec = FLOODS[name]
    room = MOST_BYTES
    parts = []
    for part in islice(spec.entries(), spec.most):
        room -= len(part)
        if room < 0:
            break
        parts.append(part)
    message, names = b"".join(parts), count()

    async def one() -> None:
        while True:
            number = next(names)
            plugin = FakePlugin(sockets, f"a.b/c{number}", socket_name=f"f{number}.sock")
            async with plugin:
                await plugin.send_bytes(message if parts else None)
                while True:
                    with contextlib.suppress(KubedevicesError, OSError):
                        if not plugin.open_streams:
                            await plugin.register()
                    await asyncio.sleep(0.2)
                    if not spec.stays:
                        break

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.gather(*(one() for _ in range(spec.plugins)))


@contextlib.asynccontextmanager
async def victim(directory: Path, kind: str) -> AsyncIterator[tuple[int, Path]]:
    """Run a proxy with a node outside, or a node; yield its process and the plugin directory."""
    inside, outside, state = directory / "i", directory / "o", directory / "s"
    inside.mkdir()
    outside.mkdir()
    there = (inside / "kubelet.sock").exists
    before = resource.getrlimit(resource.RLIMIT_RSS)
    async with contextlib.AsyncExitStack() as stack:
        words: tuple[str | Path, ...] = ("node", "--socket-dir", inside, "--state-dir", state)
        if kind == "proxy":
            other = ("node", "--socket-dir", outside, "--state-dir", directory / "n")
            await stack.enter_async_context(
                serving(*other, ready=(outside / "kubelet.sock").exists)
            )
            where = ("--plugin-dir", inside, "--socket-dir", outside)
            words = ("proxy", *where, "--state-dir", state)
        resource.setrlimit(resource.RLIMIT_RSS, (memory.limit_mib(0) * 2**20, before[1]))
        try:
            process = await stack.enter_async_context(serving(*words, ready=there))
        finally:
            resource.setrlimit(resource.RLIMIT_RSS, before)
        yield process.pid, inside


async def lists(directory: Path, *, kind: str, name: str) -> Outcome:
    """Beside the flood, an honest plugin has 10,000 devices and registers again and again."""
    outcome = Outcome()
    honest = device_list_to_wire(map(reported_to_wire, healthy(*map(str, range(_HONEST)))))
    async with (
        victim(directory, kind) as (pid, sockets),
        FakePlugin(sockets, "honest.org/device", socket_name="honest.sock") as plugin,
    ):
        await plugin.send_bytes(honest)
        quiet = Outcome()

        async def register() -> None:
            await plugin.register()
            await until(lambda: plugin.open_streams, 5)
            if not plugin.open_streams:
                raise ConnectionError("no stream")

        await beside(quiet, register, SECONDS / 4)
        outcome.quiet = quiet.wait
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__, str(sockets), name),
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT}/src"},
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout
            await process.stdout.readline()
            await beside(outcome, register, SECONDS)
            outcome.used(measure.peak_memory(pid))
            outcome.count(harmed=(outcome.peak or 0) > LIMIT)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    return outcome


def _attack(kind: str, name: str) -> Callable[[Path], Awaitable[Outcome]]:
    return partial(lists, kind=kind, name=name)


HARM = "1 s or an error, memory"
ATTACKS = {
    f"{kind}: {name}": Attack("neighbour", HARM, _attack(kind, name))
    for kind in ("proxy", "node")
    for name in FLOODS
}

if __name__ == "__main__":
    asyncio.run(flood(Path(sys.argv[1]), sys.argv[2]))
