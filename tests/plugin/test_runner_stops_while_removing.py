"""Stopping a plugin in the middle of something else."""

import asyncio
from pathlib import Path

import pytest

import kubedevices as kd
from tests.waiting import until


class OneTypeThatGoes(kd.Scanner):
    """Reports a widget, and on `leave` a tree without its type."""

    def __init__(self) -> None:
        self.leave = asyncio.Event()

    async def scan(self, notifier: kd.Notifier) -> None:
        notifier.notify(kd.DeviceTree({"widget": [kd.Device("w0", numa_nodes=())]}))
        await self.leave.wait()
        notifier.notify(kd.DeviceTree())
        await notifier.wait_stopped()


@pytest.mark.parametrize("turns", range(12))
async def test_a_plugin_can_stop_while_a_type_is_being_removed(turns: int, short_dir: Path) -> None:
    """However far the removal has come, stopping waits for it and fails nothing."""
    scanner = OneTypeThatGoes()
    options: dict[str, object] = {"socket_dir": short_dir, "registration": "none"}
    async with kd.serve(scanner, domain="example.com", **options) as runner:  # type: ignore[call-overload]
        await until(lambda: runner.is_serving("widget"))
        scanner.leave.set()
        for _ in range(turns):
            await asyncio.sleep(0)
    assert not list(short_dir.iterdir())
