"""Floods at the sockets and pages of a plugin and of a node, beside an honest caller."""

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError as H2ProtocolError

from benchmarks import measure
from benchmarks.attacks import LIMIT, ROOT, Attack, Outcome, beside, serving, until
from kubedevices.errors import KubedevicesError
from kubedevices.kubelet_api.clients import DevicePluginClient, RegistrationClient
from kubedevices.kubelet_api.services import ALLOCATE, LIST_AND_WATCH
from kubedevices.values.allocation import RegisterRequest
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.wire.frames import CLIENT_HELLO, END_HEADERS, HEADERS, raw
from tests.wire.protocol import floods

SECONDS = 6.0
"""How long an honest caller calls beside a flood."""

HEAD_START = 1.5
"""Seconds in which the attackers start."""

CONNECTIONS = 20
MOST_BYTES = 64 * 2**20
"""What one connection of a flood sends at most."""


class Plugin(NamedTuple):
    """An attacked plugin process, its socket and the port of its pages."""

    process: asyncio.subprocess.Process
    socket: Path
    port: int

    async def ask(self) -> None:
        """Do what a kubelet does: a call on a new connection."""
        async with await GrpcChannel.dial(self.socket) as channel:
            await DevicePluginClient(channel).get_device_plugin_options(timeout=10)

    async def watch(self) -> None:
        """Do what a kubelet does after a registration: read the list."""
        async with (
            await GrpcChannel.dial(self.socket) as channel,
            contextlib.aclosing(DevicePluginClient(channel).list_and_watch()) as lists,
        ):
            await anext(lists)

    async def probe(self) -> None:
        """Do what the liveness probe of a kubelet does."""
        await get(self.port, "/healthz")


def free_port() -> int:
    """Return a port of the loopback on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def get(port: int, path: str) -> bytes:
    """Return the answer of a page; raises `OSError` without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise ConnectionError(answer[:100])
        return answer
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def plugin(directory: Path, devices: int = 1000) -> AsyncIterator[Plugin]:
    """Run a simulator with pages and without a kubelet."""
    port = free_port()
    found: list[Path] = []

    def is_there() -> bool:
        found[:] = directory.glob("p/*.sock")
        return bool(found)

    (directory / "p").mkdir()
    words = ("simulate", "--number-devices", str(devices), "--registration", "none")
    where = ("--socket-dir", directory / "p", "--listen", f"127.0.0.1:{port}")
    async with serving(*words, *where, "--state-dir", directory / "s", ready=is_there) as process:
        yield Plugin(process, found[0], port)


