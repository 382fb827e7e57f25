"""Proxy and plugin as processes that stop or die: nothing is lost, nothing comes twice.

`KUBEDEVICES_ROUNDS` says how often, for a long run. `test_restarts` has the kubelet's restarts.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Self

from tests.fake_kubelet import FakeKubelet
from tests.fake_plugin import RESOURCE
from tests.stories import widget_plugin
from tests.waiting import until

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("KUBEDEVICES_ROUNDS", "1"))
TIMEOUT = 60.0
TURNS = (("plugin",), ("proxy",), ("plugin", "proxy"))


class Programs:
    """The proxy and the plugin behind it, below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.outside = directory, directory / "out"
        self.devices, rules = directory / "devices", directory / "rules.yaml"
        for each in (self.devices, self.outside):
            each.mkdir()
        rules.write_text(f"resources: {{{RESOURCE}: {{hold: 5m}}}}")
        inside = directory / "in"
        self._words: dict[str, tuple[str | Path, ...]] = {
            "plugin": (widget_plugin.__name__, inside, self.devices),
            "proxy": (
                *("kubedevices.cli", "proxy", "--config", rules, "--plugin-dir", inside),
                *("--socket-dir", self.outside, "--state-dir", directory / "state"),
            ),
        }
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.starts = 0
        """Of the proxy."""

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
            self.starts += name == "proxy"
            with self.log(name).open("a") as log:
                self._running[name] = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-W", "error", "-m", *self._words[name]),
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                )

    async def end(self, number: signal.Signals, *names: str) -> None:
        """Send a signal to all at once, and wait for their ends."""
        for name in names:
            self._running[name].send_signal(number)
        async with asyncio.timeout(TIMEOUT):
            codes = [await self._running.pop(name).wait() for name in names]
        # 1: a machine that stood still, and the watchdog of the process was faster.
        assert {*codes} <= ({-number} if number == signal.SIGKILL else {0, 1})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            await process.wait()


async def test_who_dies_is_followed_by_another(short_dir: Path) -> None:
    """By SIGKILL and SIGTERM; a device turns meanwhile. Nobody sees fewer devices, each change
    arrives, and each process of the proxy registers once.
    """
    async with Programs(short_dir) as programs, FakeKubelet(programs.outside) as kubelet:

        async def has(health: str) -> None:
            expected = {"a": health, "b": "Healthy"}
            try:
                await kubelet.wait_for(RESOURCE, expected, TIMEOUT)
                await until(lambda: len(kubelet.connected(RESOURCE)) == 1, TIMEOUT)
            except AssertionError as error:
                error.add_note(programs.log("proxy").read_text()[-8000:])
                error.add_note(programs.log("plugin").read_text()[-8000:])
                raise
            assert len(kubelet.requests) == programs.starts, programs.log("proxy").read_text()

        for device in "ab":
            programs.turn(device, "Healthy")
        await programs.start("proxy")
        await until((short_dir / "in" / "kubelet.sock").exists, TIMEOUT)
        await programs.start("plugin")
        await has("Healthy")
        for number in range(ROUNDS):
            alone, both = (signal.SIGKILL, signal.SIGTERM)[:: (1, -1)[number % 2]]
            for names in TURNS:
                health = "Unhealthy" if kubelet.devices(RESOURCE)["a"] == "Healthy" else "Healthy"
                await programs.end(both if len(names) > 1 else alone, *names)
                programs.turn("a", health)
                await programs.start(*names)
                await has(health)
        await programs.end(signal.SIGTERM, "plugin", "proxy")
        assert {len(each) for each in kubelet.lists(RESOURCE)} == {2}
        assert "Traceback" not in programs.log("proxy").read_text()
