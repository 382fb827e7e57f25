"""Plugins in their own processes: start, signal, wait, read the output."""

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
    """A running plugin program; `output` is its whole output so far."""

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
        """The names of all files except kubelet.sock; sockets without their instance suffix."""
        names = (path.name for path in self.socket_dir.iterdir())
        return without_instance(name for name in names if name != "kubelet.sock")

    @property
    def socket(self) -> Path:
        """The only plugin socket in the directory."""
        (path,) = (path for path in self.socket_dir.glob("*.sock") if path.name != "kubelet.sock")
        return path

    async def said(self, text: str, timeout: float = 30) -> None:
        """Wait until the output has `text`."""
        await until(lambda: text in self.output, timeout, f"{text!r} in {self.output!r}")

    async def ended(self, timeout: float = 30) -> int:
        """Wait for the end; return the exit code, the negative number of a signal."""
        code = await asyncio.wait_for(self.process.wait(), timeout)
        await asyncio.wait_for(self._reader, timeout)
        return code

    async def terminate(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code, 1 if the watchdog ended the process after 2 s."""
        self.process.send_signal(number)
        return await self.ended()

    async def kill(self) -> None:
        """Send SIGKILL: the plugin cannot clean up."""
        self.process.kill()
        await self.ended()


@contextlib.asynccontextmanager
async def plugin_process(
    socket_dir: Path, *arguments: str | Path, module: str = "tests.stories.widget_plugin"
) -> AsyncIterator[PluginProcess]:
    """Start `python -m MODULE SOCKET_DIR ARGUMENTS`; kill it at the end of the context if it still
    runs.
    """
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
