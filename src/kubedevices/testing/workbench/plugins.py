"""Handles of the plugins on a bench: a scanner in the bench's own loop, or any program.

A plugin that ends before the test ends it has failed. `Bench.wait_for` raises this failure at once;
if no call has raised it, the end of the bench raises it.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, Unpack

from kubedevices.errors import NotInTime, PluginNotStarted
from kubedevices.host.kept_output import read_output
from kubedevices.host.programs import start_failure
from kubedevices.plugin.author_errors import forget_our_frames
from kubedevices.plugin.options import RunnerOptions
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.stop_signals import Runner
from kubedevices.testing.workbench.loop_thread import LoopThread

__tracebackhide__ = True  # a failing test shows its own lines, not ours

AnyRunner = TypeVar("AnyRunner", bound=Runner)

T = TypeVar("T")

_LAST_WORDS = 2000
_LOOK_AT_PLUGINS = 0.05


class RunningPlugin(ABC):
    """A running plugin: what tests can do with it."""

    def __init__(self) -> None:
        # The test has ended the plugin, or its failure has been raised.
        self._is_handled = False

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the plugin has not ended."""

    @abstractmethod
    def stop(self, timeout: float = 10) -> None:
        """End the plugin as a node does with SIGTERM, and wait until it has ended."""

    @abstractmethod
    def kill(self) -> None:
        """End the plugin at once: its sockets stay."""

    @abstractmethod
    def failure(self) -> BaseException | None:
        """Return the error that ended the plugin, None if it runs or was stopped."""

    def last_words(self) -> str:
        """Return the end of the plugin's output, `""` if it has none."""
        return ""

    def raise_failure(self) -> None:
        """Raise the failure of the plugin, once."""
        if not self._is_handled and (error := self.failure()):
            self._is_handled = True
            forget_our_frames(error)
            raise error


class PluginHolder:
    """The plugins of a bench. A call ends as soon as one of them has failed."""

    _thread: LoopThread
    _plugins: list[RunningPlugin]

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop; raise the error of a plugin that fails before `work` ends."""
        return self._thread.call(self._unless_a_plugin_fails(work))

    async def _unless_a_plugin_fails(self, work: Coroutine[Any, Any, T]) -> T:
        waiting = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({waiting}, timeout=_LOOK_AT_PLUGINS))[0]:
                for plugin in self._plugins:
                    plugin.raise_failure()
            return waiting.result()
        finally:
            waiting.cancel()


class RunnerPlugin(RunningPlugin, Generic[AnyRunner]):
    """A scanner that the bench's own thread serves; `make` returns the runner that serves it."""

    def __init__(
        self,
        thread: LoopThread,
        scanner: Scanner,
        domain: str,
        make: Callable[[], AnyRunner],
    ) -> None:
        super().__init__()
        self._thread, self._domain = thread, domain
        self.scanner = scanner
        self._task = thread.call(self._start(make))

    def __repr__(self) -> str:
        state = "running" if self.is_running else "ended"
        return f"<{type(self).__name__} {self.runner!r} {state}>"

    async def _start(self, make: Callable[[], AnyRunner]) -> "asyncio.Task[None]":
        self.runner = make()
        return asyncio.create_task(self.runner.run(), name=f"plugin {self._domain}")

    @abstractmethod
    def socket_files(self) -> list[Path]:
        """Return the sockets that `kill` must leave."""

    @property
    def is_running(self) -> bool:
        """Whether the runner has not ended."""
        return not self._task.done()

    def failure(self) -> BaseException | None:
        """Return the error that ended the runner, such as `ScanFailed` or `RegistrationRefused`."""
        if not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    def stop(self, timeout: float = 10) -> None:
        """Stop the runner; raises the error of a failed plugin, and `NotInTime`."""
        self.runner.stop()
        self.wait_ended(timeout)
        self._is_handled = True

    def wait_ended(self, timeout: float = 10) -> None:
        """Wait until the plugin ends by itself; raises the error that ended it, and `NotInTime`."""
        self._thread.call(self._wait(timeout))
        if self.is_running:
            raise NotInTime(self._domain, "ended", timeout, repr(self.runner))
        self.raise_failure()

    def kill(self) -> None:
        """Close the connections and leave the socket files, as after SIGKILL."""
        self._is_handled = True
        self._thread.call(self._kill())

    async def _wait(self, timeout: float | None = None) -> None:
        await asyncio.wait({self._task}, timeout=timeout)

    async def _kill(self) -> None:
        kept: list[tuple[Path, Path]] = []
        for socket in self.socket_files():
            other = socket.with_name(f".dead-{len(kept)}")
            with contextlib.suppress(FileNotFoundError):
                other.hardlink_to(socket)  # the runner removes only the first name
                kept.append((socket, other))
        self._task.cancel()
        await self._wait()
        for socket, other in kept:
            if socket.exists():
                other.unlink()
            else:
                other.rename(socket)


class ScannerPlugin(RunnerPlugin[PluginRunner]):
    """A scanner that the bench's own thread serves; `Bench.start` creates it."""

    def __init__(
        self, thread: LoopThread, scanner: Scanner, domain: str, **options: Unpack[RunnerOptions]
    ) -> None:
        make = partial(PluginRunner, scanner, domain=domain, **options)
        super().__init__(thread, scanner, domain, make)

    def socket_files(self) -> list[Path]:
        """Return the sockets of all resources."""
        runner, domain = self.runner, self._domain
        return [runner.settings.socket_of(f"{domain}/{name}", name) for name in runner.servers]


class ProcessPlugin(RunningPlugin):
    """A program that is a plugin of the bench's node; `Bench.attach` creates it."""

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
            reason = start_failure(self.command[0], error, env).reason
            raise PluginNotStarted(f"{self.command[0]}: {reason}") from error

    def __repr__(self) -> str:
        code = self.returncode
        state = "running" if code is None else f"ended with {code}"
        return f"<ProcessPlugin {self.pid} {state}: {' '.join(self.command)}>"

    @property
    def pid(self) -> int:
        """The ID of the process, and of its process group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.returncode is None

    @property
    def output(self) -> str:
        """The output so far, of stdout and stderr; of a very long output beginning and end."""
        return read_output(self._log)

    def last_words(self) -> str:
        """Return the end of the output."""
        return self.output[-_LAST_WORDS:].rstrip()

    def failure(self) -> PluginNotStarted | None:
        """Return an error if the process ended with an exit code above 0."""
        if not (code := self.returncode) or code < 0:
            return None
        return PluginNotStarted(f"it ended with exit code {code}\n{self.last_words()}".rstrip())

    def stop(self, timeout: float = 10) -> None:
        """Send SIGTERM; kills a process that does not end in time, and raises `NotInTime`."""
        self._is_handled = True
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            name = Path(self.command[0]).name
            raise NotInTime(name, "ended", timeout, "still running after SIGTERM") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process and all processes of its group."""
        self._is_handled = True
        if not self._is_group_ended:  # afterwards another group may have the same ID
            self._is_group_ended = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
