"""Supervisors that have the plugins of this folder loaded, and fork instead of executing.

A check starts a supervisor and some thirty plugin processes. Loading Python and grpcio for each
took most of the time of the whole test suite. So one process loads all of it once and forks a
supervisor for each check. Any other command is executed as ever.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from kubedevices.conformance.supervisor import SupervisorProcess, leave_supervisor, main
from tests.conformance import good_plugin, mutant, unusual_plugin
from tests.conformance.mutants.registry import all_mutations

MAINS: dict[tuple[str, ...], Callable[[Sequence[str]], int]] = {}
"""By the first words of a command."""


def offer(module: Any) -> None:
    """Let a program of the tests start by a fork; its `main` takes the other words."""
    MAINS[sys.executable, str(module.__file__)] = module.main


for each in (good_plugin, mutant, unusual_plugin):
    offer(each)


class PreloadedSupervisor(SupervisorProcess):
    """Runs a plugin of this folder in the forked child itself."""

    def _become(self, request: dict[str, Any], problems: int) -> None:
        argv = request["argv"]
        main = MAINS.get(tuple(argv[:2]))
        if main is None:
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
            code = main(argv[2:])
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

    `modules` are programs beside those of this folder.
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
    all_mutations()
    good_plugin.arguments().parse_args(["--device-dir", "/"])  # loads what a parser needs
    asyncio.run(asyncio.sleep(0))  # all that the first loop loads
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all that is loaded
    while received := socket.recv_fds(orders, 16, 2):
        _, descriptors, *_ = received
        if not descriptors:
            return
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
    for name in sys.argv[2:]:
        offer(import_module(name))
    fork_supervisors(socket.socket(fileno=int(sys.argv[1])))
