"""Memory that a plugin no longer uses goes back to the system."""

import subprocess
import sys

import pytest

from kubedevices.host import heap
from tests.host_needs import needs

PROGRAM = """
import re, sys
from pathlib import Path
from kubedevices.host import heap

def private_kilobytes():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"Private_Dirty: +([0-9]+) kB", text)[1])

if sys.argv[1] == "ours":
    heap.give_large_blocks_back()
first = bytearray(8 << 20)
del first  # from now on glibc keeps blocks of up to that size
block, behind = bytearray(b"x" * (4 << 20)), bytearray(b"x" * (1 << 20))
before = private_kilobytes()
del block
print(before - private_kilobytes())
"""


@needs("glibc")
def test_a_freed_large_block_returns_to_the_system() -> None:
    """By default glibc would keep the block."""
    freed = [
        int(subprocess.check_output([sys.executable, "-c", PROGRAM, whose], timeout=60))
        for whose in ("glibc's", "ours")
    ]
    assert freed[0] < 1024
    assert freed[1] > 3 * 1024


def test_a_python_without_ctypes_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some small images have no ctypes."""
    monkeypatch.setitem(sys.modules, "ctypes", None)
    heap.give_large_blocks_back()
