"""Finds a device that two pods hold under two IDs, and accuses nobody who shares on purpose."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.dra.names import device_label
from kubedevices.explain.on_node.driver_facts import (
    ClaimedPart,
    ClaimFacts,
    DriverFacts,
    DriverFiles,
)
from kubedevices.explain.on_node.facts import Allocation, DeviceState, ResourceState
from kubedevices.explain.on_node.judge_holders import Device, judge_both_apis, judge_holders
from kubedevices.explain.on_node.look_names import known_files
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


def in_a_claim(name: str, *, files: tuple[str, ...] = (), is_admin: bool = False) -> DriverFacts:
    """Return a driver with a claim of the device `name`."""
    part = ClaimedPart("example.com", "node1", name, is_admin=is_admin)
    claim = ClaimFacts("lab/c", (part,), "uid", files=frozenset(files), held_by=("lab/p (m)",))
    return DriverFacts("example.com", claims=(claim,), files=DriverFiles("example.com", Path()))


HELD = ResourceState(
    "example.com/serial", (DeviceState("ttyUSB1::2", "Healthy", held_by=("lab/q (m)",)),)
)


@pytest.mark.parametrize(
    ("driver", "is_problem"),
    [
        (in_a_claim("ttyusb1-fd2f95e1"), True),
        (in_a_claim("ttyusb1-fd2f95e1", files=("/dev/ttyUSB1",)), True),
        (in_a_claim("ttyusb1-fd2f95e1", files=("/dev/other",)), False),
        (in_a_claim("ttyusb1-fd2f95e1", is_admin=True), False),
        (in_a_claim("another"), False),
        (replace(in_a_claim("ttyusb1-fd2f95e1"), files=None), False),
        (replace(in_a_claim("ttyusb1-fd2f95e1"), name="other.com"), False),
    ],
)
def test_a_device_in_both_apis_is_a_problem(driver: DriverFacts, is_problem: bool) -> None:
    """Another device with the same name is none, nor is a claim that only looks at the device."""
    allocations = [held("q", "example.com/serial", "ttyUSB1::2", files=("/dev/ttyUSB1",))]
    found = [*judge_both_apis([HELD], allocations, [driver])]
    assert [each.looked_at for each in found] == ["example.com/serial/ttyUSB1"] * is_problem
    for each in found:
        assert "by the device plugin for lab/q (m); by claim lab/c, held by lab/p (m)" in each.found


def test_a_claim_and_another_id_of_the_same_file_are_a_problem() -> None:
    """The names of `expose` say which file the device of the claim is."""
    allocation = held("one", "example.com/serial", "usb-X-1")
    label = device_label("ttyUSB0")
    (finding,) = judge_holders([allocation], FILES, {}, [in_a_claim(label)])
    assert "example.com/serial/ttyUSB0 by claim lab/c; " in finding.found
