"""The process that starts the plugins of a check, and kills them when the check ends.

`processes.Supervisor` runs it as `python -m kubedevices.check.supervisor DESCRIPTOR`. The
descriptor is a socket for JSON lines in both directions. When this socket is closed, because the
check closed it or was killed, the supervisor kills all its descendants, removes the directory of
the check, and exits. The supervisor has its own session, so Ctrl-C in the terminal does not reach
it. It adopts orphans, so it also kills a process that a plugin started and left. It forks, so it
has one thread and no event loop.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from kubedevices.host.kept_output import drop_middle
from kubedevices.host.programs import start_failure
from kubedevices.testing.kubelet import linux
from kubedevices.testing.kubelet.mounts import Bind, enter_private_view

_KILL_LIMIT = 10.0
_DROP_EVERY = 0.5
"""Seconds between two looks for output that is too long to be kept."""
_HAS_CHILDREN = Path("/proc/thread-self/children")


class SupervisorProcess:
    """The loop of the supervisor. It handles requests and ended children one after another."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}  # pid → id of the request that started it
        self._remove = ""
        self._logs: set[str] = set()

    def run(self) -> None:
        """Serve until the check has ended; then kill all processes and remove the directory."""
        linux.adopt_orphans()
        wake_read, wake_write = socket.socketpair()
        for end in (wake_read, wake_write):
            end.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        # The handler does nothing. Without a handler, Python does not write to `wake_write`.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            self._serve(wake_read)
        finally:
            kill_descendants()
            if self._remove:
                shutil.rmtree(self._remove, ignore_errors=True)

    def _serve(self, wake: socket.socket) -> None:
        buffer = b""
        while True:
            readable, _, _ = select.select([self._control, wake], [], [], _DROP_EVERY)
            for log in self._logs:
                drop_middle(Path(log))
            if wake in readable:
                with contextlib.suppress(BlockingIOError):
                    wake.recv(4096)
                self._reap()
            if self._control in readable:
                try:
                    data = self._control.recv(65536)
                except ConnectionError:
                    return
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._answer(json.loads(line))

    def _answer(self, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            answer |= getattr(self, f"_do_{request['do']}")(request) or {}
        except OSError as error:
            answer |= {"error": f"{error.strerror}: {error.filename or ''}".rstrip(": ")}
        self._send(answer)
        self._reap()

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the check has ended: the next read returns nothing
            self._control.sendall(json.dumps(message).encode() + b"\n")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            number = self._children.pop(pid, None)
            if number is not None:
                self._send({"ended": number, "status": os.waitstatus_to_exitcode(status)})

    # ------------------------------------------------------------ requests

    def _do_remove(self, request: dict[str, Any]) -> dict[str, Any]:
        self._remove = request["path"]
        return {"supervisor": os.getpid()}

    def _do_enter_view(self, request: dict[str, Any]) -> None:
        enter_private_view(Bind(*bind) for bind in request["binds"])

    def _do_make_read_only(self, request: dict[str, Any]) -> None:
        """Let plugins not write below these directories; only in a private view."""
        for path in request["paths"]:
            linux.make_read_only(path)

    def _do_cover(self, request: dict[str, Any]) -> None:
        """Show other files in the place of these; only in a private view."""
        for host, inside in request["binds"]:
            linux.mount(host, inside, flags=linux.MS_BIND)

    def _do_unmount(self, request: dict[str, Any]) -> None:
        for path in request["paths"]:
            linux.unmount(path)

    def _do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        # Both ends close at exec. So a pipe that closes without data means that the program runs.
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            self._become(request, writing)
        os.close(writing)
        self._children[pid] = request["id"]
        self._logs.add(request["log"])
        with os.fdopen(reading, "rb") as pipe:
            if problem := pipe.read().decode(errors="surrogateescape"):
                raise OSError(0, problem)
        return {"pid": pid}

    def _become(self, request: dict[str, Any], problems: int) -> None:
        """Turn the forked child into the plugin; never returns."""
        try:
            leave_supervisor(request)
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except OSError as error:
            program = request["argv"][0]
            reason = start_failure(program, error, request["env"]).reason
            os.write(problems, f"{program}: {reason}".encode(errors="surrogateescape"))
        finally:
            # Not sys.exit: the child must not run the `finally` blocks of the supervisor.
            os._exit(127)

    def _do_signal(self, request: dict[str, Any]) -> None:
        if request["pid"] in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(request["pid"], request["signal"])

    def _do_kill_all(self, request: dict[str, Any]) -> None:
        del request
        for pid, status in kill_descendants().items():
            if pid in self._children:
                self._send({"ended": self._children.pop(pid), "status": status})

    def _do_look(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return which paths exist in the file system that the plugins see."""
        return {"exist": [os.path.lexists(path) for path in request["paths"]]}

    def _do_look_at_numbers(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return major and minor of each character device, None for what is none."""
        return {"numbers": [_numbers(path) for path in request["paths"]]}


def _numbers(path: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = Path(path).stat()
        if stat.S_ISCHR(found.st_mode):
            return os.major(found.st_rdev), os.minor(found.st_rdev)
    return None


def leave_supervisor(request: dict[str, Any]) -> None:
    """Give a forked child its own session, output and directory, and signals as a new process."""
    os.setsid()
    # If the supervisor is killed with SIGKILL, the kernel kills this process.
    linux.die_with_parent(signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(request["cwd"])


def kill_descendants() -> dict[int, int]:
    """Kill and reap all descendants of this process; return the exit codes by process ID."""
    ended = {}
    deadline = time.monotonic() + _KILL_LIMIT
    # Repeat until no child is left: a process may fork after we listed it and before our signal.
    while time.monotonic() < deadline:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                ended[pid] = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            break
        time.sleep(0.002)
    return ended


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, children before grandchildren."""
    children_of = _children if _HAS_CHILDREN.exists() else _all_children().__getitem__
    found = [*children_of(root)]
    # The loop also visits the entries that it appends, so it reaches all generations.
    for pid in found:
        found += children_of(pid)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def _all_children() -> defaultdict[int, list[int]]:
    """Return the children of each process; for kernels without `/proc/PID/task/TID/children`."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                # The name may contain spaces and brackets; the parent's ID follows the last one.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children[int(fields[1])].append(int(entry.name))
    return children


def main(descriptor: int, kind: type[SupervisorProcess] = SupervisorProcess) -> None:
    """Serve one check until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # If a plugin inherited this socket, the check would not notice when the supervisor ends.
    os.set_inheritable(descriptor, False)
    kind(socket.socket(fileno=descriptor)).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
