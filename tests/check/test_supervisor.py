"""The supervisor starts plugins, and kills all their processes when the check ends."""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubedevices.check import supervisor
from kubedevices.check.processes import Supervisor
from kubedevices.check.supervisor import descendants
from kubedevices.errors import PluginNotStarted
from tests.check.leftovers import MARK, processes_marked
from tests.waiting import until


@asynccontextmanager
async def keeping(directory: Path) -> AsyncIterator[Supervisor]:
    supervisor = await Supervisor.open(directory)
    try:
        yield supervisor
    finally:
        await supervisor.close()


async def test_output_and_exit_code_are_known(short_dir: Path) -> None:
    """The process has the output and the exit code of a command."""
    async with keeping(short_dir) as supervisor:
        process = await supervisor.start(
            ["sh", "-c", "echo one; echo two >&2; exit 7"], env=os.environ, log=short_dir / "log"
        )
        assert await process.wait(5)
        assert process.code == 7
        assert process.end_text() == "exit code 7"
        assert process.last_words() == "one\ntwo"


async def test_a_signal_reaches_the_process(short_dir: Path) -> None:
    """SIGTERM is delivered, and the text of the end has its name."""
    async with keeping(short_dir) as supervisor:
        process = await supervisor.start(["sleep", "60"], env=os.environ, log=short_dir / "log")
        await process.send_signal(signal.SIGTERM)
        assert await process.wait(5)
        assert process.end_text() == "killed by SIGTERM"
        await process.send_signal(signal.SIGTERM)  # ended: nothing happens


async def test_a_missing_command_is_an_error(short_dir: Path) -> None:
    """The error has the name of the command."""
    async with keeping(short_dir) as supervisor:
        with pytest.raises(PluginNotStarted, match="no-such-plugin: no such program in PATH"):
            await supervisor.start(["no-such-plugin"], env=os.environ, log=short_dir / "log")


async def test_all_processes_of_a_plugin_are_killed(short_dir: Path) -> None:
    """Children in sessions of their own and orphans are found and killed, too."""
    mark = uuid.uuid4().hex
    async with keeping(short_dir) as supervisor:
        process = await supervisor.start(
            ["sh", "-c", "setsid sleep 60 & (setsid sleep 60 &) ; sleep 60 & exit 0"],
            env=os.environ | {MARK: mark},
            log=short_dir / "log",
        )
        assert await process.wait(5)
        await until(lambda: len(processes_marked(mark)) == 3, what="three orphans")
        await supervisor.kill_all()
        assert not processes_marked(mark)


async def test_closing_removes_the_directory(short_dir: Path) -> None:
    """When the supervisor ends, its directory and its processes are gone."""
    mark = uuid.uuid4().hex
    work = short_dir / "work"
    work.mkdir()
    async with keeping(work) as supervisor:
        await supervisor.start(["sleep", "60"], env=os.environ | {MARK: mark}, log=work / "log")
    assert not processes_marked(mark)
    assert not work.exists()


PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from kubedevices.check.processes import Supervisor

async def main():
    work = Path(sys.argv[1])
    supervisor = await Supervisor.open(work)
    command = ["sh", "-c", "setsid sleep 60 & sleep 60"]
    await supervisor.start(command, env=os.environ, log=work / "log")
    print("started", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_killed_check_leaves_no_process_and_no_directory(short_dir: Path) -> None:
    """SIGKILL of the check ends supervisor, plugin and its children, and removes the directory."""
    mark = uuid.uuid4().hex
    work = short_dir / "work"
    work.mkdir()
    with subprocess.Popen(  # noqa: ASYNC220  a few milliseconds
        [sys.executable, "-c", PROGRAM, str(work)],
        env=os.environ | {MARK: mark},
        stdout=subprocess.PIPE,
    ) as check:
        assert check.stdout
        assert await asyncio.to_thread(check.stdout.readline) == b"started\n"
        await until(
            lambda: len(processes_marked(mark)) == 5, what="check, supervisor, shell, sleeps"
        )
        check.kill()
    await until(lambda: not processes_marked(mark), what="the end of everything")
    assert not work.exists()


def test_descendants_are_found_on_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel may list the children of a process, or only the parent of each process."""
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout
        shell.stdout.readline()
        told = descendants(shell.pid)
        monkeypatch.setattr(supervisor, "_HAS_CHILDREN", Path("/nowhere"))
        searched = descendants(shell.pid)
        for pid in told:
            os.kill(pid, signal.SIGKILL)
        shell.kill()
    assert len(told) == 1
    assert searched == told


async def test_a_killed_supervisor_ends_the_plugin_as_well(short_dir: Path) -> None:
    """If the supervisor is killed, the kernel sends SIGKILL to the plugin."""
    async with keeping(short_dir) as supervisor:
        process = await supervisor.start(["sleep", "60"], env=os.environ, log=short_dir / "log")
        (supervisor_pid,) = [
            pid for pid in descendants(os.getpid()) if process.pid in descendants(pid)
        ]
        os.kill(supervisor_pid, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{process.pid}/exe").exists(), what="its end")
