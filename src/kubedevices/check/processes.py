"""The plugin's processes, as the check sees them: a supervisor starts, signals and kills them.

`harness` uses this module. The only process that this module starts itself is the supervisor.
"""

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from kubedevices.check.last_words import is_crash, last_words
from kubedevices.check.left_behind import MARK
from kubedevices.errors import CannotAsk, PluginNotStarted
from kubedevices.host import deadlines
from kubedevices.host.kept_output import read_output
from kubedevices.testing.kubelet.mounts import Bind

_ANSWER_LIMIT = 30.0
_SOURCES = Path(__file__).parents[2]


class SupervisorRefused(Exception):
    """The supervisor could not do a request. The text is the error of the operating system."""


class Process:
    """One started command. `exited` is set when it ends; `code` is negative for a signal."""

    def __init__(self, supervisor: "Supervisor", number: int, log: Path) -> None:
        self._supervisor = supervisor
        self._log = log
        self.number = number
        self.pid = 0
        self.code: int | None = None
        self.exited = asyncio.Event()
        self.ended_at = 0.0

    def __repr__(self) -> str:
        return f"<Process {self.pid} {'running' if self.running else self.end_text()}>"

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self.code is None

    async def send_signal(self, number: int) -> None:
        """Send a signal to the process, not to its children; do nothing if it has ended."""
        if self.running:
            await self._supervisor.ask("signal", pid=self.pid, signal=int(number))

    async def wait(self, timeout: float) -> bool:
        """Wait for the end, `timeout` seconds by the clock; return whether the process ended."""
        return await deadlines.within(timeout, self.exited.wait())

    def set_ended(self, code: int) -> None:
        """Record the end; called when the supervisor reports it."""
        self.code = code
        self.ended_at = asyncio.get_running_loop().time()
        self.exited.set()

    def end_text(self) -> str:
        """Return `exit code 2` or `killed by SIGSEGV`."""
        if self.code is None:
            return "still running"
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"

    def output(self) -> str:
        """Return the beginning and the end of the output, see `kept_output`."""
        return read_output(self._log)

    def exited_without_crash(self) -> bool:
        """Whether the process exited with an error but did not crash.

        Such a plugin relies on the kubelet, which starts its container again.
        """
        return self.code is not None and self.code > 0 and not is_crash(self.output())

    def cause(self) -> str:
        """Return why the process ended, the same text for equal crashes; `""` while it runs."""
        if self.running:
            return ""
        crash = self.last_words().partition("\n")[0] if is_crash(self.output()) else ""
        return f"its process ends: {crash or self.end_text()}"

    def last_words(self, lines: int = 3) -> str:
        """Return the lines that say why the process crashed, or the last lines of its output."""
        return last_words(self.output(), lines)


class Waitable(Protocol):
    """A process with a method `wait`."""

    def wait(self, timeout: float) -> object:
        """Wait for the end, at most `timeout` seconds."""


def _start_supervisor(control: socket.socket) -> Waitable:
    return subprocess.Popen(
        # -P: do not import a file in the user's directory instead of one of our modules.
        [sys.executable, "-P", "-m", f"{__package__}.supervisor", str(control.fileno())],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(control.fileno(),),
        cwd="/",
        env=os.environ | {"PYTHONPATH": str(_SOURCES)},
    )


class Supervisor:
    """The connection to a supervisor. `close` ends all processes that the supervisor started."""

    start_supervisor: ClassVar[Callable[[socket.socket], Waitable]] = staticmethod(
        _start_supervisor
    )
    """Starts the supervisor. Tests replace this by the fork of a process with loaded plugins."""

    def __init__(self, control: socket.socket, supervisor: Waitable) -> None:
        self._control = control
        self._supervisor = supervisor
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._processes: dict[int, Process] = {}
        self._reading: asyncio.Task[None] | None = None
        self.on_end: Callable[[], None] = lambda: None
        self.pid = 0
        self._work = Path()

    @classmethod
    async def open(cls, work: Path) -> "Supervisor":
        """Start a supervisor; when it ends, it removes the directory `work` if that exists."""
        ours, theirs = socket.socketpair()
        with theirs:
            connection = cls(ours, cls.start_supervisor(theirs))
        ours.setblocking(False)
        connection._work = work
        connection._reading = asyncio.create_task(connection._read(), name="supervisor's answers")
        try:
            answer = await connection.ask("remove", path=str(work))
            connection.pid = answer["supervisor"]
        except BaseException:
            await connection.close()
            raise
        return connection

    async def enter_private_view(self, binds: Sequence[Bind]) -> None:
        """Show `binds` to all processes that start from now on; raises `SupervisorRefused`."""
        if binds:
            await self.ask("enter_view", binds=list(binds))

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
        """Start a command in our current directory; raises `PluginNotStarted`."""
        number = next(self._numbers)
        # Before the request: the process may end before we read the answer.
        process = self._processes[number] = Process(self, number, log)
        marked, here = {**env, MARK: str(self._work)}, str(Path.cwd())
        try:
            answer = await self.ask(
                "start", number, argv=[*argv], env=marked, log=str(log), cwd=here
            )
        except SupervisorRefused as error:
            raise PluginNotStarted(str(error)) from error
        process.pid = answer["pid"]
        return process

    async def kill_all(self) -> None:
        """Kill all processes that were started, and all their descendants."""
        await self.ask("kill_all")

    async def missing(self, paths: Sequence[str]) -> list[str]:
        """Return those of `paths` that do not exist in the file system that the plugins see."""
        answer = await self.ask("look", paths=[*paths])
        return [path for path, there in zip(paths, answer["exist"], strict=True) if not there]

    async def ask(self, do: str, number: int | None = None, **request: Any) -> dict[str, Any]:
        """Send a request to the supervisor; return the answer.

        Raises `SupervisorRefused` with the supervisor's reason, and `CannotAsk` if the supervisor
        does not answer within 30 s.
        """
        number = next(self._numbers) if number is None else number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": number, "do": do, **request}).encode() + b"\n"
        try:
            async with deadlines.timeout(_ANSWER_LIMIT):
                await asyncio.get_running_loop().sock_sendall(self._control, line)
                result: dict[str, Any] = await answer
        except (TimeoutError, OSError) as error:
            raise CannotAsk(f"the supervisor of the plugin does not answer ({do})") from error
        finally:
            self._answers.pop(number, None)
        if "error" in result:
            raise SupervisorRefused(result["error"])
        return result

    async def close(self) -> None:
        """End all processes and remove the directory of the run."""
        if self._reading:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        # When this socket is closed, the supervisor kills all processes. It needs no message.
        self._control.close()
        await asyncio.to_thread(self._supervisor.wait, _ANSWER_LIMIT)

    async def _read(self) -> None:
        buffer = b""
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(self._control, 65536):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._receive(json.loads(line))
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(CannotAsk("the supervisor of the plugin has ended"))

    def _receive(self, message: dict[str, Any]) -> None:
        if "ended" in message:
            self._processes.pop(message["ended"]).set_ended(message["status"])
            self.on_end()
        elif (answer := self._answers.get(message["id"])) and not answer.done():
            answer.set_result(message)
