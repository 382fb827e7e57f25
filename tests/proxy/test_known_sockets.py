"""The file of the plugins' sockets: a proxy finds them again that registered only once."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubedevices.host.state_file import StateFile
from kubedevices.plugin import hook_threads
from kubedevices.proxy.known_sockets import KnownSockets
from tests.fake_plugin import RESOURCE
from tests.waiting import until


async def test_the_last_change_counts_although_the_one_before_is_still_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy ends while the disk is slow: the older write must not end after the newer."""
    first, second, end = (threading.Event() for _ in range(3))
    write = StateFile.write

    def slow(file: StateFile, document: Mapping[str, Any]) -> None:
        if not first.is_set():
            first.set()
            if second.wait(0.2):  # no other write may begin meanwhile
                end.wait(20)
            write(file, document)
        else:
            second.set()
            write(file, document)
            end.set()

    monkeypatch.setattr(StateFile, "write", slow)
    sockets = KnownSockets(tmp_path)
    keeping = asyncio.create_task(sockets.keep())
    sockets.add(RESOURCE, Path("/run/old.sock"))
    await asyncio.to_thread(first.wait, 20)
    sockets.add(RESOURCE, Path("/run/new.sock"))
    keeping.cancel()
    await asyncio.wait({keeping})
    await hook_threads.settle()
    assert KnownSockets(tmp_path).load() == {RESOURCE: Path("/run/new.sock")}


async def test_what_is_removed_is_known_no_more(tmp_path: Path) -> None:
    """But not if the plugin has another socket meanwhile; and never twice."""
    sockets = KnownSockets(tmp_path)
    names = [f"example.com/{name}" for name in ("stays", "gone", "forgotten")]
    for name in names:
        sockets.add(name, Path("/run/a.sock"))
    keeping = asyncio.create_task(sockets.keep())
    sockets.add(names[0], Path("/run/b.sock"))
    for _ in range(2):
        sockets.remove(names[0], Path("/run/a.sock"))
        sockets.remove(names[1], Path("/run/a.sock"))
        sockets.forget(names[2])
    await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.wait({keeping})
    await hook_threads.settle()
    assert KnownSockets(tmp_path).load() == {names[0]: Path("/run/b.sock")}


async def test_a_change_during_a_write_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if nothing else changes until the proxy is killed."""
    began, may_end = threading.Event(), threading.Event()
    write = StateFile.write

    def gated(file: StateFile, document: Mapping[str, Any]) -> None:
        write(file, document)
        began.set()
        may_end.wait(20)

    monkeypatch.setattr(StateFile, "write", gated)
    sockets = KnownSockets(tmp_path)
    keeping = asyncio.create_task(sockets.keep())
    sockets.add(RESOURCE, Path("/run/old.sock"))
    await asyncio.to_thread(began.wait, 20)
    sockets.add(RESOURCE, Path("/run/new.sock"))
    may_end.set()
    await until(lambda: KnownSockets(tmp_path).load()[RESOURCE] == Path("/run/new.sock"), 20)
    keeping.cancel()
    await asyncio.wait({keeping})
