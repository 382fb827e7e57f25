"""A node with a good and a bad plugin: the pods of the good plugin always start."""

import asyncio
import contextlib
import socket
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubedevices.errors import AdmissionRejected, RpcError, StatusCode
from kubedevices.node.arrival.endpoint import PluginTimeouts
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from tests.fake_plugin import RESOURCE, FakePlugin, as_list, healthy
from tests.waiting import until

BAD = "example.com/bad"
MANY = healthy(*(f"device-{n}" for n in range(2000)))

BOUND = 1.0
"""Seconds that most pods of the good plugin may take beside the bad one.

Alone one takes about a millisecond; behind the bad one it would take a minute. A single pod may
meet a machine that stands still, and gets `DEADLINE`.
"""

DEADLINE = 10.0
"""Seconds that any pod of the good plugin may take."""


async def hang_in_allocate(bad: FakePlugin) -> None:
    bad.hang("allocate")


async def hang_in_preferred(bad: FakePlugin) -> None:
    bad.hang("preferred")


async def fail(bad: FakePlugin) -> None:
    bad.errors["allocate"] = RpcError(StatusCode.INTERNAL, "no")


async def flood(bad: FakePlugin) -> None:
    await bad.flood()


async def flood_with_changes(bad: FakePlugin) -> None:
    messages = [as_list(MANY[:count]) for count in (1000, 1500)]

    async def change_all_the_time() -> None:
        while True:
            await bad.send_bytes(messages[bad.lists_sent % 2])
            await asyncio.sleep(0)

    bad.background = asyncio.ensure_future(change_all_the_time())  # type: ignore[attr-defined]


async def send_garbage(bad: FakePlugin) -> None:
    await bad.send_bytes(b"\xff" * 1000)


async def crash(bad: FakePlugin) -> None:
    await bad.stop()


async def end_the_stream_again_and_again(bad: FakePlugin) -> None:
    bad.errors["list"] = RpcError(StatusCode.INTERNAL, "broken")
    await bad.end_streams()


async def register_all_the_time(bad: FakePlugin) -> None:
    async def again_and_again() -> None:
        while True:
            await bad.register()

    bad.background = asyncio.ensure_future(again_and_again())  # type: ignore[attr-defined]


MISBEHAVIOURS = [
    hang_in_allocate,
    hang_in_preferred,
    fail,
    flood,
    flood_with_changes,
    send_garbage,
    crash,
    end_the_stream_again_and_again,
    register_all_the_time,
]


@asynccontextmanager
async def good_and_bad(directory: Path) -> AsyncIterator[tuple[DeviceManager, FakePlugin]]:
    timeouts = PluginTimeouts(allocate=60, preferred=60)
    good = FakePlugin(directory, devices=healthy("a", "b"))
    bad = FakePlugin(
        directory,
        BAD,
        socket_name="bad.sock",
        devices=MANY,
        preferred=lambda request: request.available[: request.size],
    )
    async with (
        DeviceManager(directory, settings=NodeSettings(timeouts=timeouts)) as manager,
        good,
        bad,
    ):
        for plugin in (good, bad):
            await plugin.register()
            await until(lambda plugin=plugin: manager.inventory.has_reported(plugin.resource))  # type: ignore[misc]
        yield manager, bad


def pod(name: str, resource: str) -> Pod:
    return Pod(name, containers=(Container("c", {resource: 1}),))


@pytest.mark.parametrize("misbehave", MISBEHAVIOURS)
async def test_a_bad_plugin_never_delays_another(
    short_dir: Path, misbehave: Callable[[FakePlugin], Awaitable[None]]
) -> None:
    """Twenty pods of the good plugin start and end as without the bad plugin."""
    loop = asyncio.get_running_loop()
    async with good_and_bad(short_dir / "p") as (manager, bad):
        lists = bad.lists_sent
        await misbehave(bad)
        if misbehave in (flood, flood_with_changes):
            await until(lambda: bad.lists_sent > lists + 3)
        stuck = asyncio.ensure_future(manager.allocate(pod("stuck", BAD)))
        took = []
        for n in range(20):
            began = loop.time()
            await asyncio.wait_for(manager.allocate(pod(f"p{n}", RESOURCE)), DEADLINE)
            took.append(loop.time() - began)
            await manager.release(f"default/p{n}")
        assert statistics.median(took) < BOUND
        stuck.cancel()
        with contextlib.suppress(asyncio.CancelledError, AdmissionRejected):
            await stuck
        background = getattr(bad, "background", None)
        if background:
            background.cancel()
            with contextlib.suppress(asyncio.CancelledError, RpcError):
                await background


async def test_silent_connections_do_not_delay_registration(short_dir: Path) -> None:
    """Clients that connect and send nothing, or invalid data, do not block registrations."""
    directory = short_dir / "p"
    good = FakePlugin(directory, devices=healthy("a"))
    async with DeviceManager(directory) as manager, good:
        with contextlib.ExitStack() as stack:
            for n in range(20):
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(str(directory / "kubelet.sock"))
                if n % 2:
                    client.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            await asyncio.wait_for(good.register(), 5)
            await manager.wait_for(RESOURCE, allocatable=1)
