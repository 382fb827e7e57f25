"""A plugin program: signals, exit codes, and what it says on its way out."""

import asyncio
import signal
from pathlib import Path

import pytest

from kubedevices.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
    PreStartContainerRequest,
)
from kubedevices.errors import RpcError, StatusCode
from tests.fake_kubelet import FakeKubelet
from tests.plugin_process import plugin_process
from tests.waiting import until
from tests.widgets import RESOURCE, healthy

NO_ERRORS = ("Traceback", "ERROR", "Exception")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_while_it_waits_for_a_kubelet(
    socket_dir: Path, devices: Path, number: int
) -> None:
    """T-30: without any kubelet a signal ends it, exit code 0, socket removed."""
    async with plugin_process(socket_dir, devices) as plugin:
        await plugin.said("waiting for the kubelet")
        assert plugin.sockets == ["example.com-widget.sock"]
        assert await plugin.terminate(number) == 0
        assert plugin.sockets == []
        assert not any(word in plugin.output for word in NO_ERRORS)


async def test_a_signal_while_it_waits_for_the_directory(short_dir: Path, devices: Path) -> None:
    """T-30: the same on a host where no kubelet was ever installed."""
    async with plugin_process(short_dir / "missing", devices) as plugin:
        await plugin.said("is a kubelet installed here?")
        assert await plugin.terminate() == 0


async def test_a_signal_during_registration(socket_dir: Path, devices: Path) -> None:
    """T-30: while the kubelet has not answered Register."""
    async with FakeKubelet(socket_dir) as kubelet:
        kubelet.register_gate = asyncio.Event()
        async with plugin_process(socket_dir, devices) as plugin:
            await kubelet.wait_requests(1)
            assert await plugin.terminate() == 0
            assert plugin.sockets == []


@pytest.mark.parametrize("hook", ["allocate", "pre_start"])
async def test_a_signal_while_a_hook_hangs(socket_dir: Path, devices: Path, hook: str) -> None:
    """T-30: a hook that sleeps is left behind, and the log says which."""
    async with (
        FakeKubelet(socket_dir) as kubelet,
        plugin_process(socket_dir, devices, hook) as plugin,
    ):
        connected = await kubelet.wait_for(RESOURCE, 1)
        if hook == "allocate":
            request = AllocateRequest((ContainerAllocateRequest(("w1",)),))
            call: asyncio.Future[object] = asyncio.ensure_future(
                connected.client.allocate(request, timeout=20)
            )
        else:
            start = PreStartContainerRequest(("w1",))
            call = asyncio.ensure_future(connected.client.pre_start_container(start, timeout=20))
        await until((devices.parent / "hanging").exists)
        assert await plugin.terminate() == 0
        assert plugin.sockets == []
        assert "is still running" in plugin.output
        with pytest.raises(RpcError) as caught:
            await call
        assert caught.value.code is StatusCode.UNAVAILABLE


async def test_a_second_signal_ends_it_at_once(socket_dir: Path, devices: Path) -> None:
    """Somebody who is in a hurry presses twice: 128 + signal, and still no socket is left."""
    async with (
        FakeKubelet(socket_dir) as kubelet,
        plugin_process(socket_dir, devices, "allocate") as plugin,
    ):
        connected = await kubelet.wait_for(RESOURCE, 1)
        request = AllocateRequest((ContainerAllocateRequest(("w1",)),))
        call = asyncio.ensure_future(connected.client.allocate(request, timeout=20))
        await until((devices.parent / "hanging").exists)
        plugin.process.send_signal(signal.SIGINT)
        await until(lambda: not connected.is_open)  # the first one has been heard
        assert await plugin.terminate(signal.SIGINT) == 128 + signal.SIGINT
        assert plugin.sockets == []
        with pytest.raises(RpcError):
            await call


async def test_a_blocked_event_loop_does_not_stop_the_end(socket_dir: Path, devices: Path) -> None:
    """An `async` scanner that blocks the loop is ended after 2 s, with its sockets removed."""
    async with plugin_process(socket_dir, devices, "block") as plugin:
        await until((devices.parent / "hanging").exists)
        assert plugin.sockets
        told = asyncio.get_running_loop().time()
        assert await plugin.terminate() == 1
        assert asyncio.get_running_loop().time() - told > 1.5
        assert plugin.sockets == []
        assert "something blocks the event loop" in plugin.output


@pytest.mark.parametrize(
    ("what", "code", "line"),
    [
        ("raise", 1, "kubedevices: scanner Widgets failed: ValueError: no bus"),
        ("domain", 2, "kubedevices: resource name 'Not A Domain/…' is invalid: "),
        ("finish", 0, ""),
    ],
)
async def test_how_a_program_ends_by_itself(
    socket_dir: Path, devices: Path, what: str, code: int, line: str
) -> None:
    """T-03, T-04: one line, no traceback, the exit code of the error; no socket left."""
    async with plugin_process(socket_dir, devices, what) as plugin:
        assert await plugin.ended() == code
        assert plugin.sockets == []
        assert "Traceback" not in plugin.output
        lines = [text for text in plugin.output.splitlines() if text.startswith("kubedevices:")]
        assert len(lines) == bool(line)
        assert "".join(lines).startswith(line)


async def test_a_refusal_ends_the_program_with_the_kubelets_text(
    socket_dir: Path, devices: Path
) -> None:
    """T-12: exit code 1 and the kubelet's own words."""
    text = 'requested API version "v1beta1" is not supported by kubelet.'
    async with FakeKubelet(socket_dir) as kubelet:
        kubelet.refuse_with = RpcError(StatusCode.UNKNOWN, text)
        async with plugin_process(socket_dir, devices) as plugin:
            assert await plugin.ended() == 1
            assert text in plugin.output.splitlines()[-1]
            assert "Traceback" not in plugin.output


async def test_devices_are_followed_by_a_process(socket_dir: Path, devices: Path) -> None:
    """Plugged in, broken, unplugged: the kubelet hears of each."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices):
        await kubelet.wait_for(RESOURCE, healthy("w1"))
        (devices / "w2").touch()
        await kubelet.wait_for(RESOURCE, healthy("w1", "w2"))
        (devices / "w1").write_text("Unhealthy")
        await kubelet.wait_for(RESOURCE, {"w1": "Unhealthy", "w2": "Healthy"})
        (devices / "w1").unlink()
        await kubelet.wait_for(RESOURCE, healthy("w2"))
