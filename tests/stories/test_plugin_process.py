"""A plugin program: signals, exit codes, and its last log lines."""

import asyncio
import signal
from pathlib import Path

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.values.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
    PreStartContainerRequest,
)
from tests.fake_kubelet import FakeKubelet
from tests.plugin_process import plugin_process
from tests.waiting import until
from tests.widgets import RESOURCE, healthy

NO_ERRORS = ("Traceback", "ERROR", "Exception")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_a_plugin_that_waits_for_a_kubelet(
    socket_dir: Path, devices: Path, number: int
) -> None:
    """Without a kubelet a signal ends the plugin: exit code 0, socket removed."""
    async with plugin_process(socket_dir, devices) as plugin:
        await plugin.said("waiting for the kubelet")
        assert plugin.sockets == ["example.com-widget.sock"]
        assert await plugin.terminate(number) == 0
        assert plugin.sockets == []
        assert not any(word in plugin.output for word in NO_ERRORS)


async def test_a_signal_ends_a_plugin_that_waits_for_the_directory(
    short_dir: Path, devices: Path
) -> None:
    """The same on a host on which no kubelet was ever installed."""
    async with plugin_process(short_dir / "missing", devices) as plugin:
        await plugin.said("is a kubelet installed here?")
        assert await plugin.terminate() == 0


async def test_a_signal_ends_a_plugin_during_registration(socket_dir: Path, devices: Path) -> None:
    """While the kubelet has not answered Register."""
    async with FakeKubelet(socket_dir) as kubelet:
        kubelet.register_gate = asyncio.Event()
        async with plugin_process(socket_dir, devices) as plugin:
            await kubelet.wait_requests(1)
            assert await plugin.terminate() == 0
            assert plugin.sockets == []


@pytest.mark.parametrize("hook", ["allocate", "pre_start"])
async def test_a_signal_ends_a_plugin_whose_hook_hangs(
    socket_dir: Path, devices: Path, hook: str
) -> None:
    """The plugin does not wait for a sleeping hook, and the log names the hook."""
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


async def test_a_second_signal_ends_a_plugin_at_once(socket_dir: Path, devices: Path) -> None:
    """Exit code 128 + signal; the socket is removed too."""
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


async def test_a_plugin_with_a_blocked_event_loop_ends_after_a_signal(
    socket_dir: Path, devices: Path
) -> None:
    """An `async` scanner that blocks the loop is ended after 2 s; the sockets are removed."""
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
async def test_a_program_that_ends_by_itself_has_the_right_exit_code(
    socket_dir: Path, devices: Path, what: str, code: int, line: str
) -> None:
    """One line, no traceback, the exit code of the error; the socket is removed."""
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
    """Exit code 1 and the kubelet's text."""
    text = 'requested API version "v1beta1" is not supported by kubelet.'
    async with FakeKubelet(socket_dir) as kubelet:
        kubelet.refuse_with = RpcError(StatusCode.UNKNOWN, text)
        async with plugin_process(socket_dir, devices) as plugin:
            assert await plugin.ended() == 1
            assert text in plugin.output.splitlines()[-1]
            assert "Traceback" not in plugin.output


async def test_device_changes_of_a_program_reach_the_kubelet(
    socket_dir: Path, devices: Path
) -> None:
    """A device is added, becomes unhealthy, and is removed."""
    async with FakeKubelet(socket_dir) as kubelet, plugin_process(socket_dir, devices):
        await kubelet.wait_for(RESOURCE, healthy("w1"))
        (devices / "w2").touch()
        await kubelet.wait_for(RESOURCE, healthy("w1", "w2"))
        (devices / "w1").write_text("Unhealthy")
        await kubelet.wait_for(RESOURCE, {"w1": "Unhealthy", "w2": "Healthy"})
        (devices / "w1").unlink()
        await kubelet.wait_for(RESOURCE, healthy("w2"))
