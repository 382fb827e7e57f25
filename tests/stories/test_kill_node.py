"""A node is killed with SIGKILL at random times while pods start and end.

A call is acknowledged if a client outside of the killed process has read the reply. After each
restart no device may be held twice, and no acknowledged call may be lost. `KUBEDEVICES_KILLS=200`
sets the number of kills to the target (default: 20). All random decisions of the test have a fixed
seed.

The node is the real command, its client is the control service's own, the plugin is in the test's
process and registers again after every restart, as plugins do.
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from kubedevices.errors import KubedevicesError
from kubedevices.node.checkpoint.text import Checkpoint, parse_checkpoint
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.services.control_client import ControlClient
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.node_process import COMMAND, NodeProcess, node_process
from tests.waiting import until

KILLS = int(os.environ.get("KUBEDEVICES_KILLS", "20"))
SEED = int(os.environ.get("KUBEDEVICES_SEED", "1"))
CLIENTS = 4
DEVICES = [f"d{number}" for number in range(12)]
MOST_REPLIES = 60

_SHORTEN = """\
import sys, kubedevices.node.ledger.ledger as ledger
from kubedevices.cli import main
ledger._CHANGES_PER_LOG = ledger._LONG_LOG = 10
sys.exit(main(sys.argv[1:]))
"""
SHORT_LOGS = (sys.executable, "-W", "error", "-c", _SHORTEN, *COMMAND[-3:])
"""The same command, with the ledger's log moved into its main file forty times as often."""

Devices = frozenset[str]


class Ledger:
    """What the clients know: all replies, and the calls that were open when the node died."""

    def __init__(self) -> None:
        self.admitted: dict[str, Devices] = {}
        self.in_doubt: set[str] = set()
        self.replies = self.number = 0

    def compare(self, held: dict[str, Devices]) -> None:
        """Check the devices that a new node reports, then record them."""
        twice = [device for device, pods in Counter(flat(held)).items() if pods > 1]
        assert not twice, f"held twice: {twice}"
        for name, devices in self.admitted.items():
            if name not in self.in_doubt:
                assert held.get(name) == devices, f"acknowledged and lost: {name}"
        unknown = held.keys() - self.admitted.keys() - self.in_doubt
        assert not unknown, f"held by pods that were released or rejected: {unknown}"
        self.admitted = dict(held)
        self.in_doubt.clear()


def flat(held: dict[str, Devices]) -> list[str]:
    return [device for devices in held.values() for device in devices]


async def held_now(client: ControlClient) -> dict[str, Devices]:
    """Return the devices of each pod, from the node."""
    held = {}
    for pod in (await client.pods())["pods"]:
        devices = [each for c in pod["containers"] for each in c["devices"].get(RESOURCE, [])]
        assert len(devices) == len({*devices})
        held[pod["name"]] = frozenset(devices)
    return held


class Client:
    """Admits and releases its own pods without pauses, until the node is killed."""

    def __init__(self, number: int, ledger: Ledger, dice: random.Random) -> None:
        self.number, self.ledger, self.dice = number, ledger, dice

    async def run(self, node: ControlClient) -> None:
        while True:
            mine = [name for name in self.ledger.admitted if name.startswith(f"{self.number}-")]
            if mine and self.dice.random() < 0.5:
                await self.release(node, self.dice.choice(mine))
            else:
                await self.admit(node)

    async def admit(self, node: ControlClient) -> None:
        self.ledger.number += 1
        name = f"{self.number}-{self.ledger.number}"
        counts = self.dice.choices((1, 2), k=self.dice.choice((1, 2)))
        asked = Pod(
            name,
            containers=tuple(Container(f"c{n}", {RESOURCE: c}) for n, c in enumerate(counts)),
        )
        self.ledger.in_doubt.add(name)
        try:
            answer = await node.allocate(asked)
        except KubedevicesError as error:
            if "requested number of devices unavailable" not in str(error):
                raise
            self.ledger.in_doubt.remove(name)
            return
        devices = [d for c in answer["containers"] for d in c["devices"][RESOURCE]]
        assert not {*devices} & {
            device
            for other, theirs in self.ledger.admitted.items()
            if other not in self.ledger.in_doubt
            for device in theirs
        }
        self.ledger.admitted[name] = frozenset(devices)
        self.ledger.in_doubt.remove(name)
        self.ledger.replies += 1

    async def release(self, node: ControlClient, name: str) -> None:
        self.ledger.in_doubt.add(name)
        await node.release(name)
        del self.ledger.admitted[name]
        self.ledger.in_doubt.remove(name)
        self.ledger.replies += 1


async def one_life(directory: Path, ledger: Ledger, dice: random.Random) -> None:
    """Start the node, compare, start and end pods, and kill the node at a random time."""
    command = dice.choice((COMMAND, SHORT_LOGS))
    if dice.random() < 0.1:
        node = await NodeProcess.start(directory, command=command)
        await asyncio.wait({asyncio.ensure_future(node.ended())}, timeout=dice.uniform(0, 0.5))
        await node.end(signal.SIGKILL)
    async with (
        node_process(directory, command=command) as node,
        FakePlugin(directory / "p", devices=healthy(*DEVICES)) as plugin,
    ):
        assert not [*directory.rglob("*.corrupt-*")]
        clients = [await node.ask() for _ in range(CLIENTS)]
        ledger.compare(await held_now(clients[0]))
        await plugin.register()
        await node.tells("list changed")
        work = [
            asyncio.create_task(Client(number, ledger, dice).run(client))
            for number, client in enumerate(clients)
        ]
        enough = ledger.replies + dice.randint(0, MOST_REPLIES)
        await until(lambda: ledger.replies >= enough, 60, "replies")
        await asyncio.wait(work, timeout=dice.uniform(0, 0.02))
        await node.end(signal.SIGKILL)
        for end in await asyncio.gather(*work, return_exceptions=True):
            assert isinstance(end, KubedevicesError), end
        for client in clients:
            await client.__aexit__()
    checkpoint = directory / "p/kubelet_internal_checkpoint"
    if checkpoint.exists():
        assert isinstance(parse_checkpoint(checkpoint.read_bytes()), Checkpoint)


@pytest.mark.slow
@pytest.mark.timeout(120 + 5 * KILLS)
async def test_a_node_can_be_killed_at_any_time(short_dir: Path) -> None:
    """No device is held twice, no acknowledged allocation is lost, no released one comes back."""
    dice = random.Random(SEED)
    ledger = Ledger()
    for _ in range(KILLS):
        await one_life(short_dir, ledger, dice)
    async with node_process(short_dir) as node, await node.ask() as client:
        ledger.compare(await held_now(client))
    assert ledger.replies > MOST_REPLIES / 4 * KILLS
    print(f"\n{KILLS} kills, {ledger.replies} replies, {len(ledger.admitted)} pods in the end")
