"""`tests.known_world`: nothing of whoever runs the tests reaches them."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import known_world

ROOT = Path(__file__).parents[1]
PROGRAM = """\
import json, os, resource, signal, sys, time
from tests import known_world
known_world.enter()
known_world.use_default_signals()
print(json.dumps({
    "environment": dict(os.environ),
    "umask": os.umask(0),
    "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "ignored": [each.name for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
                if signal.getsignal(each) is signal.SIG_IGN],
    "blocked": [*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))],
    "zone": time.tzname[0],
    "home": os.listdir(os.environ["HOME"]),
}))
"""
STRANGE = {
    "KUBECONFIG": "/k",
    "NODE_NAME": "n",
    "NUMBER_DEVICES": "7",
    "COLUMNS": "9",
    "NO_COLOR": "1",
    "LANG": "C",
    "LC_ALL": "POSIX",
    "TZ": "Pacific/Kiritimati",
    "NOTIFY_SOCKET": "@x",
}


def test_a_strange_world_is_left_outside(tmp_path: Path) -> None:
    """Variables, umask, signals that a parent ignores, and the limit of open files."""
    words = "umask 077; ulimit -n 300; trap '' INT HUP QUIT TERM; exec \"$@\""
    done = subprocess.run(
        ["sh", "-c", words, "sh", sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={"PATH": f"relative:{os.environ['PATH']}", "HOME": str(tmp_path), **STRANGE},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    seen = json.loads(done.stdout)
    given = seen.pop("environment")
    assert seen == {
        "umask": 0o022,
        "descriptors": 300,
        "ignored": [],
        "blocked": [],
        "zone": "UTC",
        "home": [],
    }
    assert not {*STRANGE} - {"LANG", "TZ"} & given.keys()
    assert given["LANG"] == "C.UTF-8"
    assert "relative" not in given["PATH"].split(":")
    assert not Path(given["HOME"]).exists()  # removed at the end


def test_this_test_runs_in_the_known_world() -> None:
    """The conftest enters it."""
    assert "COLUMNS" not in os.environ
    assert os.environ["HOME"] == os.environ["KUBEDEVICES_HOME_OF_TESTS"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= known_world.DESCRIPTORS
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_test_that_looks_at_the_hosts_kubelet_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result would depend on what the host has there, and on our rights."""
    seen: list[str] = []
    monkeypatch.setattr(known_world, "_touched", seen)
    with pytest.raises(OSError, match="kubelet"):
        os.listdir("/var/lib/kubelet/no-such-directory")  # noqa: PTH208  its audit event
    assert seen == ["os.listdir /var/lib/kubelet/no-such-directory"]


LEAKING = """\
import os, resource, signal

def test_one():
    os.environ["COLUMNS"] = "3"
    os.umask(0o077)
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

def test_two():
    assert "COLUMNS" not in os.environ
    assert os.umask(0o022) == 0o022
    assert os.getcwd() != "/"
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 10**6
"""


def test_what_a_test_changes_does_not_reach_the_next_test(tmp_path: Path) -> None:
    """Variables, umask, directory, handlers and limits."""
    (tmp_path / "test_leaks.py").write_text(LEAKING)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.known_world",
            "--rootdir",
            str(tmp_path),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout
