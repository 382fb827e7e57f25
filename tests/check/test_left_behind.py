"""What a plugin leaves that kills the supervisor of a check is found."""

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubedevices.check import left_behind
from kubedevices.check.directories import RunDirectories
from kubedevices.check.processes import Supervisor
from kubedevices.errors import CannotAsk
from tests.waiting import until, until_sync


def daemon(root: Path) -> "subprocess.Popen[bytes]":
    """Start a process as a plugin of the run with the directory `root` would."""
    command = [sys.executable, "-IS", "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen(command, env={left_behind.MARK: str(root)}, start_new_session=True)
    until_sync(lambda: process.pid in left_behind.processes_of(root))
    return process


def test_the_next_run_removes_the_directory_and_names_the_processes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The process of an earlier run is named and not killed: only its user knows what it does."""
    old = RunDirectories(tmp_path / "kd-check-01234567")
    old.create()
    os.close(old.locks.pop())  # as after SIGKILL
    process = daemon(old.root)
    try:
        new = RunDirectories(tmp_path / "kd-check-89abcdef")
        new.create()
        assert not old.root.exists()
        assert f"an earlier check left {old.root}: removed" in caplog.text
        assert f"{process.pid} (" in caplog.text
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    new.leave()
    assert not new.root.exists()


def test_directories_of_others_are_not_removed(tmp_path: Path) -> None:
    """A run that goes on, another name, a link, a directory without a lock, a foreign owner."""
    running = RunDirectories(tmp_path / "kd-check-00000000")
    running.create()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / left_behind.LOCK_NAME).touch()
    (tmp_path / "kd-check-11111111").symlink_to(outside)
    (tmp_path / "kd-check-22222222").mkdir()
    foreign = tmp_path / "kd-check-33333333"
    foreign.mkdir()
    if os.geteuid() == 0:
        (foreign / left_behind.LOCK_NAME).touch()
        os.chown(foreign, 12345, 12345)
    (tmp_path / "kd-check-x").mkdir()
    names = {path.name for path in tmp_path.iterdir()}
    left_behind.clean_up_earlier_runs(tmp_path)
    assert names == {path.name for path in tmp_path.iterdir()}
    running.leave()


def test_a_run_that_begins_beside_another_keeps_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run looks for leftovers right before this one locks its directory."""
    flock = fcntl.flock

    def look_first(lock: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        left_behind.clean_up_earlier_runs(tmp_path)
        flock(lock, how)

    begins = RunDirectories(tmp_path / "kd-check-00000000")
    monkeypatch.setattr(fcntl, "flock", look_first)
    begins.create()
    left_behind.clean_up_earlier_runs(tmp_path)
    assert begins.sockets.is_dir()
    begins.leave()


async def test_a_plugin_that_kills_the_supervisor_is_ended_by_the_check(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its daemon, which the supervisor would have killed, and the directory of the run."""
    directories = RunDirectories(short_dir / "kd-check-0a0a0a0a")
    supervisor = await Supervisor.open(directories.root)
    directories.create()
    pid_file = short_dir / "pid"
    daemon_code = (
        "import os, signal, sys, time\n"
        f"open('{pid_file}.new', 'w').write(str(os.getpid()))\n"
        f"os.rename('{pid_file}.new', '{pid_file}')\n"
        "os.kill(int(sys.argv[1]), signal.SIGKILL)\n"
        "time.sleep(600)\n"
    )
    code = (
        "import os, subprocess, sys, time\n"
        "words = [sys.executable, '-IS', '-c', sys.argv[1], str(os.getppid())]\n"
        "subprocess.Popen(words, start_new_session=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-IS", "-c", code, daemon_code]
    with contextlib.suppress(CannotAsk):  # the supervisor may be dead before its answer
        await supervisor.start(command, env=os.environ, log=directories.log(1))
    await until(pid_file.exists, 60, "the daemon")
    with pytest.raises(CannotAsk, match="supervisor"):
        await supervisor.ask("kill_all")
    daemon_pid = int(pid_file.read_text())
    await supervisor.close()
    assert directories.root.exists()
    directories.leave()
    assert not directories.root.exists()
    assert f"{daemon_pid} (" in caplog.text
    until_sync(lambda: daemon_pid not in left_behind.processes_of(directories.root))


async def test_endless_output_uses_little_disk_and_memory(short_dir: Path) -> None:
    """A plugin prints 100 MB: the first and the last part are kept."""
    supervisor = await Supervisor.open(short_dir / "run")
    (short_dir / "run").mkdir()
    log = short_dir / "run/log"
    code = "print('first'); [print('x' * 9999) for _ in range(10000)]; print('last')"
    code += "; import sys, time; sys.stdout.flush(); time.sleep(600)"
    try:
        process = await supervisor.start([sys.executable, "-c", code], env=os.environ, log=log)
        await until(lambda: log.stat().st_size > 100_000_000, 60, "the output")
        await until(lambda: log.stat().st_blocks * 512 < 4_000_000, 60, "its middle is dropped")
        text = process.output()
        assert len(text) < 1_300_000
        assert text.startswith("first\n")
        assert text.endswith("last\n")
    finally:
        await supervisor.close()
