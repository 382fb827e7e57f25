"""kubedevices.host.service_manager"""

import contextlib
import logging
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.host import service_manager


@pytest.fixture(params=["file", "abstract"])
def manager(
    request: pytest.FixtureRequest, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """Listen as systemd does, at a file or at an abstract name."""
    name = str(short_dir / "notify") if request.param == "file" else f"@kd-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name[1:] if name.startswith("@") else name)
        listener.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listener


def test_the_service_manager_gets_the_state(manager: socket.socket) -> None:
    """One datagram for each state."""
    assert service_manager.is_listening()
    service_manager.notify(service_manager.READY)
    service_manager.notify(service_manager.STOPPING)
    assert [manager.recv(99), manager.recv(99)] == [b"READY=1", b"STOPPING=1"]


def test_without_a_service_manager_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same for an empty variable."""
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
        else:
            monkeypatch.setenv("NOTIFY_SOCKET", value)
        assert not service_manager.is_listening()
        service_manager.notify(service_manager.READY)
    assert not caplog.records


@pytest.mark.parametrize("name", ["gone", "a/b/c", "x" * 200, "@gone", "@" + "x" * 200])
def test_a_failed_report_to_the_service_manager_is_logged(
    name: str, short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The plugin goes on: serving devices is more important."""
    place = name if name.startswith("@") else str(short_dir / name)
    monkeypatch.setenv("NOTIFY_SOCKET", place)
    with caplog.at_level(logging.WARNING):
        service_manager.notify(service_manager.READY)
    (record,) = caplog.records
    assert "cannot tell the service manager" in record.getMessage()


def test_a_full_queue_of_the_service_manager_delays_nothing(
    manager: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """With a full queue, `notify` returns after half a second."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b"x", manager.getsockname())
    service_manager.notify(service_manager.READY)
    assert "cannot tell the service manager" in caplog.text
