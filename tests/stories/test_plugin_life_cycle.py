"""Faults in the life cycle of widely used device plugins, which our plugins do not have.

Each test stands for one column of a comparison of fourteen existing plugins against a kubelet and
a fake one; its docstring has the observed faults. All plugins here are separate processes.
"""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.values.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
    ContainerPreferredRequest,
    PreferredAllocationRequest,
)
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.fake_kubelet import FakeKubelet, leave_dead_socket
from tests.plugin_process import PluginProcess, plugin_process
from tests.waiting import until
from tests.widgets import RESOURCE, healthy

SOCKET = "example.com-widget.sock"
SOON = 8
"""Seconds; a bound for busy machines, below the ten that a kubelet or a second try would take. What
it really takes is measured by the benchmarks."""


async def change(devices: Path, kubelet: FakeKubelet, plugin: PluginProcess, name: str) -> None:
    """Add one device; check that the kubelet gets it and that no process ended."""
    (devices / name).touch()
    await kubelet.wait_for(RESOURCE, healthy(*names_in(devices)))
    assert plugin.is_alive


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def allocate(*ids: str) -> AllocateRequest:
    return AllocateRequest((ContainerAllocateRequest(ids),))


# ---------------------------------------------------------------- first table


async def test_a_plugin_ends_after_sigterm(socket_dir: Path, devices: Path) -> None:
    """SIGTERM. Seen: "no handler: -15, left" (two), "exit 0, left", up to 4.7 s (one each)."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices) as plugin:
        await kubelet.wait_for(RESOURCE, 1)
        assert await plugin.terminate() == 0
        assert plugin.sockets == []


async def test_a_plugin_starts_beside_the_stale_socket_of_a_killed_plugin(
    socket_dir: Path, devices: Path
) -> None:
    """Stale socket after SIGKILL, same second. Seen: panics; "fatal, exit 2"; retries forever."""
    async with FakeKubelet(socket_dir) as kubelet:
        async with plugin_process(socket_dir, devices) as killed:
            await kubelet.wait_for(RESOURCE, 1)
            await killed.kill()
            assert killed.sockets == [SOCKET], "SIGKILL leaves the socket file behind"
            stale = killed.socket
            os.utime(stale, (0, 0))  # it was made long ago
        await until(lambda: not kubelet.connected(RESOURCE))
        async with plugin_process(socket_dir, devices) as plugin:
            await kubelet.wait_for(RESOURCE, 1)
            assert plugin.is_alive
            await until(lambda: not stale.exists())
            assert plugin.sockets == [SOCKET]


async def test_a_plugin_registers_after_kubelet_sock_is_replaced(
    socket_dir: Path, devices: Path
) -> None:
    """kubelet.sock replaced, own socket kept. Seen: "never" (four), "exits 1", panics later."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices) as plugin:
        await kubelet.wait_for(RESOURCE, 1)
        for count in range(2, 5):
            await kubelet.restart(wipe=False)
            await kubelet.wait_requests(count, timeout=SOON)
            await change(devices, kubelet, plugin, f"w{count}")
        assert plugin.sockets == [SOCKET]


async def test_a_plugin_survives_fifteen_kubelet_restarts(socket_dir: Path, devices: Path) -> None:
    """Restart, directory cleaned. Seen: "never", "exits 1", "3 of 15 died", seconds at most."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices) as plugin:
        await kubelet.wait_for(RESOURCE, 1)
        for count in range(15):
            await kubelet.restart()
            await kubelet.wait_for(RESOURCE, count + 1, timeout=SOON)
            await change(devices, kubelet, plugin, f"v{count}")


async def test_a_plugin_creates_its_deleted_socket_again(socket_dir: Path, devices: Path) -> None:
    """Own socket deleted, kubelet stays. Seen: "never" (four of eight)."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices) as plugin:
        await kubelet.wait_for(RESOURCE, 1)
        plugin.socket.unlink()
        await until(lambda: len(kubelet.accepted) == 2, SOON)
        await change(devices, kubelet, plugin, "w2")


# ---------------------------------------------------------------- second table


async def test_a_plugin_registers_after_a_wipe_and_a_late_kubelet(
    socket_dir: Path, devices: Path
) -> None:
    """Wiped, kubelet back later. Seen: "never", "exits 1" (two), "exits 2" (two)."""
    kubelet = FakeKubelet(socket_dir)
    async with kubelet, plugin_process(socket_dir, devices) as plugin:
        await kubelet.wait_for(RESOURCE, 1)
        await kubelet.stop()
        kubelet.wipe()
        await until(lambda: plugin.sockets == [SOCKET])  # served again, and waits
        (devices / "w2").touch()  # what happens meanwhile is not lost
        await asyncio.sleep(1)
        assert plugin.is_alive
        await kubelet.start()
        await kubelet.wait_for(RESOURCE, healthy("w1", "w2"), timeout=SOON)


async def test_a_second_instance_of_a_plugin_is_harmless(socket_dir: Path, devices: Path) -> None:
    """Second instance. Seen: it unlinks or takes over the first's socket (five), both live."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices) as first:
        await kubelet.wait_for(RESOURCE, 1)
        mine = first.socket
        async with plugin_process(socket_dir, devices) as second:
            await first.said("standing by")
            assert mine.is_socket()
            await kubelet.wait_for(RESOURCE, 1)
            assert await second.terminate() == 0
        await kubelet.wait_for(RESOURCE, 1)
        assert first.socket == mine
        await change(devices, kubelet, first, "w2")


async def test_an_unknown_id_in_allocate_is_refused(socket_dir: Path, devices: Path) -> None:
    """Unknown id. Seen: "accepted" (two), UNKNOWN (five)."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices):
        connected = await kubelet.wait_for(RESOURCE, 1)
        with pytest.raises(RpcError, match="non-existing device w9") as caught:
            await connected.client.allocate(allocate("w1", "w9"), timeout=5)
        assert caught.value.code is StatusCode.NOT_FOUND


