"""Which line of an author's code raised."""

import json
import logging
import re
import subprocess
import sys
import traceback
from pathlib import Path
from types import ModuleType

import pytest

import kubedevices as kd
from kubedevices.errors import InvalidDevice, KubedevicesError, RpcError, ScanFailed
from kubedevices.plugin.author_errors import (
    describe,
    forget_our_frames,
    place_of,
    without_our_frames,
)
from kubedevices.testing.workbench import Bench

AUTHOR = """\
import json
import kubedevices as kd

def read(text):
    return json.loads(text)

class Broken(kd.PolledScanner, kd.PostAllocator):
    works = False
    def list_devices(self):
        tree = kd.DeviceTree()
        if not self.works:
            tree.add("widget", kd.Device("w", paths=["dev"]))
        tree.add("widget", kd.Device("w"))
        return tree
    def post_allocate(self, response, request):
        read("{")

class Looping(kd.Scanner):
    async def scan(self, notifier):
        read("{")
"""
TEST = """\
from widgets import Broken

def test_it(bench):
    bench.start(Broken(), domain="example.com")
    bench.wait_for("example.com/widget", allocatable=1)
"""


@pytest.fixture
def author(tmp_path: Path) -> ModuleType:
    """Give the module of an author, from a file of its own."""
    file = tmp_path / "widgets.py"
    file.write_text(AUTHOR)
    module = ModuleType("widgets")
    exec(compile(AUTHOR, str(file), "exec"), vars(module))
    return module


def raised(author: ModuleType) -> json.JSONDecodeError:
    with pytest.raises(json.JSONDecodeError) as caught:
        author.read("{")
    return caught.value


def test_the_place_is_the_authors_and_not_the_librarys(author: ModuleType) -> None:
    """What json.loads did inside helps nobody; the line that called it does."""
    error = raised(author)
    assert place_of(error) == "widgets.py:5"
    assert describe(error).startswith("JSONDecodeError: Expecting property name")
    assert describe(error).endswith("(widgets.py:5)")


def test_an_installed_library_counts_if_there_is_no_other_code(tmp_path: Path) -> None:
    """A plugin may be installed as well; nothing of ours or of Python's is ever the place."""
    file = tmp_path / "site-packages/widgets.py"
    module = ModuleType("widgets")
    exec(compile(AUTHOR, str(file), "exec"), vars(module))
    try:
        module.read("{")
    except ValueError as caught:
        error = caught
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without this test, which is an author's
    assert place_of(error) == "widgets.py:5"
    assert place_of(ValueError("never raised")) == ""
    assert describe(ValueError()) == "ValueError"


def test_our_own_errors_keep_their_text(author: ModuleType) -> None:
    """Their text says what is wrong; the author's line says where."""
    with pytest.raises(InvalidDevice) as caught:
        author.Broken().list_devices()
    assert describe(caught.value) == "device 'w': the path 'dev' must be absolute (widgets.py:12)"


@pytest.mark.parametrize(
    ("scanner", "text"),
    [
        ("Broken", "scanner Broken failed: device 'w': the path 'dev' must be absolute"),
        ("Looping", "scanner Looping failed: JSONDecodeError: Expecting property name"),
    ],
)
def test_a_failed_scan_names_the_line(author: ModuleType, scanner: str, text: str) -> None:
    """Also in a test, where none of our frames is in the traceback of the error or its cause."""
    with Bench() as bench:
        bench.start(getattr(author, scanner)(), domain="example.com")
        with pytest.raises(ScanFailed, match=re.escape(text)) as caught:
            bench.wait_for("example.com/widget", allocatable=1)
    line = 12 if scanner == "Broken" else 5
    assert str(caught.value).endswith(f"(widgets.py:{line})")
    assert caught.value.__cause__ is not None
    cause = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert cause[0].filename.endswith("widgets.py")


def test_a_failed_hook_names_the_line(author: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    """The node is told, and the log has the author's frames alone."""
    scanner = author.Broken()
    scanner.works = True
    with Bench() as bench:
        bench.start(scanner, domain="example.com")
        bench.wait_for("example.com/widget", allocatable=1)
        with pytest.raises(RpcError, match=r"\(widgets\.py:5\)$"):
            bench.allocate("pod", "main", {"example.com/widget": 1})
    told = "".join(
        logging.Formatter().format(record)
        for record in caplog.records
        if record.levelno == logging.WARNING
    )
    assert "widgets.py" in told
    assert "hook_threads.py" not in told


def test_a_test_shows_its_own_lines(tmp_path: Path) -> None:
    """What pytest prints of a failure on the bench is the test and the error."""
    (tmp_path / "widgets.py").write_text(AUTHOR)
    (tmp_path / "test_widgets.py").write_text(TEST)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    printed = ended.stdout
    assert "must be absolute (widgets.py:12)" in printed
    assert ">       bench.wait_for(" in printed
    for ours in ("bench.py", "loop_thread.py", "scanner.py", "hook_threads.py", "futures"):
        assert ours not in printed


def test_a_bug_of_ours_keeps_its_frames() -> None:
    """What never was in an author's code, and is no error of ours on purpose, is shown in full."""

    class Ours(KubedevicesError):
        pass

    bug, wanted = ValueError("bug"), Ours("told")
    for error in (bug, wanted):
        try:
            kd.DeviceTree().add("widget", error)  # type: ignore[arg-type]
        except InvalidDevice as raised_by_us:
            error.__traceback__ = raised_by_us.__traceback__.tb_next  # type: ignore[union-attr]
        forget_our_frames(error)
    assert without_our_frames(bug) is not None
    assert bug.__traceback__ is not None
    assert wanted.__traceback__ is None
