"""The default answer to Allocate."""

import logging
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubedevices.errors import AllocationRefused, ConflictingDevices, NoDevicesNamed, StatusCode
from kubedevices.kubelet_api.convert import ALLOCATE_RESPONSE
from kubedevices.plugin.allocate_response import EnvMerge, default_response
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
)
from kubedevices.values.device import Device, DeviceSpec, Health, Mount


def request_for(*containers: tuple[str, ...]) -> AllocateRequest:
    """Return a request with these device IDs per container."""
    return AllocateRequest(tuple(ContainerAllocateRequest(ids) for ids in containers))


def respond(
    *devices: Device, ids: tuple[str, ...] = (), **options: Any
) -> ContainerAllocateResponse:
    """Return what one container gets for `devices`, asked for in order of `ids`."""
    asked = ids or tuple(device.id for device in devices)
    known = {device.id: device for device in devices}
    (container,) = default_response(request_for(asked), known, **options).containers
    return container


def test_a_container_gets_everything_of_its_device() -> None:
    """Device files, mounts, variables, annotations and the CDI name arrive."""
    device = Device(
        "w0",
        paths=["/dev/w0"],
        specs=[DeviceSpec("/dev/ctl", "/dev/w/ctl", "r")],
        mounts=[Mount("/opt/w", "/w", read_only=True)],
        env={"W": "0"},
        annotations={"example.com/w": "0"},
        cdi="example.com/w=0",
    )
    assert respond(device) == ContainerAllocateResponse(
        env={"W": "0"},
        mounts=[Mount("/opt/w", "/w", read_only=True)],
        devices=[DeviceSpec("/dev/w0"), DeviceSpec("/dev/ctl", "/dev/w/ctl", "r")],
        annotations={"example.com/w": "0"},
        cdi_devices=["example.com/w=0"],
    )


def test_one_answer_per_container_in_order() -> None:
    """Every container of the request gets its own answer."""
    devices = {name: Device(name, env={"ID": name}) for name in ("a", "b")}
    response = default_response(request_for(("b",), ("a",)), devices)
    assert [container.env for container in response.containers] == [{"ID": "b"}, {"ID": "a"}]
    assert default_response(request_for(), devices) == AllocateResponse([])


def test_devices_come_in_natural_order() -> None:
    """Files of `card2` come before those of `card10`, whatever was asked for first."""
    devices = [Device(name, paths=[f"/dev/{name}"]) for name in ("card10", "card2", "card1")]
    container = respond(*devices)
    assert [spec.host_path for spec in container.devices] == [
        "/dev/card1", "/dev/card2", "/dev/card10",
    ]  # fmt: skip


@settings(deadline=None)
@given(st.permutations([f"card{n}" for n in range(12)]), st.sampled_from(["last", "join"]))
def test_every_order_of_ids_gives_the_same_bytes(ids: list[str], env_merge: EnvMerge) -> None:
    """A kubelet's random order never shows in what goes over the wire."""
    devices = {
        f"card{n}": Device(
            f"card{n}",
            paths=[f"/dev/card{n}", "/dev/shared"],
            mounts=[Mount("/opt", "/opt", read_only=n % 2 == 0)],
            env={"CARD": str(n), f"CARD{n}": "1"},
            annotations={"card": str(n % 3)},
            cdi=f"example.com/card={n % 5}",
        )
        for n in range(12)
    }
    ordered = default_response(request_for(tuple(devices)), devices, env_merge=env_merge)
    shuffled = default_response(request_for(tuple(ids)), devices, env_merge=env_merge)
    assert ALLOCATE_RESPONSE.to_wire(shuffled) == ALLOCATE_RESPONSE.to_wire(ordered)


def test_an_unknown_device() -> None:
    """An ID that is not there refuses the call with NOT_FOUND and the reference's text."""
    text = "Invalid allocation request with non-existing device w9"
    with pytest.raises(AllocationRefused, match=f"^{text}$") as caught:
        respond(Device("w0"), ids=("w0", "w9"))
    assert (caught.value.device_id, caught.value.code) == ("w9", StatusCode.NOT_FOUND)


