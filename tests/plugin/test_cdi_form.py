"""Which CDI device a device becomes, and what its answer still says."""

import pytest

from kubedevices.plugin.allocate_response import Inject
from kubedevices.plugin.cdi_form import AnswerForm, cdi_device, leaves_by_cdi
from kubedevices.values.cdi import CdiDevice, ContainerEdits, DeviceNode
from kubedevices.values.device import Device, DeviceSpec, Mount

KIND = "example.com/widget"
EDITS = ContainerEdits(env=("A=1",))


def form(device: Device, inject: Inject) -> Device:
    return AnswerForm(KIND, inject).complete({device.id: device})[device.id]


def test_edits_become_a_device_named_after_the_id() -> None:
    """An ID that fits is kept, one that does not is escaped."""
    assert cdi_device(Device("0000:3b:00.0", cdi=EDITS)) == CdiDevice("0000:3b:00.0", (), EDITS)
    escaped = cdi_device(Device("a b", cdi=EDITS))
    assert escaped is not None
    assert escaped.name.startswith("a_b-")


def test_a_cdi_device_may_have_a_name_of_its_own() -> None:
    """Without one it is named after the ID too."""
    own = CdiDevice("own", container_edits=EDITS)
    assert cdi_device(Device("w", cdi=own)) == own
    assert cdi_device(Device("w", cdi=CdiDevice(container_edits=EDITS))) == CdiDevice(
        "w", (), EDITS
    )


def test_a_foreign_cdi_name_defines_nothing() -> None:
    """Its file is that somebody's."""
    assert cdi_device(Device("w", cdi="other.com/c=x")) is None


def test_a_device_without_cdi_becomes_a_cdi_device() -> None:
    """Device files and mounts; one that has neither has nothing to say."""
    device = Device("w", specs=[DeviceSpec("/dev/a", "/dev/b", "r")], mounts=[Mount("/h", "/c")])
    defined = cdi_device(device)
    assert defined is not None
    assert defined.container_edits.device_nodes == (
        DeviceNode("/dev/b", "/dev/a", permissions="r"),
    )
    assert defined.container_edits.mounts[0].host_path == "/h"
    assert cdi_device(Device("w", env={"A": "1"})) is None


@pytest.mark.parametrize(
    ("inject", "with_cdi", "without"),
    [("nodes", False, False), ("both", True, False), ("cdi", True, True)],
)
def test_inject_decides_which_devices_use_cdi(
    inject: Inject, with_cdi: bool, without: bool
) -> None:
    """`cdi` is for all, `both` for those that have CDI, `nodes` for none."""
    assert leaves_by_cdi(Device("w", cdi=EDITS), inject) is with_cdi
    assert leaves_by_cdi(Device("w"), inject) is without


@pytest.mark.parametrize(
    ("inject", "paths", "name"),
    [
        ("nodes", ("/dev/w",), None),
        ("both", ("/dev/w",), f"{KIND}=w"),
        ("cdi", (), f"{KIND}=w"),
    ],
)
def test_inject_decides_what_an_answer_contains(
    inject: Inject, paths: tuple[str, ...], name: str | None
) -> None:
    """A device file, a name or both; variables are said in any case."""
    formed = form(Device("w", paths=["/dev/w"], env={"A": "1"}, cdi=EDITS), inject)
    assert (formed.paths, formed.cdi, dict(formed.env)) == (paths, name, {"A": "1"})


def test_a_device_without_files_and_mounts_stays_unchanged() -> None:
    """Also with inject=cdi; and a foreign name is passed on."""
    plain = Device("w", env={"A": "1"})
    assert form(plain, "cdi") is plain
    foreign = Device("w", cdi="other.com/c=x")
    assert form(foreign, "both") is foreign


def test_an_unchanged_device_is_reused() -> None:
    """The same object gives the same object; a changed one is made again."""
    answers = AnswerForm(KIND, "both")
    device = Device("w", cdi=EDITS)
    first = answers.complete({device.id: device})[device.id]
    assert answers.complete({device.id: device})[device.id] is first
    changed = Device("w", cdi=CdiDevice("own", container_edits=EDITS))
    assert answers.complete({changed.id: changed})[changed.id].cdi == f"{KIND}=own"
