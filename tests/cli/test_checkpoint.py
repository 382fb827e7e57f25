"""`kubedevices checkpoint`."""

import io
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.checkpoint.text import Checkpoint, CheckpointEntry, format_checkpoint
from kubedevices.values.allocation import ContainerAllocateResponse
from kubedevices.values.device import Mount
from tests.cli.commands import run
from tests.command_line import CommandLine, Printed
from tests.golden_data import GOLDEN, load

FULL = GOLDEN / "checkpoints" / "04_full_response.json"
MODIFIED = GOLDEN / "checkpoints_bad" / "modified_device.json"
V1 = GOLDEN / "checkpoints_v1" / "v1_two_pods.json"


@pytest.fixture
def checkpoint(cli: CommandLine) -> CommandLine:
    return cli.of("checkpoint")


def cells(printed: Printed) -> list[list[str]]:
    return [line.split() for line in printed.lines]


def write(file: Path, *entries: CheckpointEntry) -> Path:
    file.write_bytes(format_checkpoint(Checkpoint(entries, {"example.com/widget": ("a", "b")})))
    return file


def entry(pod_uid: str, container: str = "c", response: bytes | None = None) -> CheckpointEntry:
    return CheckpointEntry(pod_uid, container, "example.com/widget", {-1: ("a",)}, response)


