"""Supervisors that have most of what plugins need loaded, and fork instead of executing.

A check starts a supervisor and some thirty plugin processes. Loading Python and grpcio for each
took most of the time of the whole test suite. So one process loads what a plugin needs except
grpcio, which does not survive a fork, and forks a supervisor for each check. A plugin that starts
loads its own module and grpcio. Any other command is executed as ever.
"""

import asyncio
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from kubedevices.check.supervisor import SupervisorProcess, leave_supervisor, main
from tests.forking import may_fork

PLUGINS = tuple(f"tests.check.{name}" for name in ("good_plugin", "mutant", "unusual_plugin"))
"""The programs on grpcio: loaded by the process that becomes the plugin."""

PRELOADED = (
    *("argparse", "concurrent.futures.thread", "pkgutil", "random", "typing_extensions", "hpack"),
    "tests.kubelet_api.protobuf_classes",
    "tests.check.frame_relay",
    "tests.check.mutants.registry",
)
"""What these programs load beside grpcio."""

PROGRAMS: dict[tuple[str, ...], str] = {}
"""The modules of programs, by the first words of their commands."""


def offer(name: str) -> None:
    """Let a program of the tests start by a fork; its `main` takes the other words."""
    spec = find_spec(name)
    assert spec is not None
    PROGRAMS[sys.executable, str(spec.origin)] = name


class PreloadedSupervisor(SupervisorProcess):
    """Runs a plugin of this folder in the forked child itself."""

    def _become(self, request: dict[str, Any], problems: int) -> None:
        argv = request["argv"]
        program = PROGRAMS.get(tuple(argv[:2]))
        if program is None:
            super()._become(request, problems)
            return
        code = 1
        try:
            leave_supervisor(request)
            os.closerange(
                3, os.sysconf("SC_OPEN_MAX")
            )  # the supervisor's, which execution would close
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.clear()
            os.environ.update(request["env"])
            code = import_module(program).main(argv[2:])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


class Forked:
    """A supervisor that was forked, as a process to wait for."""

    def __init__(self, ended: socket.socket) -> None:
        self._ended = ended

    def wait(self, timeout: float) -> object:
        """Wait until the process has closed its end."""
        if not select.select([self._ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked supervisor", timeout)
        self._ended.close()
        return None


@contextmanager
def forking_supervisors(*modules: str) -> Iterator[Callable[[socket.socket], Forked]]:
    """Give what starts a supervisor for `Supervisor.start_supervisor`: by a fork of one process.

    `modules` are programs beside those of this folder; the process loads them before it forks.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", __file__, str(theirs.fileno()), *modules]
    loaded = subprocess.Popen(command, pass_fds=(theirs.fileno(),), cwd="/")
    theirs.close()

    def fork(control: socket.socket) -> Forked:
        alive, ended = socket.socketpair()
        with ended:
            socket.send_fds(ours, [b"fork"], [control.fileno(), ended.fileno()])
        return Forked(alive)

    try:
        yield fork
    finally:
        ours.close()
        loaded.wait(30)


def fork_supervisors(orders: socket.socket) -> None:
    """Fork a supervisor for each order, until nobody is left to give orders."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a supervisor ended
    asyncio.run(asyncio.sleep(0))  # all that the first loop loads
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all that is loaded
    while received := socket.recv_fds(orders, 16, 2):
        _, descriptors, *_ = received
        if not descriptors:
            return
        may_fork()
        if os.fork() == 0:
            orders.close()
            os.setsid()
            main(
                descriptors[0], PreloadedSupervisor
            )  # the other descriptor closes with the process
            os._exit(0)
        for each in descriptors:
            os.close(each)


if __name__ == "__main__":
    others = sys.argv[2:]
    for name in (*PLUGINS, *others):
        offer(name)
    for name in (*PRELOADED, *others):
        import_module(name)
    fork_supervisors(socket.socket(fileno=int(sys.argv[1])))
