"""How the drivers of a proxy start: their settings, their first list, and their second start."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubedevices.dra.driver import DraDriver
from kubedevices.errors import CannotAsk, CannotRead
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.proxy import dra_bridge
from kubedevices.proxy.dra_bridge import FILE_NAME, DomainScanner, DraBridge
from kubedevices.testing.workbench.dra_node import DraNode
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree
from tests.turns import Turns
from tests.waiting import until

if TYPE_CHECKING:
    from kubedevices.dra.options import DraOptions


class Silent(Scanner):
    """Reports nothing."""

    async def scan(self, notifier: Notifier) -> None:
        await notifier.wait_stopped()


class Seen(Notifier):
    """Notes the device types of each tree."""

    def __init__(self) -> None:
        super().__init__()
        self.types: list[list[str]] = []

    def notify(self, tree: DeviceTree) -> None:
        self.types.append([*tree])


def test_a_wrong_kubeconfig_is_an_error_before_any_driver_starts(tmp_path: Path) -> None:
    """Each driver would only log it, again and again."""
    with pytest.raises(CannotRead, match="none"):
        DraBridge({"kubeconfig": tmp_path / "none", "node_name": "bench"}, tmp_path)


@pytest.mark.parametrize("patience", [3600.0, 0.05])
async def test_the_first_tree_of_a_domain_waits_for_all_plugins(
    monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    """But not for ever: a tree without the devices of one would delete its slices."""
    monkeypatch.setattr(dra_bridge, "FIRST_LIST_TIMEOUT", patience)
    whole, seen = DomainScanner(), Seen()
    for name in ("card", "disk"):
        whole.add(name)
    scanning = asyncio.create_task(whole.scan(seen))
    whole.take("card", Silent(), DeviceTree({"card": [Device("c")]}))
    if patience > 1:
        async with Turns() as turns:
            await until(lambda: turns.count > 20)
        assert not seen.types
        whole.take("disk", Silent(), DeviceTree({"disk": [Device("d")]}))
    await until(lambda: seen.types, 20)
    assert seen.types == [["card", "disk"] if patience > 1 else ["card"]]
    scanning.cancel()
    await asyncio.wait({scanning})


async def test_drivers_that_are_started_again_are_those_of_all_domains(short_dir: Path) -> None:
    """Such as after an error of the bridge; until then they are problems, and answer nothing."""
    node, made = DraNode(short_dir / "k", short_dir / "cdi"), list[DraDriver]()
    await node.start()
    options: DraOptions = {
        "kubelet_dir": node.kubelet_dir,
        "cdi_dir": node.cdi_dir,
        "kubeconfig": node.kubeconfig,
        "node_name": "bench",
    }
    for domain in ("old.example", "new.example"):
        bridge = DraBridge(options, short_dir)
        serving = asyncio.create_task(bridge.serve(domain, Silent(), object()))
        await until(lambda: [*bridge.problems])  # noqa: B023
        serving.cancel()
        await asyncio.wait({serving})
    assert [*bridge.problems] == ["driver new.example: has not started"]
    with pytest.raises(CannotAsk, match="has not read its claims yet"):
        await bridge.holders("new.example")()
    known = json.loads((short_dir / FILE_NAME).read_text())
    assert known["domains"] == ["new.example", "old.example"]
    bridge.driver_made = made.append
    for count in (1, 2):
        running = asyncio.create_task(bridge.run())
        await until(lambda: len(made) == count, 20)  # noqa: B023
        running.cancel()
        await asyncio.wait({running})
    await node.stop()
