"""Finds a device that two pods hold under two IDs, and accuses nobody who shares on purpose."""

import json
from pathlib import Path

import pytest

from kubedevices.explain.facts import Allocation
from kubedevices.explain.judge_holders import Device, judge_holders
from kubedevices.explain.look_names import known_files
from kubedevices.values.allocation import ContainerAllocateResponse
from kubedevices.values.device import DeviceSpec

TTY = "/dev/ttyUSB0"
FILES = {
    ("example.com/serial", "ttyUSB0"): TTY,
    ("example.com/serial", "usb-X-1"): TTY,
    ("example.com/modem", "modem"): TTY,
    ("example.com/serial", "ttyUSB1"): "/dev/ttyUSB1",
}


def held(pod: str, resource: str, *ids: str, files: tuple[str, ...] = ()) -> Allocation:
    answer = ContainerAllocateResponse(devices=[DeviceSpec(each, each) for each in files])
    return Allocation(pod, "app", resource, ids, answer)


@pytest.mark.parametrize(
    "second",
    [
        held("two", "example.com/serial", "usb-X-1"),
        held("two", "example.com/serial", "ttyUSB1", "usb-X-1::3"),
        held("two", "example.com/modem", "modem"),
        held("two", "other.com/tty", "a", "b", files=("/dev/null", TTY)),
    ],
)
def test_two_ids_of_one_device_are_a_problem(second: Allocation) -> None:
    """Both holders are named: which pod may stay is the decision of people."""
    first = held("uid-1", "example.com/serial", "ttyUSB0::1", files=(TTY,))
    (finding,) = judge_holders([first, second], FILES, {"uid-1": "lab/one"})
    assert (finding.result, finding.looked_at) == ("problem", TTY)
    assert "held under 2 IDs" in finding.found
    assert "ttyUSB0 by lab/one (app)" in finding.found
    assert "two (app)" in finding.found


@pytest.mark.parametrize(
    "both",
    [
        [held("1", "example.com/serial", "ttyUSB0"), held("2", "example.com/serial", "ttyUSB1")],
        [held(pod, "example.com/serial", f"ttyUSB0::{pod}", files=(TTY,)) for pod in "12"],
        [held(pod, "other.com/kvm", f"kvm{pod}", files=("/dev/kvm",)) for pod in "12"],
        [held("1", "example.com/serial", "ttyUSB0"), held("2", "other.com/cdi", "x")],
    ],
)
def test_sharing_on_purpose_is_no_problem(both: list[Allocation]) -> None:
    """Neither replicas, nor a file that all devices of another plugin have."""
    assert [*judge_holders(both, FILES, {})] == []


def test_the_file_of_expose_tells_the_device_of_each_id(tmp_path: Path) -> None:
    """By ID or by number; a damaged file and a device that is not listed tell nothing."""
    device = {"id": "a", "file": TTY, "number": 4, "listed": True}
    gone = {"id": "b", "file": TTY, "number": 5, "listed": False}
    resources = {
        "x": {"id": "stable", "devices": [device, gone]},
        "y": {"id": "index", "devices": [device]},
    }
    text = json.dumps({"version": 1, "resources": resources})
    (tmp_path / "expose-example.com.json").write_text(text)
    (tmp_path / "expose-broken.json").write_text("[")
    expected: dict[Device, str] = {("example.com/x", "a"): TTY, ("example.com/y", "y-4"): TTY}
    assert known_files(tmp_path) == expected
    assert known_files(tmp_path / "none") == {}
