"""Starts processes in namespaces and cgroups, and finds them again.

A process belongs to a cluster if it is in the cluster's cgroup: nothing else says what may be
killed. `DIR/pid/NAME` only names the process of a service.
"""

import ctypes
import hashlib
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tests.kubernetes.single_node.layout import PATH, Layout, fail

_FLAGS = {"mnt": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000, "net": 0x40000000}
"""CLONE_NEW... of Linux by the name in /proc/PID/ns."""
_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")
_END_LIMIT = 30
_POLL = 0.05
_STARTED = b"."
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *words: object) -> None:
    """Call a function of the C library. Raises `OSError` unless it returns 0."""
    arguments = [os.fsencode(each) if isinstance(each, str | Path) else each for each in words]
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{tuple(map(str, words))}: {os.strerror(number)}")


class Cgroups:
    """The cluster's cgroup in each hierarchy: of version 1, of version 2, or of both."""

    def __init__(self, name: str) -> None:
        self.name = name
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        kinds = {each[4]: each[each.index("-") + 1] for each in mounts}
        self.unified = [Path(at) for at, kind in kinds.items() if kind == "cgroup2"]
        self.roots = [*(Path(at) for at, kind in kinds.items() if kind == "cgroup"), *self.unified]
        self._all = [root / name for root in self.roots]

    def join(self) -> None:
        """Move the calling process into the part of the cluster that no kubelet manages."""
        for root, ours in zip(self.roots, self._all, strict=True):
            leaf = ours / "system"
            leaf.mkdir(parents=True, exist_ok=True)
            if root in self.unified:
                for level in (root, ours):
                    _enable_controllers(level)
            else:
                for level in (ours, leaf):
                    _inherit_processors(level)
            (leaf / "cgroup.procs").write_text("0")

    def has(self, pid: int) -> bool:
        """Return whether a process belongs to the cluster."""
        try:
            return f":/{self.name}/" in Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            return False

    def members(self) -> set[int]:
        """Return all processes of the cluster but this one."""
        found: set[int] = set()
        for file in (file for each in self._all for file in each.glob("**/cgroup.procs")):
            with suppress(OSError):
                found.update(map(int, file.read_text().split()))
        return found - {0, os.getpid()}

    def remove(self, *, pods_only: bool = False) -> None:
        """Remove the cgroups, which have no process; with `pods_only` only those of pods."""
        deadline = time.monotonic() + _END_LIMIT
        for ours in self._all:
            for each in sorted(ours.glob("**/"), reverse=True):
                if pods_only and each in (ours, ours / "system"):
                    continue
                while each.exists():
                    try:
                        each.rmdir()
                    except OSError as error:
                        if time.monotonic() > deadline:
                            fail(f"{each}: {error}")
                        time.sleep(_POLL)


def _enable_controllers(level: Path) -> None:
    there = (level / "cgroup.controllers").read_text().split()
    for each in _CONTROLLERS:
        if each in there:
            with suppress(OSError):  # in use by a hierarchy of version 1
                (level / "cgroup.subtree_control").write_text(f"+{each}")


