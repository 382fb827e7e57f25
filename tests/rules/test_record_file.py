"""Writing a record: nothing waits for the disk, and what is lost is told."""

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import UsageError
from kubedevices.host.rotated_file import RotatedFile
from kubedevices.kubelet_api.convert import device_list_to_wire, device_to_wire
from kubedevices.rules import record_file
from kubedevices.rules.record_file import RecordFile, RecordRule
from kubedevices.rules.record_format import ALLOCATE, call_parts
from tests.waiting import until_sync

RESOURCE = "example.com/gpu"


def lines(path: Path) -> list[Any]:
    return [json.loads(each) for each in path.read_text().splitlines()]


def gpus(*ids: str, bad: str = "") -> dict[str, kd.Device]:
    return {
        name: kd.Device(name, health=kd.Health.UNHEALTHY if name == bad else kd.Health.HEALTHY)
        for name in ids
    }


def end(file: RecordFile) -> None:
    file.close()
    until_sync(lambda: not file.is_writing, timeout=60)


def call(file: RecordFile, text: str) -> None:
    file.add(call_parts(file.now(), RESOURCE, ALLOCATE, message=text))


def test_each_file_can_be_read_alone(tmp_path: Path) -> None:
    """It begins with the options and lists as they are then; old files go."""
    path = tmp_path / "gpu.jsonl"
    file = RecordFile(RecordRule(file=str(path), max_size=600, files=2))
    file.start()
    file.add_options(RESOURCE, {"preStartRequired": True})
    file.add_list(RESOURCE, gpus("g0", "g1"))
    file.add_list(RESOURCE, gpus("g0", "g1"))  # the same again is no news
    file.add_list(RESOURCE, gpus("g0", "g1", bad="g1"))
    for number in range(20):
        call(file, f"{number:03}" + "." * 100)
    end(file)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["gpu.jsonl", "gpu.jsonl.1"]
    texts = []
    for each in (tmp_path / "gpu.jsonl.1", path):
        first, options, devices, *rest = lines(each)
        assert first["kubedevices-record"] == 1
        assert options["message"] == {"preStartRequired": True}
        assert devices["message"]["devices"][1] == {"ID": "g1", "health": "Unhealthy"}
        assert sum(len(json.dumps(line, separators=(",", ":"))) + 1 for line in rest) <= 600
        texts += [int(line["message"][:3]) for line in rest]
    assert texts == [*range(texts[0], 20)]


def test_a_list_of_any_size_fits(tmp_path: Path) -> None:
    """It is larger than a file, and still each line of a call does not begin a new file."""
    path = tmp_path / "gpu.jsonl"
    file = RecordFile(RecordRule(file=str(path), max_size=500, files=9))
    file.start()
    file.add_list(RESOURCE, gpus(*(f"g{number}" for number in range(100))))
    for _ in range(3):
        call(file, "x")
    end(file)
    assert [*tmp_path.iterdir()] == [path]
    assert len(lines(path)) == 5


def test_a_disk_that_refuses_delays_no_call_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines are counted; afterwards the record says how many, and the list as it is by then."""
    lost: list[int] = []
    file = RecordFile(RecordRule(file=f"{tmp_path}/later/gpu.jsonl"), on_lost=lost.append)
    with caplog.at_level(logging.INFO):
        file.start()
        file.add_list(RESOURCE, gpus("g0"))
        until_sync(lambda: lost)
        call(file, "lost too, or not")
        file.add_list(RESOURCE, gpus("g0", bad="g0"))
        (tmp_path / "later").mkdir()
        # By itself: nobody has to call again.
        until_sync(lambda: "the record goes on" in caplog.text)
        call(file, "last")
        end(file)
    first, gap, *rest = lines(tmp_path / "later" / "gpu.jsonl")
    assert first["kubedevices-record"] == 1
    assert gap["lost"] == sum(lost) > 0
    (listed,) = [line for line in rest if line["call"] == "ListAndWatch"][-1:]
    assert "{'ID': 'g0', 'health': 'Unhealthy'}" in str(listed)
    assert rest[-1]["message"] == "last"
    assert caplog.text.count("lines of the record are lost: No such file or directory") == 1


def test_a_disk_that_hangs_delays_no_call_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What waits is bounded; the oldest calls are kept, and the newest options and lists of each
    resource. Before `start` nothing is written.
    """
    lost: list[int] = []
    file = RecordFile(RecordRule(file=f"{tmp_path}/gpu.jsonl"), on_lost=lost.append)
    some = gpus(*(f"g{number}" for number in range(100)))
    for number in range(50):
        call(file, f"{number:02}" + "x" * 2**17)
        file.add_list(RESOURCE, {**some, "last": kd.Device(f"list-{number}")})
        file.add_list("example.com/nic", gpus(f"nic-{number}"))
        file.add_options(RESOURCE, {"number": number})
    assert caplog.text.count("the disk is too slow") == 1
    assert file._size < 3 * record_file.MOST_WAITING
    file.start()
    path = tmp_path / "gpu.jsonl"
    until_sync(path.exists)
    end(file)
    found = lines(path)
    assert sum(lost) == next(line["lost"] for line in found if "lost" in line) > 9
    for last in ("list-49", "nic-49", "{'number': 49}"):
        assert sum(last in str(line) for line in found) == 1
    written = [line for line in found if "call" in line]
    assert len(written) + sum(lost) == 200  # a list that is replaced is lost
    calls = [line["message"][:2] for line in written if line["call"] == ALLOCATE]
    assert [*map(int, calls)] == [*range(len(calls))]


