"""The sockets for commands: if the file exists, a command can connect."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from kubedevices.node.device_manager import DeviceManager
from kubedevices.proxy.state_service import serving_state
from kubedevices.rules.step_control import StepControl
from kubedevices.wire import unix_socket


@asynccontextmanager
async def a_node(directory: Path) -> AsyncIterator[None]:
    async with DeviceManager(directory):
        yield


@asynccontextmanager
async def steps(directory: Path) -> AsyncIterator[None]:
    control = StepControl(directory / "steps.sock", lambda _: 1, dict)
    await control.start()
    yield
    await control.stop()


def a_proxy(directory: Path) -> AbstractAsyncContextManager[None]:
    return serving_state(directory, {}, lambda _: None)


@pytest.mark.parametrize("serving", [a_node, steps, a_proxy])
async def test_a_socket_file_appears_only_when_the_socket_listens(
    serving: Callable[[Path], AbstractAsyncContextManager[None]],
    short_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command shortly after the start must not get "connection refused"."""
    dialled: list[str] = []
    move_into_place = unix_socket.move_into_place

    def give_name_and_dial(first: Path, path: Path) -> None:
        move_into_place(first, path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        dialled.append(path.name)

    monkeypatch.setattr(unix_socket, "move_into_place", give_name_and_dial)
    async with serving(short_dir):
        there = {path.name for path in short_dir.iterdir() if path.is_socket()}
        assert there == set(dialled)
        assert there
