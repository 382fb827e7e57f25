"""The file of cordoned devices: what it may say, and who may write it."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk, CannotRead
from kubedevices.rules import cordon_file
from kubedevices.rules.cordon_file import (
    REASON_LIMIT,
    CordonEntry,
    add_cordoned,
    change_cordoned,
    encode_cordoned,
    parse_cordoned,
    read_cordoned,
)

GPU = CordonEntry("example.com/gpu", "GPU-1", "fan „loud“", "2026-11-22T17:06:26Z")


def add(path: Path, *cordoned: CordonEntry) -> None:
    change_cordoned(path, lambda before: [*before, *cordoned])


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    """The directory is made; people can read the file, a device per line."""
    path = tmp_path / "state/maintenance.json"
    assert read_cordoned(path) == ()
    add(path, GPU, GPU._replace(id="dev/tty/0"))
    assert read_cordoned(path) == (GPU, GPU._replace(id="dev/tty/0"))
    assert "„loud“" in path.read_text().splitlines()[1]
    assert "until" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o750


def test_a_file_is_not_written_larger_than_it_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the largest size is good; one more device is refused, and the file stays."""
    path = tmp_path / "maintenance.json"
    monkeypatch.setattr(cordon_file, "SIZE_LIMIT", len(encode_cordoned([GPU])))
    add(path, GPU)
    with pytest.raises(CannotAsk, match="would be larger than"):
        add(path, GPU._replace(id="GPU-2"))
    assert read_cordoned(path) == (GPU,)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", '"version": 1'),
        ('{"version": 2}', '"version": 1'),
        ('{"version": 1, "devices": {}}', "not a list"),
        ('{"version": 1, "devices": ["a"]}', "device 1 is not an object"),
        ('{"version": 1, "devices": [{"resource": "gpu", "id": "a"}]}', "not a resource"),
        ('{"version": 1, "devices": [{"resource": "example.com/gpu"}]}', "id is missing"),
        ('{"version": 1, "devices": [{"resource": "a.b/c", "id": 7}]}', "id must be text"),
        (
            '{"version": 1, "devices": [{"resource": "a.b/c", "id": "d", "until": "soon"}]}',
            "until must be like",
        ),
        (
            '{"version": 1, "devices": [{"resource": "a.b/c", "id": "\\ud800"}]}',
            "half of a surrogate pair",
        ),
    ],
)
def test_a_damaged_file_is_named_and_kept(tmp_path: Path, content: str, problem: str) -> None:
    """A writer does not make it worse."""
    path = tmp_path / "maintenance.json"
    path.write_text(content)
    with pytest.raises(CannotRead, match=problem) as caught:
        add(path, GPU)
    assert str(path) in str(caught.value)
    assert path.read_text() == content


def test_a_device_with_an_end_is_out_until_then(tmp_path: Path) -> None:
    """The times are whole seconds, and the end is never too early."""
    path = tmp_path / "maintenance.json"
    (added,) = add_cordoned(path, [("example.com/gpu", "GPU-1")], "flaps", recover_after=60.0)
    end = added.seconds_left(0.0)
    assert 50.0 < end - time.time() <= 61.0
    assert read_cordoned(path, lambda: end - 0.1) == (added,)
    assert read_cordoned(path, lambda: end) == ()
    add_cordoned(path, [("example.com/gpu", "GPU-1")], "by hand")
    assert [each.until for each in read_cordoned(path)] == [""]
    (added,) = add_cordoned(path, [("example.com/gpu", "GPU-1")], "flaps", recover_after=1e15)
    assert added.until.startswith("9999-")


def test_a_reason_becomes_one_short_line() -> None:
    """It goes into logs and into the messages of pods."""
    said = {"resource": "a.b/c", "id": "x", "reason": "a\nb\x1b[31m" + "!" * 9999}
    document = {"version": 1, "devices": [said]}
    (read,) = parse_cordoned(json.dumps(document).encode())
    assert read.reason.startswith("a b [31m!!")
    assert len(read.reason) == REASON_LIMIT + 1
    assert parse_cordoned(b" \n") == ()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "huge"])
def test_an_unreadable_file_of_cordoned_devices_is_an_error(tmp_path: Path, kind: str) -> None:
    """Who can write in the directory can neither lead us elsewhere nor let us wait."""
    path = tmp_path / "maintenance.json"
    if kind == "link":
        (tmp_path / "secret").write_bytes(encode_cordoned([GPU]))
        path.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(b" " * (2**22 + 1))
    with pytest.raises(CannotRead):
        read_cordoned(path)


def test_writers_at_once_lose_no_line(tmp_path: Path) -> None:
    """Each reads, and writes when nobody wrote meanwhile."""
    path = tmp_path / "maintenance.json"
    start = threading.Barrier(8)

    def write(i: int) -> None:
        start.wait()
        for k in range(5):
            add(path, GPU._replace(id=f"{i}.{k}"))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.id for each in read_cordoned(path)} == {
        f"{i}.{k}" for i in range(8) for k in range(5)
    }


def test_a_writer_waits_for_the_lock_only_some_time(tmp_path: Path) -> None:
    """The error names the lock; afterwards writing works."""
    path = tmp_path / "maintenance.json"

    def write_inside(before: tuple[CordonEntry, ...]) -> tuple[CordonEntry, ...]:
        with pytest.raises(CannotAsk, match=r"maintenance\.json\.lock"):
            change_cordoned(path, lambda _: [], timeout=0.0)
        return (*before, GPU)

    assert change_cordoned(path, write_inside) == (GPU,)
