"""`kubedevices node` in its own process: start, ask, kill, and start again."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from kubedevices.node.services.control_client import ControlClient
from tests.waiting import until

ROOT = Path(__file__).parents[1]
LINE_LIMIT = 16 * 1024 * 1024  # an event names every device of a list that changed
COMMAND = (sys.executable, "-W", "error", "-m", "kubedevices.cli", "node", "-o", "json")


class NodeProcess:
    """One process of a node; `events` has every event from stdout, `log` the text of stderr."""

    def __init__(self, directory: Path, process: asyncio.subprocess.Process) -> None:
        self.directory, self.process = directory, process
        self.events: list[dict[str, Any]] = []
        self.log = ""
        self._readers = [
            asyncio.create_task(self._read_events(), name="events of a node"),
            asyncio.create_task(self._read_log(), name="log of a node"),
        ]

    @classmethod
    async def start(
        cls,
        directory: Path,
        *options: str,
        before: Sequence[str] = (),
        command: Sequence[str] = COMMAND,
    ) -> "NodeProcess":
        """Start a node on `directory`; the words of `before` are put in front of the command."""
        process = await asyncio.create_subprocess_exec(
            *before,
            *command,
            *options,
            *("--socket-dir", str(directory / "p"), "--state-dir", str(directory / "s")),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
        )
        return cls(directory, process)

    async def _read_events(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(json.loads(line))

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.log += line.decode()

    def told(self, kind: str) -> list[dict[str, Any]]:
        """Return all events of one kind."""
        return [event for event in self.events if event["event"] == kind]

    async def tells(self, kind: str) -> dict[str, Any]:
        """Wait for the first event of this kind."""
        await until(
            lambda: self.told(kind) or self.process.returncode is not None, 60, f"{kind} event"
        )
        assert self.told(kind), (self.events, self.log)
        return self.told(kind)[0]

    async def ask(self) -> ControlClient:
        """Return a client that is connected to the node."""
        return await ControlClient.connect(self.directory / "p", self.directory / "s")

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for the end of the process and of its output; return the exit code."""
        async with asyncio.timeout(20):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        return code


@contextlib.asynccontextmanager
async def node_process(
    directory: Path,
    *options: str,
    before: Sequence[str] = (),
    command: Sequence[str] = COMMAND,
) -> AsyncIterator[NodeProcess]:
    """Start a node and wait until it is ready; kill it at the end of the context."""
    node = await NodeProcess.start(directory, *options, before=before, command=command)
    try:
        await node.tells("ready")
        yield node
    finally:
        await node.end(signal.SIGKILL)
