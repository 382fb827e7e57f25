"""Kubelet, plugin and proxy as processes that stop or die: nothing is lost, nothing comes twice.

The kubelet is a node of ours. `KUBEDEVICES_ROUNDS=20` tries every kind of restart so often, in an
order of chance; else some kinds are tried once.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from tests.fake_plugin import RESOURCE
from tests.node_process import NodeProcess
from tests.stories import widget_plugin
from tests.waiting import until

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("KUBEDEVICES_ROUNDS", "0"))
TIMEOUT = 60.0
WHO = ("kubelet", "plugin", "proxy")
TERM, KILL = signal.SIGTERM, signal.SIGKILL

Kind = dict[str, signal.Signals]
"""Who ends, each by which signal."""

KINDS: tuple[Kind, ...] = tuple(
    dict(zip(names, numbers, strict=True))
    for names in (*combinations(WHO, 1), *combinations(WHO, 2))
    for numbers in product((TERM, KILL), repeat=len(names))
)

SOME: tuple[Kind, ...] = (
    {"plugin": KILL, "proxy": KILL},
    {"kubelet": KILL},
    {"kubelet": TERM, "proxy": TERM},
    {"plugin": TERM},
)


class Seen(NamedTuple):
    """What the kubelet of now has told of the resource."""

    registrations: int
    allocatable: int | None
    """None: nothing is connected."""


class Programs:
    """All three, below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.devices, rules = directory / "devices", directory / "rules.yaml"
        self.devices.mkdir()
        rules.write_text(f"resources: {{{RESOURCE}: {{hold: 5m}}}}")
        inside = directory / "in"
        self._words: dict[str, tuple[str | Path, ...]] = {
            "plugin": (widget_plugin.__name__, inside, self.devices),
            "proxy": (
                *("kubedevices.cli", "proxy", "--config", rules, "--plugin-dir", inside),
                *("--socket-dir", directory / "p", "--state-dir", directory / "state"),
            ),
        }
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.kubelet: NodeProcess | None = None
        self.lives: list[NodeProcess] = []
        """Of the kubelet."""

    def turn(self, device: str, health: str) -> None:
        """Let the plugin find this health."""
        new = self.directory / device
        new.write_text(health)
        new.rename(self.devices / device)

    def log(self, who: str) -> Path:
        """Return what a program said in all its lives."""
        return self.directory / f"{who}.log"

    async def start(self, *names: str) -> None:
        """Start programs; they need not be ready."""
        for name in names:
            if name == "kubelet":
                self.kubelet = await NodeProcess.start(self.directory)
                self.lives.append(self.kubelet)
                self._running[name] = self.kubelet.process
                continue
            with self.log(name).open("a") as log:
                self._running[name] = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-W", "error", "-m", *self._words[name]),
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                )

    async def end(self, kind: Kind) -> None:
        """Send the signals at once, and wait for the ends."""
        for name, number in kind.items():
            self._running[name].send_signal(number)
        async with asyncio.timeout(TIMEOUT):
            for name, number in kind.items():
                code = await self._running.pop(name).wait()
                # 1: a machine that stood still, and the watchdog of the process was faster.
                assert code in ({-number} if number == KILL else {0, 1}), (name, code)
        if "kubelet" in kind and self.kubelet is not None:
            await self.kubelet.ended()

    def seen(self) -> Seen:
        """Return what the kubelet knows."""
        assert self.kubelet is not None
        allocatable = None
        for event in self.kubelet.events:
            if event["event"] == "disconnected":
                allocatable = None
            allocatable = event.get("allocatable", allocatable)
        return Seen(len(self.kubelet.told("registered")), allocatable)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                process.kill()
            await process.wait()
        if self.kubelet is not None:
            await self.kubelet.ended()


@pytest.mark.slow
@pytest.mark.timeout(240 + 7200 * (ROUNDS > 0))
async def test_the_kubelet_keeps_its_devices_over_restarts_of_each_process(short_dir: Path) -> None:
    """By SIGKILL and SIGTERM; a device turns meanwhile. The kubelet never sees fewer devices, gets
    each change, and each process of the proxy registers once at each process of the kubelet.
    """
    kinds = [*KINDS] * ROUNDS or [*SOME]
    if ROUNDS:
        random.Random(ROUNDS).shuffle(kinds)
    async with Programs(short_dir) as programs:

        async def sees(registrations: int, allocatable: int) -> None:
            expected = Seen(registrations, allocatable)
            try:
                await until(lambda: programs.seen() == expected, TIMEOUT, str(expected))
            except AssertionError as error:
                error.add_note(str(programs.seen()))
                for who in ("proxy", "plugin"):
                    error.add_note(programs.log(who).read_text()[-8000:])
                raise

        for device in "ab":
            programs.turn(device, "Healthy")
        await programs.start("kubelet", "proxy")
        await until((short_dir / "in" / "kubelet.sock").exists, TIMEOUT)
        await programs.start("plugin")
        await sees(1, 2)
        for kind in kinds:
            before, health = programs.seen(), ("Healthy", "Unhealthy")
            await programs.end(kind)
            programs.turn("a", health[before.allocatable == 2])
            await programs.start(*kind)
            again = 0 if "kubelet" in kind else before.registrations
            again += kind.keys() & {"kubelet", "proxy"} != set()
            await sees(again, 1 if before.allocatable == 2 else 2)
        await programs.end(dict.fromkeys(WHO, TERM))
        for life in programs.lives:
            assert {each["capacity"] for each in life.events if "capacity" in each} <= {2}
            assert all(not each["vanished"] for each in life.told("list changed"))
        assert "Traceback" not in programs.log("proxy").read_text()
