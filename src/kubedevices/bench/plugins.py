"""Handles of the plugins on a bench: a scanner in the bench's own loop, or any program.

A plugin that ends although nobody asked it to has failed: `Bench.wait_for` says so at once instead
of waiting in vain, and the end of the bench does if nobody looked before.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, Unpack

from kubedevices.bench.loop_thread import LoopThread
from kubedevices.errors import NotInTime, PluginNotStarted
from kubedevices.modes import Runner
from kubedevices.plugin.author_code import forget_our_frames
from kubedevices.plugin.options import RunnerOptions
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.scanner import Scanner

__tracebackhide__ = True  # a failing test shows its own lines, not ours

AnyRunner = TypeVar("AnyRunner", bound=Runner)

_LAST_WORDS = 2000


class RunningPlugin(ABC):
    """What tests do to a plugin, whatever it is made of."""

    def __init__(self) -> None:
        self._was_told = False  # to end, or its failure was raised

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it has not ended."""

    @abstractmethod
    def stop(self, timeout: float = 10) -> None:
        """Ask it to end, as a node does with SIGTERM, and wait for that."""

    @abstractmethod
    def kill(self) -> None:
        """End it without a chance to tidy up: sockets stay behind."""

    @abstractmethod
    def failure(self) -> BaseException | None:
        """Return why it ended by itself, None if it runs or was told to end."""

    def last_words(self) -> str:
        """Return the end of what it wrote, if it writes."""
        return ""

    def raise_failure(self) -> None:
        """Raise its failure, once."""
        if not self._was_told and (error := self.failure()):
            self._was_told = True
            forget_our_frames(error)
            raise error


class RunnerPlugin(RunningPlugin, Generic[AnyRunner]):
    """A scanner served by the bench's own thread; `make` returns what serves it."""

    def __init__(
        self,
        thread: LoopThread,
        scanner: Scanner,
        domain: str,
        make: Coroutine[Any, Any, AnyRunner],
    ) -> None:
        super().__init__()
        self._thread, self._domain = thread, domain
        self.scanner = scanner
        self._task = thread.call(self._start(make))

    def __repr__(self) -> str:
        state = "running" if self.is_running else "ended"
        return f"<{type(self).__name__} {self.runner!r} {state}>"

    async def _start(self, make: Coroutine[Any, Any, AnyRunner]) -> "asyncio.Task[None]":
        self.runner = await make
        return asyncio.create_task(self.runner.run(), name=f"plugin {self._domain}")

    @abstractmethod
    def socket_files(self) -> list[Path]:
        """Return the sockets that a kill leaves behind."""

    @property
    def is_running(self) -> bool:
        """Whether it still scans or serves."""
        return not self._task.done()

    def failure(self) -> BaseException | None:
        """Return what ended it, such as `ScanFailed` or `RegistrationRefused`."""
        if not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    def stop(self, timeout: float = 10) -> None:
        """End it in good order; raises what it failed with, and `NotInTime`."""
        self.runner.stop()
        self.wait_ended(timeout)
        self._was_told = True

    def wait_ended(self, timeout: float = 10) -> None:
        """Wait until it ends by itself; raises what ended it, and `NotInTime`."""
        self._thread.call(self._wait(timeout))
        if self.is_running:
            raise NotInTime(self._domain, "ended", timeout, repr(self.runner))
        self.raise_failure()

    def kill(self) -> None:
        """Cut its connections and leave its socket files, as SIGKILL would."""
        self._was_told = True
        self._thread.call(self._kill())

    async def _wait(self, timeout: float | None = None) -> None:
        await asyncio.wait({self._task}, timeout=timeout)

    async def _kill(self) -> None:
        kept: list[tuple[Path, Path]] = []
        for socket in self.socket_files():
            other = socket.with_name(f".dead-{len(kept)}")
            with contextlib.suppress(FileNotFoundError):
                other.hardlink_to(socket)  # a second name: the runner removes only the first
                kept.append((socket, other))
        self._task.cancel()
        await self._wait()
        for socket, other in kept:
            if socket.exists():
                other.unlink()
            else:
                other.rename(socket)


class ScannerPlugin(RunnerPlugin[PluginRunner]):
    """A scanner served by the bench's own thread; made by `Bench.start`."""

    def __init__(
        self, thread: LoopThread, scanner: Scanner, domain: str, **options: Unpack[RunnerOptions]
    ) -> None:
        async def make() -> PluginRunner:
            return PluginRunner(scanner, domain=domain, **options)

        super().__init__(thread, scanner, domain, make())

    def socket_files(self) -> list[Path]:
        """Return the sockets of its resources."""
        runner, domain = self.runner, self._domain
        return [runner.settings.socket_of(f"{domain}/{name}", name) for name in runner.servers]


class ProcessPlugin(RunningPlugin):
    """A program that talks to the bench's node; made by `Bench.attach`."""

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        log: Path,
    ) -> None:
        super().__init__()
        self.command = tuple(os.fspath(word) for word in command)
        self._log, self._is_group_ended = log, False
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    self.command,
                    env=dict(env),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise PluginNotStarted(f"{self.command[0]}: {error.strerror}") from error

    def __repr__(self) -> str:
        code = self.returncode
        state = "running" if code is None else f"ended with {code}"
        return f"<ProcessPlugin {self.pid} {state}: {' '.join(self.command)}>"

    @property
    def pid(self) -> int:
        """Its process ID, which is that of its group, too."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.returncode is None

    @property
    def output(self) -> str:
        """Everything it wrote so far, both streams."""
        try:
            return self._log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def last_words(self) -> str:
        """Return the end of its output."""
        return self.output[-_LAST_WORDS:].rstrip()

    def failure(self) -> PluginNotStarted | None:
        """Return that it ended with an exit code above 0."""
        if not (code := self.returncode) or code < 0:
            return None
        return PluginNotStarted(f"it ended with exit code {code}\n{self.last_words()}".rstrip())

    def stop(self, timeout: float = 10) -> None:
        """Send SIGTERM and wait for the end; one that does not end is killed: `NotInTime`."""
        self._was_told = True
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            name = Path(self.command[0]).name
            raise NotInTime(name, "ended", timeout, "still running after SIGTERM") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it and everything that it started."""
        self._was_told = True
        self._kill_group()
        self._process.wait()

    def _kill_group(self) -> None:
        if not self._is_group_ended:  # afterwards its number may belong to somebody else
            self._is_group_ended = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
