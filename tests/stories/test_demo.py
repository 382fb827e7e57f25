"""The demo of the README does what it prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("runc") or not shutil.which("busybox"),
    reason="needs root, runc and busybox: `make test-deps` installs the two",
)
def test_the_demo_succeeds_and_cleans_up() -> None:
    """Every step succeeds, a container opens only its own device, and nothing is left over."""
    before = {*Path("/tmp").glob("kubedevices-demo-*")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "opened /dev/" in done.stdout or "lacks a device file" in done.stdout
    assert "resources back and allocatable" in done.stdout
    assert not done.stderr
    assert {*Path("/tmp").glob("kubedevices-demo-*")} == before