def test_an_unhealthy_device() -> None:
    """An unhealthy device refuses the whole call with FAILED_PRECONDITION."""
    text = "Invalid allocation request with unhealthy device w1"
    with pytest.raises(AllocationRefused, match=f"^{text}$") as caught:
        respond(Device("w0"), Device("w1", health=Health.UNHEALTHY))
    assert (caught.value.device_id, caught.value.code) == ("w1", StatusCode.FAILED_PRECONDITION)


def test_a_container_without_devices_is_refused() -> None:
    """A request that names no device is a mistake of the caller."""
    with pytest.raises(NoDevicesNamed, match="without devices") as caught:
        default_response(request_for(()), {})
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


def test_an_id_asked_for_twice_counts_once() -> None:
    """A repeated ID in a request changes nothing."""
    device = Device("w0", paths=["/dev/w0"], env={"W": "0"})
    assert respond(device, ids=("w0", "w0"), env_merge="join") == respond(device)


def test_replicas_give_their_device_file_once() -> None:
    """Two shares of one card give one device file, with all permissions either has."""
    container = respond(
        Device("card0-0", specs=[DeviceSpec("/dev/card0", None, "m")]),
        Device("card0-1", specs=[DeviceSpec("/dev/card0", None, "rw")]),
        Device("card0-2", specs=[DeviceSpec("/dev/card0", None, "r")]),
    )
    assert container.devices == [DeviceSpec("/dev/card0", "/dev/card0", "rwm")]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_equal_mounts_are_given_once(first: bool, second: bool, expected: bool) -> None:
    """A mount is writable if one of the devices needs it so."""
    container = respond(
        Device("a", mounts=[Mount("/opt", "/opt", read_only=first)]),
        Device("b", mounts=[Mount("/opt", "/opt", read_only=second)]),
    )
    assert container.mounts == [Mount("/opt", "/opt", read_only=expected)]


def test_a_host_path_may_have_two_container_paths() -> None:
    """The same file seen under two names is no duplicate."""
    container = respond(
        Device("a", specs=[DeviceSpec("/dev/w", "/dev/a")]),
        Device("b", specs=[DeviceSpec("/dev/w", "/dev/b")]),
    )
    assert [spec.container_path for spec in container.devices] == ["/dev/a", "/dev/b"]


