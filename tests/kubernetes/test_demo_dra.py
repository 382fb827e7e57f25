"""`make demo-dra` does what it prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_needs import CLUSTER, needs
from tests.kubernetes.cluster import Cluster

ROOT = Path(__file__).parents[2]


def demo(*arguments: object, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "examples.demo_dra", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.slow
@needs("real Kubernetes")
@pytest.mark.timeout(600)
def test_both_kinds_of_pods_come_back(cluster: Cluster) -> None:
    """No device is held twice, and no file or process of the demo is left over."""
    done = demo("--dir", cluster.directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "two    gpu-node1-" in done.stdout
    assert "No two pods held the same device" in done.stdout
    assert not done.stderr
    assert "demo-dra" not in cluster.kubectl("get", "clusterroles,deviceclasses", "--output=name")


def test_without_a_kubernetes_the_demo_says_what_it_needs() -> None:
    """In one line, without a traceback."""
    done = demo(**{CLUSTER: ""})
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith(f"make demo-dra needs a real Kubernetes: set {CLUSTER} to")