def _inherit_processors(level: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = level / name
        if file.exists() and not file.read_text().strip():
            file.write_text((level.parent / name).read_text())


class Processes:
    """The processes of a cluster."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        digest = hashlib.sha256(os.fsencode(layout.directory)).hexdigest()[:8]
        self.cgroups = Cgroups(f"kubedevices-test-{digest}")

    def pid(self, name: str) -> int | None:
        """Return the process of a service or a namespace, or None if it does not run."""
        try:
            pid = int((self._layout.pids / name).read_text())
        except (OSError, ValueError):
            return None
        # A process that has ended and is not yet buried has no namespaces.
        lives = self.cgroups.has(pid) and Path(f"/proc/{pid}/ns/net").exists()
        return pid if lives else None

    def namespaces(self, owner: str, kinds: Iterable[str]) -> list[int]:
        """Return descriptors of namespaces of the process with the name `owner`."""
        pid = self.pid(owner)
        if pid is None:
            fail(f"{owner} does not run in {self._layout.directory}: start it with `up`")
        return [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]

    def enter(self, owner: str, kinds: Iterable[str]) -> None:
        """Move the calling process into namespaces of another process."""
        for descriptor in self.namespaces(owner, kinds):
            call("setns", descriptor, 0)
            os.close(descriptor)

    def run_in(self, owner: str, kinds: Sequence[str], words: list[str]) -> NoReturn:
        """Run a command in namespaces; end as it ends, and pass signals on to it.

        If this process is killed, the kernel kills the command too.
        """
        descriptors = self.namespaces(owner, kinds)
        self.cgroups.join()
        directory = Path.cwd()
        for descriptor in descriptors:
            call("setns", descriptor, 0)
        child = os.fork()  # only a child is in the new process namespace
        if child == 0:
            call("prctl", 1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            with suppress(OSError):
                os.chdir(directory)
            try:
                path = f"{self._layout.programs}:{os.environ.get('PATH', PATH)}"
                os.execvpe(words[0], words, os.environ | {"PATH": path})
            except OSError as error:
                os.write(2, f"{words[0]}: {error.strerror}\n".encode())
            os._exit(127)
        for number in (
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGUSR1,
            signal.SIGUSR2,
        ):
            signal.signal(number, lambda number, _frame: _pass_on(child, number))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(status if status >= 0 else 128 - status)

    def start(
        self,
        name: str,
        words: list[str],
        *,
        join: Sequence[tuple[str, Sequence[str]]] = (),
        new: Sequence[str] = (),
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        """Start a process in namespaces, with its output in its log; return when it is executed.

        `join` names existing namespaces, `new` the kinds of new ones. `prepare` runs in the new
        process. With `new`, the process is process 1 of its namespace.
        """
        descriptors = [each for owner, kinds in join for each in self.namespaces(owner, kinds)]
        here, there = socket.socketpair()
        # So that the first byte tells the process ID as it is outside of the namespace.
        here.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        log = self._layout.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)

        def become() -> None:
            self.cgroups.join()
            for each in descriptors:
                call("setns", each, 0)
            if new:
                call("unshare", sum(_FLAGS[kind] for kind in new))
            if child := os.fork():
                os._exit(0 if new else os.waitpid(child, 0)[1])
            # A child of a child is adopted by process 1 of its namespace, which buries it.
            if not new and os.fork():
                os._exit(0)
            os.setsid()
            nothing = os.open("/dev/null", os.O_RDONLY)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for number, descriptor in enumerate((nothing, output, output)):
                os.dup2(descriptor, number)
            prepare()
            there.send(_STARTED)
            env = {"PATH": f"{self._layout.programs}:{PATH}", "HOME": "/root"}
            os.execvpe(words[0], words, env)

        middle = os.fork()
        if middle == 0:
            here.close()
            try:
                become()
            except BaseException as error:  # whatever it is, the parent tells it
                there.send(f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        there.close()
        first, ancillary, *_ = here.recvmsg(4096, socket.CMSG_SPACE(12))
        rest = here.recv(4096)  # ends when the command is executed
        here.close()
        os.waitpid(middle, 0)
        for each in descriptors:
            os.close(each)
        if first != _STARTED or rest:
            fail(f"{name} did not start: {(first + rest).decode()}", log)
        self._layout.pids.mkdir(exist_ok=True)
        (self._layout.pids / name).write_text(str(struct.unpack("3i", ancillary[0][2])[0]))

    def stop(self, name: str, number: signal.Signals) -> None:
        """End a service: with a signal, and after five seconds with SIGKILL."""
        # etcd and the API server would wait for their clients.
        deadline = time.monotonic() + 5
        while pid := self.pid(name):
            _kill(pid, number)
            while self.pid(name) and time.monotonic() < deadline:
                time.sleep(_POLL)
            number = signal.SIGKILL

    def end(self, kept: Iterable[str] = ()) -> None:
        """Kill all processes but those of the services `kept`, and remove their cgroups.

        Only the cgroups say what is ours, so this works without `DIR` too.
        """
        keep = {pid for pid in map(self.pid, kept) if pid}
        deadline = time.monotonic() + _END_LIMIT
        while others := self.cgroups.members() - keep:
            for pid in others:
                _kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                fail(f"processes do not end: {sorted(others)}")
            time.sleep(_POLL)
        self.cgroups.remove(pods_only=bool(keep))

    def shell(self, owner: str, kinds: Sequence[str], script: str) -> None:
        """Run a shell script in namespaces; it must succeed."""
        done = subprocess.run(
            ["sh", "-ec", script],
            preexec_fn=lambda: self.enter(owner, kinds),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            fail(f"{script.strip()}: {done.stderr}")


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _pass_on(child: int, number: int) -> None:
    if not (number == signal.SIGINT and os.isatty(0)):  # a terminal tells both processes
        _kill(child, number)
