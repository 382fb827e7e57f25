"""The demo of the README does what it prints."""

import subprocess
import sys
from pathlib import Path

from tests.host_needs import needs

ROOT = Path(__file__).parents[2]


@needs("mount", "runc", "static busybox")
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
