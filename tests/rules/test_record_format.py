"""The lines of a record: what they say, and that reading gives back what was written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kubedevices as kd
from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.convert import reported_to_wire
from kubedevices.kubelet_api.protobuf import block
from kubedevices.rules import record_format as form
from kubedevices.values.device import ReportedDevice

ids = st.sampled_from("abcdef")
healths = st.sampled_from(["Healthy", "Unhealthy", "odd"])
devices = st.builds(ReportedDevice, ids, healths, st.sampled_from([None, (), (0,), (1, 3)]))
lists = st.lists(devices, max_size=6)


def entries(found: list[ReportedDevice], unknown: bytes = b"") -> tuple[bytes, ...]:
    """Return a list as a plugin may send it, with a field that no list has."""
    more = (unknown,) if unknown else ()
    return (*map(reported_to_wire, found), *more)


@given(lists, lists, st.sampled_from([b"", block(9, b"later")]))
def test_a_line_turns_one_list_into_the_next(
    old: list[ReportedDevice], new: list[ReportedDevice], unknown: bytes
) -> None:
    """Whatever the two are: doubled IDs, another order, a field of a later version."""
    before, after = entries(old), entries(new, unknown)
    written = json.loads(form.line(form.list_json(before, after)))
    assert form.apply_list(before, written) == after
    whole = json.loads(form.line(form.list_json(None, after)))
    assert form.apply_list((), whole) == after


def test_only_what_changed_is_in_the_line() -> None:
    """So that the health of a device in a list of many costs a line, not a list."""
    old = [ReportedDevice(f"d{number}", "Healthy") for number in range(1000)]
    new = [*old[:7], old[7]._replace(health="Unhealthy"), *old[9:], ReportedDevice("e", "Healthy")]
    assert form.list_json(entries(old), entries(new)) == {
        "change": {
            "devices": [{"ID": "d7", "health": "Unhealthy"}, {"ID": "e", "health": "Healthy"}],
            "removed": ["d8"],
        }
    }


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RpcError(StatusCode.NOT_FOUND, "gone"), "NOT_FOUND", "gone"),
        (ValueError("odd"), "UNKNOWN", "odd"),
        (KeyError(), "UNKNOWN", "KeyError"),
    ],
)
def test_errors(error: Exception, code: str, message: str) -> None:
    """As the kubelet hears them."""
    read = form.error_of(json.loads(form.line(form.error_json(error))))
    assert (read.code.name, read.message) == (code, message)


def test_values_of_env_are_left_out_on_request() -> None:
    """The names stay, and everything else."""
    answer = kd.AllocateResponse(
        [
            kd.ContainerAllocateResponse(env={"TOKEN": "secret"}, annotations={"a": "b"}),
            kd.ContainerAllocateResponse(),
        ]
    )
    assert form.response_json(form.ALLOCATE, answer, redact_env=True) == {
        "containerResponses": [{"envs": {"TOKEN": "REDACTED"}, "annotations": {"a": "b"}}, {}]
    }


@pytest.mark.parametrize(
    "parts",
    [{}, {"change": []}, {"change": {"removed": "a"}}, {"change": {"removed": [1]}}],
)
def test_a_malformed_list_is_refused(parts: Any) -> None:
    """A line may be anything."""
    with pytest.raises(ValueError, match=r"is not"):
        form.apply_list((), parts)


def test_a_time_is_read_back() -> None:
    """To the microsecond, in UTC."""
    assert form.stamp(0.25) == "1970-01-01T00:00:00.250000Z"
    assert form.seconds("1970-01-01T00:00:00.250000Z") == 0.25
    with pytest.raises(ValueError, match="None"):
        form.seconds(None)
