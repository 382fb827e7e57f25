"""Reading a record: what is damaged is told and left out, the rest counts."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import CannotRead
from kubedevices.proxy.record_reader import read_recording
from kubedevices.rules.record_format import entries_of

GPU = "example.com/gpu"
HEAD = {"kubedevices-record": 1, "time": "2026-01-01T00:00:00.000000Z", "redacted": []}


def said(second: int, **parts: Any) -> dict[str, Any]:
    time = f"2026-01-01T00:00:{second:02}.000000Z"
    return {"time": time, "from": "plugin", "resource": GPU, **parts}


def listed(second: int, *ids: str) -> dict[str, Any]:
    devices = [{"ID": name, "health": "Healthy"} for name in ids]
    return said(second, call="ListAndWatch", message={"devices": devices})


def asked(second: int, number: int, *ids: str) -> dict[str, Any]:
    message = {"containerRequests": [{"devicesIds": [*ids]}]}
    return {**said(second, call="Allocate", id=number, message=message), "from": "kubelet"}


def answered(second: int, number: int, **env: str) -> dict[str, Any]:
    message = {"containerResponses": [{"envs": env}]}
    return said(second, call="Allocate", id=number, message=message)


def record(path: Path, *lines: dict[str, Any], head: dict[str, Any] = HEAD, end: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)) + end)
    return path


def test_files_may_come_in_any_order(tmp_path: Path) -> None:
    """Time decides: rotated files of one resource, and those of others."""
    newer = record(
        tmp_path / "a",
        listed(5, "g0"),
        answered(6, 1, A="1"),
        said(7, call="ListAndWatch", gone=True),
    )
    older = record(tmp_path / "b", listed(1, "g0", "g1"), asked(4, 1, "g1", "g0"))
    other = record(tmp_path / "c", {**listed(2, "d"), "resource": "example.com/disk"})
    found = read_recording([newer, older, other])
    gpu = found.resources[GPU]
    seen = [(each.time % 60, each.entries and len(each.entries)) for each in gpu.changes]
    assert seen == [(1, 2), (5, 1), (7, None)]
    ((key, (answer,)),) = gpu.answers.items()
    assert key == ("Allocate", (("g0", "g1"),))
    assert (answer.took, answer.response.containers[0].env) == (2.0, {"A": "1"})
    assert [*found.resources] == [GPU, "example.com/disk"]
    assert found.problems == []


def test_only_a_list_that_differs_is_a_change(tmp_path: Path) -> None:
    """Also the first, which may say that the plugin is gone; a plugin may send a list again."""
    gone = said(1, call="ListAndWatch", gone=True)
    lines = (gone, listed(2, "g0"), listed(3, "g0"), listed(4, "g0", "g1"))
    gpu = read_recording([record(tmp_path / "a", *lines)]).resources[GPU]
    seen = [(each.time % 60, each.entries and len(each.entries)) for each in gpu.changes]
    assert seen == [(1, None), (2, 1), (4, 2)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"time": "2026-01-', "3: it is cut off: ignored"),
        ("\x00\x00\x00\n", "3: it is damaged: ignored"),
        ("[" * 100_000 + "\n", "3: it is damaged: ignored"),
        ("3\n", "3: it is not an object: ignored"),
        ('{"time": "noon"}\n', "3: Invalid isoformat string: 'noon': ignored"),
        (
            json.dumps({**listed(2), "resource": "no name"}) + "\n",
            "3: 'no name' is not a resource:",
        ),
        (
            json.dumps(said(2, call="ListAndWatch", message={"devices": [{"ID": 1}]})) + "\n",
            "3: devices: ID: 1 is not text: ignored",
        ),
        (json.dumps(answered(2, 77)) + "\n", "3: ('example.com/gpu', 'Allocate', 77): ignored"),
        (json.dumps({**asked(2, 1), "id": []}) + "\n", "3: unhashable type: 'list': ignored"),
        (json.dumps({"time": HEAD["time"], "lost": 12}) + "\n", "3: 12 lines could not be written"),
    ],
)
def test_a_damaged_line_is_reported_and_ignored(tmp_path: Path, line: str, problem: str) -> None:
    """With its number; what stands before and after it counts, and a later version may say more."""
    path = record(tmp_path / "r", listed(1, "g0"))
    with path.open("a") as file:
        file.write(line)
    if line.endswith("\n"):
        with path.open("a") as file:
            file.write(json.dumps(listed(9, "g0", "g1")) + "\n")
            file.write(json.dumps(said(9, call="LaterCall", message={})) + "\n")
    found = read_recording([path])
    assert [each.startswith(f"{path}:{problem}") for each in found.problems] == [True], found
    entries = found.resources[GPU].changes[-1].entries
    assert entries is not None
    assert len(entries) == (2 if line.endswith("\n") else 1)
    assert entries == entries_of(b"".join(entries))


def test_many_damaged_lines_are_counted(tmp_path: Path) -> None:
    """Nobody reads a hundred lines about a hundred lines."""
    path = record(tmp_path / "r", listed(1, "g0"), end="broken\n" * 100)
    assert read_recording([path]).problems[5:] == ["and 95 more"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "its first line is not the header of a record"),
        ('{"some": "json"}\n', "its first line is not the header of a record"),
        (json.dumps({**HEAD, "kubedevices-record": 2}) + "\n", "a record of version 2, but this"),
    ],
)
def test_a_file_without_a_record_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    """With its name."""
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(CannotRead, match=f"cannot read {path}: .*{reason}"):
        read_recording([path])


@pytest.mark.parametrize("name", ["none", "."])
def test_a_record_must_be_an_existing_file(tmp_path: Path, name: str) -> None:
    """A directory, a name that nothing has."""
    with pytest.raises(CannotRead, match=r"No such file|a directory"):
        read_recording([tmp_path / name])
