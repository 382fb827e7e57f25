"""Checks of a plugin that the user starts: the check knows only its socket directory."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubedevices.check.check import Phase
from kubedevices.check.checks import ALL, find
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target
from kubedevices.errors import SocketInUse
from tests.check.rig import (
    ALL_KUBELETS,
    FAST,
    GOOD_PLUGIN,
    MUTANT,
    found,
    hot_plug,
    skipped,
    widgets,
)
from tests.fake_kubelet import FakeKubelet


@asynccontextmanager
async def running(script: Path, directory: Path, *options: str) -> AsyncIterator[Target]:
    """Start a plugin as a user does; yield the target."""
    sockets = directory / "plugins"
    sockets.mkdir()
    with widgets() as devices:
        places = ("--device-dir", str(devices), "--socket-dir", str(sockets))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), *options, *places, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            yield Target(directory=sockets, trigger=hot_plug(devices))
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 10)


async def test_everything_but_starting_and_stopping_is_tried(short_dir: Path) -> None:
    """The checks that need to start or end the plugin are skipped with the reason."""
    async with running(GOOD_PLUGIN, short_dir) as target:
        results = (await run_all(target, ALL, FAST, kubelets=ALL_KUBELETS)).results
        assert target.directory
        assert "kubelet.sock" not in os.listdir(target.directory)  # noqa: PTH208
    assert not found(results)
    needs_command = {each for each in results if "-- COMMAND" in each.verdict.evidence}
    assert {each.check.phase for each in needs_command} == {Phase.PROCESS}
    tried = {each.check.id for each in results} - skipped(results)
    assert {"life.all-wiped", "life.kubelet-away", "life.lost-updates", "life.memory"} <= tried


async def test_files_that_are_no_sockets_are_never_wiped(short_dir: Path) -> None:
    """If the directory has other files, the check that removes all files is skipped."""
    async with running(GOOD_PLUGIN, short_dir) as target:
        assert target.directory
        dear = target.directory / "dear-to-somebody"
        dear.touch()
        checks = map(find, ("life.all-wiped", "life.sockets-wiped"))
        results = (await run_all(target, checks, FAST, kubelets=ALL_KUBELETS)).results
        assert dear.exists()
    assert skipped(results) == {"life.all-wiped"}
    assert not found(results)


async def test_a_plugin_that_is_lost_ends_the_checks(short_dir: Path) -> None:
    """A plugin that does not return cannot be started: the other checks are skipped."""
    mutation = ("--mutation", "akri-never-registers-again")
    async with running(MUTANT, short_dir, *mutation) as target:
        checks = [each for each in ALL if each.theme == "life" and each.phase is Phase.RESTARTS]
        results = (await run_all(target, checks, FAST)).results
    assert found(results) == {"life.sockets-wiped": "fail"}
    reasons = {each.verdict.evidence for each in results if each.status == "skip"}
    assert any("does not register any more" in reason for reason in reasons)


async def test_a_running_kubelet_is_not_touched(short_dir: Path) -> None:
    """If a process listens on kubelet.sock, the check starts nothing and changes nothing."""
    async with FakeKubelet(short_dir):
        with pytest.raises(SocketInUse, match="a kubelet runs here"):
            await run_all(Target(directory=short_dir), ALL, FAST)
        assert (short_dir / "kubelet.sock").exists()


async def test_a_directory_without_a_plugin(short_dir: Path) -> None:
    """An empty directory is a plugin that does not register."""
    checks = [each for each in ALL if each.phase is Phase.ARRIVAL]
    timing = FAST.scaled(0.02)
    results = (await run_all(Target(directory=short_dir), checks, timing)).results
    assert found(results) == {"registration.registers": "fail"}