def test_show_prints_allocations_and_answers(checkpoint: CommandLine) -> None:
    """The kubelet's own file, with the answer of the plugin decoded."""
    done = checkpoint("show", FULL)
    assert done.err == ""
    assert done.out.startswith(f"{FULL}: good, checksum 3599859048\n")
    assert [*cells(done)[1]] == [
        *("POD", "CONTAINER", "RESOURCE", "DEVICES", "ENV"),
        *("DEVICE", "FILES", "MOUNTS", "ANNOTATIONS", "CDI"),
    ]
    assert cells(done)[2] == [
        *("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "main", "vendor.example/gpu"),
        *("gpu-0", "(NUMA", "0)", "GPU_VISIBLE=gpu-0", "/dev/gpu0", "(rw)"),
        *("/opt/vendor/lib:/usr/lib/vendor", "(ro)", "vendor.example/alloc=gpu-0"),
        "vendor.example/gpu=gpu-0",
    ]
    assert cells(done)[-1] == ["vendor.example/gpu", "3", "gpu-0,gpu-1,gpu-2"]


def test_json_has_the_documented_keys(checkpoint: CommandLine) -> None:
    """One report per file; YAML says the same."""
    done = checkpoint("show", "-o", "json", FULL)
    assert done.data == [
        {
            "file": str(FULL),
            "verdict": "good",
            "reason": "",
            "checksum": {"stored": 3599859048, "computed": 3599859048},
            "boot_id": None,
            "before_1_20": False,
            "notes": [],
            "entries": [
                {
                    "pod_uid": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
                    "container": "main",
                    "resource": "vendor.example/gpu",
                    "devices": {"0": ["gpu-0"]},
                    "answer": {
                        "env": {"GPU_VISIBLE": "gpu-0"},
                        "devices": [
                            {
                                "host_path": "/dev/gpu0",
                                "container_path": "/dev/gpu0",
                                "permissions": "rw",
                            }
                        ],
                        "mounts": [
                            {
                                "host_path": "/opt/vendor/lib",
                                "container_path": "/usr/lib/vendor",
                                "read_only": True,
                            }
                        ],
                        "annotations": {"vendor.example/alloc": "gpu-0"},
                        "cdi_devices": ["vendor.example/gpu=gpu-0"],
                    },
                }
            ],
            "registered": {"vendor.example/gpu": ["gpu-0", "gpu-1", "gpu-2"]},
        }
    ]
    assert yaml.safe_load(checkpoint("show", "-o", "yaml", FULL).out) == done.data


@pytest.mark.parametrize("action", ["show", "verify"])
@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_the_exit_code_is_that_of_the_worst_file(
    checkpoint: CommandLine, action: str, output: str, tmp_path: Path
) -> None:
    """0 good, 1 corrupt, 3 unreadable; every file is reported on all the same."""
    missing = tmp_path / "missing"
    checkpoint(action, "-o", output, FULL, V1)
    checkpoint(action, "-o", output, FULL, MODIFIED, V1, code=1)
    done = checkpoint(action, "-o", output, missing, MODIFIED, FULL, code=3)
    assert done.err == f"kubedevices: cannot read {missing}: No such file or directory\n"
    assert all(f"{file}" in done.out for file in (MODIFIED, FULL))


def test_unreadable_files_are_in_json_too(checkpoint: CommandLine, tmp_path: Path) -> None:
    """Beside the line on stderr, which a pipe into jq does not hide."""
    done = checkpoint("verify", "-o", "json", tmp_path, code=3)
    assert done.err == f"kubedevices: cannot read {tmp_path}: Is a directory\n"
    assert done.data[0]["verdict"] == "unreadable"
    assert done.data[0]["reason"] == f"cannot read {tmp_path}: Is a directory"


@pytest.mark.parametrize("case", load("checkpoints/manifest"), ids=lambda case: str(case["file"]))
def test_verify_knows_a_kubelets_files(checkpoint: CommandLine, case: dict[str, Any]) -> None:
    """Every golden file is good, with the checksum the kubelet gave it."""
    done = checkpoint("verify", GOLDEN / "checkpoints" / case["file"])
    assert done.lines[0].endswith(f": good, checksum {case['checksum']}")


@pytest.mark.parametrize(
    "case", load("checkpoints_bad/manifest"), ids=lambda case: str(case["file"])
)
def test_verify_knows_what_a_kubelet_would_not_load(
    checkpoint: CommandLine, case: dict[str, Any]
) -> None:
    """All but the form before 1.20, which is good, and said to be old."""
    is_loaded = case["loaded"] or case["file"] == "v1_pre_1_20_format.json"
    done = checkpoint("verify", GOLDEN / "checkpoints_bad" / case["file"], code=int(not is_loaded))
    if case["file"] == "v1_pre_1_20_format.json":
        assert done.out.endswith(
            ": good, checksum 1924219848, in the form before Kubernetes 1.20\n"
        )


def test_a_corrupt_file_is_shown_with_both_checksums(checkpoint: CommandLine) -> None:
    """Somebody must find out what happened to it."""
    done = checkpoint("show", MODIFIED, code=1)
    assert done.out.startswith(
        f"{MODIFIED}: corrupt: the checksum is 3599859048, but the content has 3773327681"
    )
    assert cells(done)[2][3] == "gpu-1"
    report = checkpoint("show", "-o", "json", MODIFIED, code=1).data[0]
    assert report["checksum"] == {"stored": 3599859048, "computed": 3773327681}
    assert report["entries"][0]["devices"] == {"0": ["gpu-1"]}


def test_files_from_before_1_20_say_nothing_of_numa_nodes(checkpoint: CommandLine) -> None:
    """So nothing is shown that looks like one."""
    done = checkpoint("show", V1)
    assert "gpu-0,gpu-1" in done.out
    assert "NUMA" not in done.out


def test_an_answer_that_cannot_be_decoded_is_noted(checkpoint: CommandLine, tmp_path: Path) -> None:
    """The checksum is right, and yet a kubelet will forget who holds this device."""
    file = write(tmp_path / "f", entry("p", response=b"\xff"))
    done = checkpoint("show", file)
    assert cells(done)[1][:5] == ["pod", "p", "container", "c:", "the"]
    assert "cannot be decoded" in done.out
    assert checkpoint("show", "-o", "json", file).data[0]["entries"][0]["answer"] is None


def test_a_device_of_two_pods_is_noted(checkpoint: CommandLine, tmp_path: Path) -> None:
    """Two containers of one pod may share, after an init container."""
    file = write(tmp_path / "f", entry("p"), entry("p", "d"), entry("q"))
    done = checkpoint("verify", "-o", "json", file)
    assert done.data[0]["notes"] == ["example.com/widget a is held by several pods: p, q"]
    file = write(tmp_path / "f", entry("p"), entry("p", "d"))
    assert checkpoint("verify", "-o", "json", file).data[0]["notes"] == []


def test_read_write_mounts_and_equal_paths_are_short(
    checkpoint: CommandLine, tmp_path: Path
) -> None:
    """Only what differs from the plain case is spelt out."""
    response = CONTAINER_RESPONSE.to_wire(
        ContainerAllocateResponse(mounts=[Mount("/m", "/m", read_only=False)])
    )
    done = checkpoint("show", write(tmp_path / "f", entry("p", response=response)))
    assert cells(done)[1] == ["POD", "CONTAINER", "RESOURCE", "DEVICES", "MOUNTS"]
    assert cells(done)[2] == ["p", "c", "example.com/widget", "a", "/m"]


def test_a_checkpoint_without_pods_is_short(checkpoint: CommandLine) -> None:
    """The verdict alone, or with what was registered."""
    done = checkpoint("show", GOLDEN / "checkpoints" / "01_empty.json")
    assert len(cells(done)) == 1


def test_a_ledger_is_recognised(checkpoint: CommandLine, tmp_path: Path) -> None:
    """Better than complaining about its first character."""
    connection = sqlite3.connect(tmp_path / "ledger.db")
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    done = checkpoint("verify", tmp_path / "ledger.db", code=1)
    assert "it is a database, such as the ledger of kubedevices" in done.out


def test_standard_input_is_a_dash(checkpoint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """For `kubectl exec … cat`."""
    stdin = io.TextIOWrapper(io.BytesIO(FULL.read_bytes()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert checkpoint("verify", "-").out == "-: good, checksum 3599859048\n"


def test_a_file_that_fails_to_be_read(checkpoint: CommandLine) -> None:
    """An error in the middle of reading is no traceback either."""
    done = checkpoint("verify", "/proc/self/mem", code=3)
    assert "Input/output error" in done.err


def test_checkpoint_needs_no_kubelet() -> None:
    """In a process of its own, with nothing else running."""
    done = run("checkpoint", "verify", FULL, MODIFIED)
    assert (done.returncode, done.stderr) == (1, "")
    assert len(done.stdout.splitlines()) == 2