def test_cdi_names_are_given_once() -> None:
    """Two devices with one CDI name give it once."""
    container = respond(Device("a", cdi="v.com/c=1"), Device("b", cdi="v.com/c=1"))
    assert container.cdi_devices == ["v.com/c=1"]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ({"specs": [DeviceSpec("/dev/a", "/dev/x")]}, {"specs": [DeviceSpec("/dev/b", "/dev/x")]},
         ContainerAllocateResponse(devices=[DeviceSpec("/dev/a", "/dev/x")])),
        ({"mounts": [Mount("/dev/a", "/dev/x")]}, {"mounts": [Mount("/dev/b", "/dev/x")]},
         ContainerAllocateResponse(mounts=[Mount("/dev/a", "/dev/x")])),
    ],
)  # fmt: skip
class TestTwoHostPathsAtOnePlace:
    """Two devices that put different things at one place of the container."""

    def test_the_first_is_kept_with_a_warning(
        self,
        first: dict[str, Any],
        second: dict[str, Any],
        kept: ContainerAllocateResponse,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """By default the first one by ID is kept, and the log says which was dropped."""
        assert respond(Device("b", **second), Device("a", **first)) == kept
        warnings = [record.getMessage() for record in caplog.records]
        assert warnings == [
            "device b puts /dev/b at /dev/x, where /dev/a already is: the first is kept"
        ]
        assert caplog.records[0].levelno == logging.WARNING

    def test_conflicts_can_be_counted(
        self, first: dict[str, Any], second: dict[str, Any], kept: ContainerAllocateResponse
    ) -> None:
        """Whoever wants to count gets every conflict instead of the log line."""
        conflicts: list[ConflictingDevices] = []
        devices = Device("a", **first), Device("b", **second)
        assert respond(*devices, on_conflict=conflicts.append) == kept
        assert [conflict.device_id for conflict in conflicts] == ["b"]

    def test_strict_mode_refuses_the_call(
        self, first: dict[str, Any], second: dict[str, Any], kept: ContainerAllocateResponse
    ) -> None:
        """In strict mode the call is refused with INVALID_ARGUMENT."""
        text = "Invalid allocation request: device b puts /dev/b at /dev/x, where /dev/a"
        with pytest.raises(ConflictingDevices, match=text) as caught:
            respond(Device("a", **first), Device("b", **second), strict=True)
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert isinstance(caught.value, AllocationRefused)
        assert kept != ContainerAllocateResponse()


@pytest.mark.parametrize(
    ("part", "what"), [("env", "environment variable"), ("annotations", "annotation")]
)
def test_a_value_that_is_left_out_is_logged(
    part: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each name, not for each of many devices; equal values lose nothing."""
    devices = [
        Device(f"card{n}", **{part: {"CARD": f"card{n}", "DRIVER": "1"}})  # type: ignore[arg-type]
        for n in range(4)
    ]
    respond(*devices)
    (message,) = caplog.messages
    assert message == (
        f"device card1 sets the {what} CARD to 'card1', another device sets it to 'card0': "
        "the last counts "
        "(a name per device, or env_merge=join, keeps all)"
    )
    caplog.clear()
    respond(*devices, env_merge="join")
    assert not caplog.records


@pytest.mark.parametrize("part", ["env", "annotations"])
@pytest.mark.parametrize(
    ("values", "env_merge", "expected"),
    [
        (["1", "2", "3"], "last", "3"),
        (["1", "2", "3"], "join", "1,2,3"),
        (["2", "1", "2"], "last", "2"),
        (["2", "1", "2"], "join", "2,1"),
        (["1", "1"], "last", "1"),
        (["1", "1"], "join", "1"),
        (["1", "1"], "error", "1"),
    ],
)
def test_merging(part: str, values: list[str], env_merge: EnvMerge, expected: str) -> None:
    """Equal values collapse; different ones follow `env_merge`, in order of the IDs."""
    devices = [Device(f"w{n}", **{part: {"NAME": value}}) for n, value in enumerate(values)]  # type: ignore[arg-type]
    assert getattr(respond(*devices, env_merge=env_merge), part) == {"NAME": expected}


@pytest.mark.parametrize(
    ("part", "what"), [("env", "environment variable"), ("annotations", "annotation")]
)
def test_different_values_can_be_an_error(part: str, what: str) -> None:
    """With `env_merge="error"` two values of one name refuse the call."""
    devices = [Device(f"w{n}", **{part: {"NAME": str(n)}}) for n in range(2)]  # type: ignore[arg-type]
    text = f"device w1 sets the {what} NAME to '1', another device sets it to '0'"
    with pytest.raises(ConflictingDevices, match=re.escape(text)) as caught:
        respond(*devices, env_merge="error")
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


def test_different_names_do_not_conflict() -> None:
    """Every device brings its own variables."""
    container = respond(Device("a", env={"A": "1"}), Device("b", env={"B": "2"}))
    assert container.env == {"A": "1", "B": "2"}


def test_answers_share_nothing() -> None:
    """An answer edited by a plugin does not change the devices or the next answer."""
    device = Device("w", paths=["/dev/w"], env={"A": "1"})
    container = respond(device)
    container.env["A"] = "edited"
    container.devices.clear()
    assert respond(device).env == {"A": "1"}
    assert respond(device).devices == [DeviceSpec("/dev/w")]