def test_a_list_that_is_larger_than_the_queue_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing else waits; afterwards no file stays open."""
    monkeypatch.setattr(record_file, "MOST_WAITING", 100)
    lost: list[int] = []
    file = RecordFile(RecordRule(file=f"{tmp_path}/gpu.jsonl"), on_lost=lost.append)
    file.add_list(RESOURCE, gpus("g0", "g1", "g2"))
    file.start()
    end(file)
    assert not lost
    assert len(lines(tmp_path / "gpu.jsonl")) == 2
    opened = {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
    assert f"{tmp_path}/gpu.jsonl" not in opened


def test_a_list_that_is_replaced_leaves_its_room_to_others(tmp_path: Path) -> None:
    """A disk may hang for so long that many lists come."""
    file = RecordFile(RecordRule(file=f"{tmp_path}/gpu.jsonl"))
    call(file, "x" * (record_file.MOST_WAITING - 10_000))
    for number in range(10):
        file.add_list(RESOURCE, gpus(*(f"g{number}-{each}" for each in range(100))))
    call(file, "last")
    file.start()
    end(file)
    assert lines(tmp_path / "gpu.jsonl")[-1]["message"] == "last"


def test_written_lines_leave_their_room_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record goes on for as long as the disk is fast enough."""
    monkeypatch.setattr(record_file, "MOST_WAITING", 2000)
    path, lost = tmp_path / "gpu.jsonl", list[int]()
    file = RecordFile(RecordRule(file=str(path)), on_lost=lost.append)
    file.add_options(RESOURCE, {})
    file.start()
    for written in (2, 4, 6):
        until_sync(lambda: path.exists() and len(lines(path)) == written, timeout=10)  # noqa: B023
        with file._changed:  # both wait at the same time
            call(file, "x" * 500)
            call(file, "x" * 500)
    end(file)
    assert not lost


def test_many_changed_lists_fill_a_file(tmp_path: Path) -> None:
    """As calls do: a device that flaps must not fill the disk."""
    path = tmp_path / "gpu.jsonl"
    file = RecordFile(RecordRule(file=str(path), max_size=1000, files=99))
    file.start()
    for number in range(40):
        file.add_list(RESOURCE, gpus("g0", "g1", bad=f"g{number % 2}"))
    end(file)
    assert len([*tmp_path.iterdir()]) > 5
    assert all(each.stat().st_size < 2000 for each in tmp_path.iterdir())


def test_a_gap_says_what_was_lost_in_all_attempts_and_what_is_no_longer_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one file, where a reader knows the list from before the gap."""
    errors, write = list[OSError](), RotatedFile.write

    def fail_first(file: RotatedFile, data: bytes) -> None:
        if errors:
            raise errors.pop()
        write(file, data)

    monkeypatch.setattr(RotatedFile, "write", fail_first)
    monkeypatch.setattr(record_file, "_TRY_AGAIN", 0.01)
    path = tmp_path / "gpu.jsonl"
    file = RecordFile(RecordRule(file=str(path)))
    file.start()
    file.add_list(RESOURCE, gpus("g0"))
    until_sync(lambda: path.exists() and len(lines(path)) == 2)
    errors += [OSError(errno.ENOSPC, "no space left on device") for _ in range(3)]
    file.add_list(RESOURCE, None)
    until_sync(lambda: not errors, timeout=10)
    end(file)
    gap, gone = lines(path)[2:]
    assert gap["lost"] == 1
    assert gone["gone"]


@pytest.mark.parametrize("is_wire", [False, True], ids=["a scanner", "a plugin"])
def test_a_waiting_list_needs_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_wire: bool
) -> None:
    """Whoever sent it: else the memory of the process would grow while the disk hangs."""
    monkeypatch.setattr(record_file, "MOST_WAITING", 1000)
    lost: list[int] = []
    file = RecordFile(RecordRule(file=f"{tmp_path}/gpu.jsonl"), on_lost=lost.append)
    devices = gpus(*(f"gpu-{number}" for number in range(100)))
    wire = device_list_to_wire(device_to_wire(each, ()) for each in devices.values())
    file.add_list(RESOURCE, wire if is_wire else devices)
    call(file, "lost")
    file.start()
    end(file)
    assert sum(lost) == 1


@pytest.mark.parametrize("options", [{"max_size": 0}, {"files": 0}])
def test_a_record_limit_of_zero_is_refused(tmp_path: Path, options: dict[str, int]) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match="must be 1 or more, not 0"):
        RecordRule(file=f"{tmp_path}/f", **options)  # type: ignore[arg-type]


def test_lists_that_were_lost_are_in_the_next_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The plugin may never send them again; all wait when the disk refuses the first line."""
    later = tmp_path / "later"
    file = RecordFile(RecordRule(file=f"{later}/gpu.jsonl"))
    file.add_options(RESOURCE, {"preStartRequired": True})
    file.add_list(RESOURCE, gpus("g0"))
    file.add_list("example.com/nic", gpus("n0"))
    with caplog.at_level(logging.INFO):
        file.start()
        until_sync(lambda: "lines of the record are lost" in caplog.text)
        later.mkdir()
        until_sync(lambda: "the record goes on" in caplog.text)
        end(file)
    first, gap, *rest = lines(later / "gpu.jsonl")
    assert (first["kubedevices-record"], gap["lost"]) == (1, 3)
    listed = {line["resource"]: line["message"]["devices"] for line in rest[1:]}
    assert rest[0]["message"] == {"preStartRequired": True}
    assert listed == {
        RESOURCE: [{"ID": "g0", "health": "Healthy"}],
        "example.com/nic": [{"ID": "n0", "health": "Healthy"}],
    }
