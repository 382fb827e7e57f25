"""Plugins as processes of their own: start, signal, wait, read what they said."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.waiting import until
from tests.widgets import without_instance

ROOT = Path(__file__).parents[1]


class PluginProcess:
    """A running plugin program; `output` is everything it wrote so far."""

    def __init__(self, process: asyncio.subprocess.Process, socket_dir: Path) -> None:
        self.process, self.socket_dir = process, socket_dir
        self.output = ""
        self._reader = asyncio.create_task(self._read(), name="output of a plugin")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.output += line.decode()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.returncode is None

    @property
    def sockets(self) -> list[str]:
        """Which files are there besides kubelet.sock; of instances their stems."""
        names = (path.name for path in self.socket_dir.iterdir())
        return without_instance(name for name in names if name != "kubelet.sock")

    @property
    def socket(self) -> Path:
        """The one socket of a plugin in the directory."""
        (path,) = (path for path in self.socket_dir.glob("*.sock") if path.name != "kubelet.sock")
        return path

    async def said(self, text: str, timeout: float = 30) -> None:
        """Wait until it wrote `text`."""
        await until(lambda: text in self.output, timeout, f"{text!r} in {self.output!r}")

    async def ended(self, timeout: float = 30) -> int:
        """Wait for its end and return the exit code, as a shell would have it negative."""
        code = await asyncio.wait_for(self.process.wait(), timeout)
        await asyncio.wait_for(self._reader, timeout)
        return code

    async def terminate(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code, 1 where only the watchdog ended it after 2 s."""
        self.process.send_signal(number)
        return await self.ended()

    async def kill(self) -> None:
        """Let it die without a chance to tidy up."""
        self.process.kill()
        await self.ended()


@contextlib.asynccontextmanager
async def plugin_process(
    socket_dir: Path, *arguments: str | Path, module: str = "tests.stories.widget_plugin"
) -> AsyncIterator[PluginProcess]:
    """Start `python -m MODULE SOCKET_DIR ARGUMENTS`; killed in the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, socket_dir, *arguments,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    plugin = PluginProcess(process, socket_dir)
    try:
        yield plugin
    finally:
        if plugin.is_alive:
            await plugin.kill()
        else:
            await plugin.ended()
