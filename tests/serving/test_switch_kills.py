"""The process is killed with SIGKILL during a switch, while pods of both APIs run.

At no time both APIs offer or hold a device (`NodeRig` checks), and after each kill the next process
moves every free device to its wanted API. `KUBEDEVICES_KILLS=200` sets the number of kills
(default: 5). All random decisions of the test have a fixed seed.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kubedevices.errors import DialError, RpcError
from tests.serving.node_rig import NodeRig
from tests.waiting import until

KILLS = int(os.environ.get("KUBEDEVICES_KILLS", "5"))
SEED = int(os.environ.get("KUBEDEVICES_SEED", "1"))
BOTH = {"w-0", "w-1"}
LONGEST = 0.6
"""Seconds from the change of the mode, or from the start, to the kill."""


class Story:
    """The running pods: at most one with a device of the plugin, and one with a claim."""

    def __init__(self, rig: NodeRig, dice: random.Random) -> None:
        self.rig, self.dice = rig, dice
        self.mode = "device-plugin"
        self.claim = ""
        self.number = 0

    @contextlib.asynccontextmanager
    async def process(self) -> AsyncIterator[None]:
        """Run the scanner until the body ends; then kill it."""
        with (self.rig.directory / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.serving.switching_process", str(self.rig.directory),
                stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield
            assert process.returncode is None, (self.rig.directory / "log").read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()

    @property
    def held(self) -> set[str]:
        return {*self.rig.pods.held, *self.rig.claimed}

    def is_settled(self) -> bool:
        """Whether every device that the other API does not hold is in its wanted API."""
        rig = self.rig
        if self.mode == "dra":
            return rig.published == BOTH - rig.pods.held.keys()
        return set(rig.pods.offered) == BOTH - rig.claimed and not rig.published

    def switch(self) -> None:
        self.mode = {"dra": "device-plugin", "device-plugin": "dra"}[self.mode]
        self.rig.choose(self.mode)

    async def begin_pod(self) -> None:
        """Start a pod as a scheduler does; both APIs may have a pod."""
        rig, free = self.rig, sorted(BOTH - self.held)
        if not free or self.dice.random() < 0.3:
            return
        device = self.dice.choice(free)
        if self.mode == "device-plugin" and not rig.pods.held:
            await rig.allocate(device, "old")
        elif self.mode == "dra" and not self.claim:
            self.number += 1
            self.claim = f"{self.number}"
            rig.give(self.claim, device)
            await self.ask(rig.prepare)

    async def end_pod(self) -> None:
        if self.dice.random() < 0.5:
            self.rig.pods.held.clear()
        if self.claim and self.dice.random() < 0.5:
            await self.ask(self.rig.end)
            self.claim = ""

    async def ask(self, call: Callable[[str], Awaitable[dict[str, str]]]) -> None:
        """Prepare the claim; repeat the call until the process, which has just started, serves."""
        async with asyncio.timeout(60):
            while True:
                try:
                    answer = (await call(self.claim))[self.claim]
                except (DialError, RpcError):
                    await asyncio.sleep(0.02)
                else:
                    assert not answer
                    return


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * KILLS)
async def test_a_switch_goes_on_after_a_kill(rig: NodeRig) -> None:
    """Pods of both APIs keep their devices; free devices go to the wanted API."""
    story = Story(rig, random.Random(SEED))
    rig.choose(story.mode)
    for _ in range(KILLS):
        async with story.process():
            await until(story.is_settled)
            await story.begin_pod()
            held = story.held
            story.switch()
            await asyncio.sleep(story.dice.random() * LONGEST)  # the instant
        if story.dice.random() < 0.3:
            story.switch()
        async with story.process():
            await asyncio.sleep(story.dice.random() * 2 * LONGEST)  # while it starts and switches
        async with story.process():
            await until(story.is_settled)
            assert story.held == held
            await story.end_pod()
            await until(story.is_settled)
