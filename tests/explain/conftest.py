"""A small cluster, and the commands that ask it; a bench as a whole node."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from kubedevices.explain.in_cluster import read_objects
from kubedevices.testing.workbench import Bench
from tests.command_line import CommandLine, Printed
from tests.explain.cluster_rig import Ask, SmallCluster
from tests.explain.node_rig import NodeHost


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    """Serve the cluster."""
    async with SmallCluster().running() as found:
        yield found


@pytest.fixture
def ask(
    cluster: SmallCluster, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ask:
    """Return what runs a command with a kubeconfig for the cluster, beside this loop."""

    async def run(*words: object, code: int = 0) -> Printed:
        config = tmp_path / "kubeconfig"
        config.write_text(cluster.kubeconfig())
        now = time.time() + cluster.seconds_later
        monkeypatch.setattr(read_objects, "time", SimpleNamespace(time=lambda: now))
        return await asyncio.to_thread(cli, *words, "--kubeconfig", config, code=code)

    return run


@pytest.fixture
def explain(ask: Ask) -> Ask:
    """Return what runs `kubedevices explain` about the cluster."""
    return partial(ask, "explain")


@pytest.fixture
async def host(bench: Bench, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[NodeHost]:
    """Give the bench and its command line; what a test adds to its stack ends with the test."""
    found = NodeHost(bench, capsys)
    async with found.stack:
        yield found