@pytest.mark.parametrize("left_behind", [False, True], ids=["absent", "dead"])
async def test_a_plugin_starts_without_a_kubelet(
    socket_dir: Path, devices: Path, left_behind: bool
) -> None:
    """kubelet.sock absent at start. Seen: "never registers", "exits 1", "exits 2"."""
    if left_behind:
        leave_dead_socket(socket_dir / "kubelet.sock")
    async with plugin_process(socket_dir, devices) as plugin:
        await plugin.said("waiting for the kubelet")
        async with FakeKubelet(socket_dir) as kubelet:
            await kubelet.wait_for(RESOURCE, 1, timeout=SOON)
            await change(devices, kubelet, plugin, "w2")


async def test_a_plugin_registers_after_the_kubelet_closed_its_stream(
    socket_dir: Path, devices: Path
) -> None:
    """Stream closed, kubelet stays. Seen: "nothing, stays unregistered" (five), "exits 1"."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices) as plugin:
        await kubelet.wait_for(RESOURCE, 1)
        await kubelet.cancel_streams()
        await kubelet.wait_for(RESOURCE, 1, timeout=SOON)
        await change(devices, kubelet, plugin, "w2")


# ---------------------------------------------------------------- further down


async def test_a_plugin_retries_when_the_kubelet_does_not_listen_yet(
    socket_dir: Path, devices: Path
) -> None:
    """kubelet.sock bound, not listening yet. Seen: 1 s lost (two), died 3 times of 15 (one)."""
    async with plugin_process(socket_dir, devices) as plugin:
        await plugin.said("waiting for the kubelet")
        for _ in range(5):
            with socket.socket(socket.AF_UNIX) as kubelet:
                kubelet.setblocking(False)
                kubelet.bind(str(socket_dir / "kubelet.sock"))
                await asyncio.sleep(0.02)
                kubelet.listen()
                loop = asyncio.get_running_loop()
                accepted, _ = await asyncio.wait_for(loop.sock_accept(kubelet), 0.5)
                accepted.close()
            (socket_dir / "kubelet.sock").unlink()
        assert plugin.is_alive


async def test_a_plugin_survives_a_wipe_during_its_start(socket_dir: Path, devices: Path) -> None:
    """Our socket is wiped between bind and Register. Seen: 10 s, then an error."""
    async with FakeKubelet(socket_dir) as kubelet:
        kubelet.register_gate = asyncio.Event()
        async with plugin_process(socket_dir, devices) as plugin:
            await kubelet.wait_requests(1)
            kubelet.wipe_plugins()
            await kubelet.wait_requests(2, timeout=SOON)
            kubelet.register_gate.set()
            await kubelet.wait_for(RESOURCE, 1, timeout=SOON)
            assert plugin.is_alive


async def test_duplicate_ids_and_empty_lists_in_allocate(socket_dir: Path, devices: Path) -> None:
    """Duplicate ids, empty lists. Seen: one device file given several times (three plugins)."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices):
        connected = await kubelet.wait_for(RESOURCE, 1)
        (devices / "w2").touch()  # another id with the same device file
        await kubelet.wait_for(RESOURCE, 2)
        for ids in (("w1", "w1"), ("w1", "w2", "w1")):
            response = await connected.client.allocate(allocate(*ids), timeout=5)
            paths = [spec.host_path for spec in response.containers[0].devices]
            assert paths == ["/dev/null"]
        with pytest.raises(RpcError, match="without devices") as caught:
            await connected.client.allocate(allocate(), timeout=5)
        assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_a_call_without_a_hook_is_unimplemented(socket_dir: Path, devices: Path) -> None:
    """GetPreferredAllocation not offered. Seen: UNKNOWN, or OK with an empty response (four)."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices):
        connected = await kubelet.wait_for(RESOURCE, 1)
        assert not connected.options.get_preferred_allocation_available
        request = PreferredAllocationRequest((ContainerPreferredRequest(("w1",), (), 1),))
        with pytest.raises(RpcError, match="doesn't implement it") as caught:
            await connected.client.get_preferred_allocation(request, timeout=5)
        assert caught.value.code is StatusCode.UNIMPLEMENTED


async def test_the_first_list_is_full_and_no_list_comes_twice(
    socket_dir: Path, devices: Path
) -> None:
    """Lists. Seen: an empty one first (one vendor); the same one again 2 to 17 times in 33 s."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices):
        await kubelet.wait_for(RESOURCE, 1)
        await asyncio.sleep(0.5)  # ten scans
        (devices / "w2").touch()
        await kubelet.wait_for(RESOURCE, 2)
        assert [len(listing) for listing in kubelet.lists(RESOURCE)] == [1, 2]


async def test_thirty_open_streams_do_not_block_the_plugin(socket_dir: Path, devices: Path) -> None:
    """Thirty streams at once. Seen: a pool of 4 to 10 workers starves after a few reconnects."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices) as plugin:
        await kubelet.wait_for(RESOURCE, 1)
        async with await GrpcChannel.dial(plugin.socket) as channel:
            client = DevicePluginClient(channel)
            streams = [client.list_and_watch() for _ in range(30)]
            assert [len(await anext(stream)) for stream in streams] == [1] * 30
            (devices / "w2").touch()
            assert [len(await anext(stream)) for stream in streams] == [2] * 30
            response = await client.allocate(allocate("w2"), timeout=5)
            assert response.containers[0].devices
            for stream in streams:
                await stream.aclose()
        await change(devices, kubelet, plugin, "w3")