@contextlib.asynccontextmanager
async def attacked(work: str, target: str | int, count: int) -> AsyncIterator[None]:
    """Run `count` attackers in a process of their own: they must not slow the honest caller down.

    `work` is a name in `WORK`.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, work, str(target), str(count)),
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT}/src"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout
        assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def compared(
    outcome: Outcome, honest: Callable[[], Awaitable[object]], attack: tuple[str, str | int, int]
) -> None:
    """Do the same without the attack, and then beside it."""
    quiet = Outcome()
    await beside(quiet, honest, SECONDS / 3)
    outcome.quiet = quiet.wait
    async with attacked(*attack):
        await asyncio.sleep(HEAD_START)
        await beside(outcome, honest, SECONDS)


async def send(path: Path, frames: Iterator[bytes], most: int = MOST_BYTES) -> None:
    """Send frames on a connection and read what comes; begin again if it is closed."""
    sent = 0
    while sent < most:
        reader, writer = await asyncio.open_unix_connection(str(path))
        reading = asyncio.create_task(_drain(reader), name="answers to an attack")
        try:
            writer.write(CLIENT_HELLO)
            while not reading.done() and sent < most:
                part = b"".join(islice(frames, 200))
                if not part:
                    await reading
                sent += len(part)
                writer.write(part)
                await writer.drain()
        except OSError:
            pass
        finally:
            reading.cancel()
            writer.transport.abort()
        await asyncio.sleep(0)


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


# ---------------------------------------------------------------- HTTP/2


def table_sizes() -> Iterator[bytes]:
    """Header blocks that change the size of the table, thousands of times each."""
    for stream in range(1, 2**31, 2):
        yield raw(HEADERS, END_HEADERS, stream, b"\x20" * 60_000)


def long_texts() -> Iterator[bytes]:
    """Header blocks with one long Huffman text."""
    text = b"\x00\x01a\xff\x81\xd4\x03" + b"\x07" * 59_993
    for stream in range(1, 2**31, 2):
        yield raw(HEADERS, END_HEADERS, stream, text)


def many_settings() -> Iterator[bytes]:
    """Frames with 10,922 settings each."""
    while True:
        yield raw(4, 0, 0, b"\x00\x03\x00\x00\x00\x05" * 10_922)


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "HPACK table sizes": table_sizes,
    "long Huffman texts": long_texts,
    "settings": many_settings,
    "pings": floods.pings,
    "rapid resets": floods.rapid_resets,
    "malformed requests": floods.malformed_requests,
    "continuations": floods.continuations_of_one_byte,
    "empty data": floods.empty_data,
    "bombs of indices": floods.bomb_of_indices,
}


async def http2_flood(directory: Path, *, name: str) -> Outcome:
    """Twenty connections send the same frames."""
    outcome = Outcome()
    async with plugin(directory) as victim:
        await compared(outcome, victim.ask, (name, str(victim.socket), CONNECTIONS))
        outcome.used(measure.peak_memory(victim.process.pid))
        outcome.count(harmed=outcome.peak is not None and outcome.peak > LIMIT)
    return outcome


# ---------------------------------------------------------------- places


async def hold_streams(target: str) -> None:
    """Open 100 lists on one connection, and keep them open."""
    async with await GrpcChannel.dial(Path(target)) as channel:

        async def one() -> None:
            async for _ in channel.stream(LIST_AND_WATCH):
                pass

        await asyncio.gather(*(one() for _ in range(100)), return_exceptions=True)


async def say_nothing(target: str) -> None:
    """Open a connection, and open another if it is closed."""
    while True:
        reader, writer = await asyncio.open_unix_connection(target)
        try:
            await _drain(reader)
        finally:
            writer.transport.abort()
        await asyncio.sleep(0.1)


async def hold_messages(target: str) -> None:
    """Begin messages of almost 4 MiB as fast as the windows allow, and end none of them."""
    reader, writer = await asyncio.open_unix_connection(target)
    peer = H2Connection(H2Configuration(client_side=True))
    peer.initiate_connection()
    streams = list(range(1, 65, 2))
    begun: set[int] = set()
    for number in streams:
        path = (":path", ALLOCATE)
        peer.send_headers(number, [(":method", "POST"), (":scheme", "http"), path, *_GRPC])
    prefix = b"\0" + (4 * 2**20 - 1).to_bytes(4, "big")
    left = dict.fromkeys(streams, 4 * 2**20 - 100)
    while True:
        sent = 0
        for number in [each for each in streams if left[each] > 0]:
            with contextlib.suppress(H2ProtocolError):  # the server has reset the stream
                room = min(peer.local_flow_control_window(number), 16_000, left[number])
                if room > 5:
                    part = bytes(room) if number in begun else prefix + bytes(room - 5)
                    peer.send_data(number, part)
                    begun.add(number)
                    left[number] -= room
                    sent += room
        writer.write(peer.data_to_send())
        await writer.drain()
        if not sent:
            peer.receive_data(await reader.read(65536))


_GRPC = [
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


async def unfinished_messages(directory: Path) -> Outcome:
    """Eight connections begin messages."""
    outcome = Outcome()
    async with plugin(directory) as victim:
        await compared(outcome, victim.ask, ("messages", str(victim.socket), 8))
        with contextlib.suppress(OSError):
            outcome.used(measure.peak_memory(victim.process.pid))
        is_killed = victim.process.returncode is not None
        outcome.count(harmed=is_killed or (outcome.peak or 0) > LIMIT)
    return outcome


async def many_streams(directory: Path) -> Outcome:
    """600 ListAndWatch streams stay open; then a kubelet comes."""
    outcome = Outcome()
    async with plugin(directory) as victim:
        await compared(outcome, victim.watch, ("streams", str(victim.socket), 6))
        outcome.used(measure.peak_memory(victim.process.pid))
    return outcome


async def many_connections(directory: Path) -> Outcome:
    """700 connections say nothing."""
    outcome = Outcome()
    async with plugin(directory) as victim:
        await compared(outcome, victim.ask, ("silence", str(victim.socket), 700))
        outcome.used(measure.peak_memory(victim.process.pid))
    return outcome


async def hanging_registrations(directory: Path) -> Outcome:
    """600 plugins register with a node and never answer it; then an honest plugin comes."""
    outcome = Outcome()
    sockets = directory / "p"
    words = ("node", "--socket-dir", sockets, "--state-dir", directory / "s")
    async with serving(*words, ready=(sockets / "kubelet.sock").exists) as process:
        async with _plugin_of(sockets):
            honest = partial(_register_honestly, sockets)
            await compared(outcome, honest, ("registrations", str(sockets), 600))
        outcome.used(measure.peak_memory(process.pid))
    return outcome


_numbers = itertools.count()
_silent: list[asyncio.Server] = []


async def register_silently(target: str) -> None:
    """Register a plugin that never answers the node, again and again."""
    sockets = Path(target)
    number = next(_numbers)
    if not number:
        path = str(sockets / "silent.sock")
        _silent.append(await asyncio.start_unix_server(lambda reader, _: _drain(reader), path))
    while True:
        request = RegisterRequest("v1beta1", "silent.sock", f"a.b/c{number}")
        with contextlib.suppress(KubedevicesError, OSError):
            async with await GrpcChannel.dial(sockets / "kubelet.sock") as channel:
                await RegistrationClient(channel).register(request, timeout=60)
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _plugin_of(sockets: Path) -> AsyncIterator[None]:
    from tests.fake_plugin import FakePlugin, healthy  # noqa: PLC0415

    async with FakePlugin(sockets, "honest.org/device", devices=healthy("a")):
        yield


async def _register_honestly(sockets: Path) -> None:
    async with await GrpcChannel.dial(sockets / "kubelet.sock") as channel:
        request = RegisterRequest("v1beta1", "widget.sock", "honest.org/device")
        await RegistrationClient(channel).register(request, timeout=10)


# ---------------------------------------------------------------- pages


async def ask_page(target: str, *, path: str, closes: bool) -> None:
    """Ask for a page again and again; do not close, if so told, before the server does."""
    port = int(target)
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if closes:
                await get(port, path)
                continue
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                await _drain(reader)
                await asyncio.sleep(SECONDS)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.01)


async def pages(
    directory: Path, *, work: str, clients: int, call: str, devices: int = 1000
) -> Outcome:
    """Clients ask for pages, and an honest caller asks the plugin or its liveness page."""
    outcome = Outcome()
    async with plugin(directory, devices) as victim:
        await until(lambda: _listens(victim.port))
        honest = {"ask": victim.ask, "probe": victim.probe}[call]
        await compared(outcome, honest, (work, victim.port, clients))
        outcome.used(measure.peak_memory(victim.process.pid))
    return outcome


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


async def _flood(target: str, *, name: str) -> None:
    await send(Path(target), FLOODS[name]())


WORK: dict[str, Callable[[str], Awaitable[None]]] = {
    **{name: partial(_flood, name=name) for name in FLOODS},
    "messages": hold_messages,
    "streams": hold_streams,
    "silence": say_nothing,
    "registrations": register_silently,
    "stay": partial(ask_page, path="/healthz", closes=False),
    "state": partial(ask_page, path="/state", closes=True),
    "metrics": partial(ask_page, path="/metrics", closes=True),
}
"""What one attacker does, by name."""

HARM = "1 s or an error"
ATTACKS = {
    **{
        f"HTTP/2: {name}": Attack("neighbour", HARM, partial(http2_flood, name=name))
        for name in FLOODS
    },
    "HTTP/2: unfinished messages": Attack("neighbour", f"{HARM}, memory", unfinished_messages),
    "600 open lists": Attack("neighbour", HARM, many_streams),
    "700 silent connections": Attack("neighbour", HARM, many_connections),
    "600 hanging registrations": Attack("neighbour", HARM, hanging_registrations),
    "64 page clients that stay": Attack(
        "pod", HARM, partial(pages, work="stay", clients=64, call="probe")
    ),
    "16 clients of /state": Attack(
        "pod", HARM, partial(pages, work="state", clients=16, call="ask")
    ),
    "16 clients of /state, 20,000 devices": Attack(
        "pod", HARM, partial(pages, work="state", clients=16, call="ask", devices=20_000)
    ),
    "16 clients of /metrics, 20,000 devices": Attack(
        "pod", HARM, partial(pages, work="metrics", clients=16, call="ask", devices=20_000)
    ),
}


async def _attack(work: str, target: str, count: int) -> None:
    """Run `count` attackers until this process is killed, or for a minute."""

    async def one() -> None:
        with contextlib.suppress(KubedevicesError, OSError):
            await WORK[work](target)

    print("ready", flush=True)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.gather(*(one() for _ in range(count)))


if __name__ == "__main__":
    asyncio.run(_attack(sys.argv[1], sys.argv[2], int(sys.argv[3])))
