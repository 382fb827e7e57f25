"""`kubedevices replay`."""

import signal
from pathlib import Path

import pytest

from tests.cli.commands import running
from tests.command_line import CommandLine
from tests.fake_kubelet import FakeKubelet
from tests.proxy.test_record_reader import GPU, listed, record
from tests.waiting import until


async def test_a_record_is_a_plugin(short_dir: Path) -> None:
    """It registers, says what was damaged, and ends on SIGTERM."""
    path = record(short_dir / "gpu.jsonl", listed(0, "g0"), listed(30, "g0", "g1"), end='{"cut')
    sockets, log = short_dir / "s", short_dir / "log"
    sockets.mkdir()
    async with FakeKubelet(sockets) as kubelet:
        words = ["replay", path, "--speed", "300", "--socket-dir", sockets]
        with running(words, log=log) as process:
            await kubelet.wait_for(GPU, 2)
            process.send_signal(signal.SIGTERM)
            await until(lambda: process.poll() is not None, what="the end of the process")
    assert process.returncode == 0
    told = log.read_text()
    assert f"{path}:4: it is cut off: ignored" in told
    assert "example.com/gpu: 2 lists, 0 answers" in told
    assert "the record is at its end: its last lists stay" in told


@pytest.fixture
def in_short_dir(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(short_dir)
    return short_dir


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none"], 3, "cannot read none: No such file or directory"),
        (["gpu.jsonl", "--speed", "0"], 2, "'0' is not a number above 0"),
        (["gpu.jsonl", "--speed", "inf"], 2, "'inf' is not a number above 0"),
        (["gpu.jsonl", "--domain", "x"], 2, "the record has no resource of 'x'"),
    ],
)
def test_an_error_is_one_message(
    arguments: list[str], code: int, message: str, in_short_dir: Path, cli: CommandLine
) -> None:
    """With the exit code of its kind."""
    record(in_short_dir / "gpu.jsonl", listed(0, "g0"))
    assert message in cli("replay", *arguments, code=code).err
