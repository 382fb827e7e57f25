"""Container options as a CDI file."""

from collections.abc import Iterable

import pytest

from kubedevices.errors import InvalidCdiSpec, NotExpressible
from kubedevices.host.runtimes import cdi
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.cdi import (
    CdiMount,
    CdiName,
    ContainerEdits,
    DeviceNode,
    from_json,
)
from kubedevices.values.device import DeviceSpec, Mount

NAME = CdiName.parse("kubedevices.local/allocation=pod-1")


def test_the_options_become_one_device() -> None:
    """The version is the lowest that can say them."""
    options = ContainerOptions(
        env={"A": "1"}, devices=(DeviceSpec("/dev/a"),), mounts=(Mount("/h", "/c", True),)
    )
    spec = cdi.spec(options, NAME)
    assert (spec.version, spec.kind) == ("0.3.0", "kubedevices.local/allocation")
    [device] = spec.devices
    assert device.name == "pod-1"
    assert device.container_edits == ContainerEdits(
        env=("A=1",),
        device_nodes=(DeviceNode("/dev/a", permissions="rw"),),
        mounts=(CdiMount("/h", "/c", ("ro", "nosuid", "nodev", "bind")),),
    )
    assert from_json(cdi.text(options, NAME)) == spec


def test_a_device_elsewhere_in_the_container_needs_a_newer_version() -> None:
    """The host path is said only where it differs."""
    options = ContainerOptions(devices=(DeviceSpec("/dev/a", "/dev/b"),))
    assert cdi.spec(options, NAME).version == "0.5.0"


def test_cdi_names_are_replaced_by_their_edits() -> None:
    """A CDI file cannot name a device of another one."""

    def resolve(names: Iterable[str]) -> ContainerEdits:
        return ContainerEdits(env=tuple(f"GOT={name}" for name in names))

    options = ContainerOptions(env={"A": "1"}, cdi_devices=("v.com/c=x", "v.com/c=y"))
    edits = cdi.spec(options, NAME, resolve=resolve).devices[0].container_edits
    assert edits.env == ("A=1", "GOT=v.com/c=x", "GOT=v.com/c=y")
    with pytest.raises(NotExpressible, match=r"other CDI devices, v\.com/c=x, v\.com/c=y"):
        cdi.spec(options, NAME)


def test_annotations_are_not_expressible_in_cdi() -> None:
    """They belong to the container, not to the device file."""
    with pytest.raises(NotExpressible, match="the annotations a"):
        cdi.spec(ContainerOptions(annotations={"a": "b"}), NAME)


def test_a_device_that_changes_nothing_is_refused() -> None:
    """Every reader refuses empty edits."""
    with pytest.raises(NotExpressible, match="changes nothing"):
        cdi.spec(ContainerOptions(), NAME)


def test_an_invalid_cdi_file_is_refused() -> None:
    """The strict rules hold for what we write."""
    with pytest.raises(InvalidCdiSpec, match="must read NAME=value"):
        cdi.spec(ContainerOptions(env={"": "1"}), NAME)
