"""Container options in an OCI configuration."""

import copy
from typing import Any

import pytest

from examples.runc_config import minimal_config
from kubedevices.errors import NotExpressible, UnresolvableCdiDevices
from kubedevices.host.runtimes import oci
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.cdi import (
    CdiDevice,
    CdiRegistry,
    CdiSpec,
    ContainerEdits,
    DeviceFile,
    DeviceNode,
    SpecFile,
)
from kubedevices.values.device import DeviceSpec, Mount

FILES = {"/dev/w0": DeviceFile("c", 10, 200, 0o660, 0, 44), "/dev/odd": DeviceFile("c", 0, 7, 0o6)}
OPTIONS = ContainerOptions(
    env={"WIDGET": "a=b"},
    devices=(DeviceSpec("/dev/w0", "/dev/w", "rw"),),
    mounts=(Mount("/host/lib", "/lib/w", read_only=True), Mount("/host/run", "/run/w")),
    annotations={"example.com/w": "0"},
)


def test_an_empty_configuration_gets_only_the_options() -> None:
    """A tool can merge it into a configuration of its own."""
    assert oci.apply_to_oci({}, OPTIONS, FILES) == {
        "process": {"env": ["WIDGET=a=b"]},
        "linux": {
            "devices": [
                {
                    "path": "/dev/w",
                    "type": "c",
                    "major": 10,
                    "minor": 200,
                    "fileMode": 0o660,
                    "uid": 0,
                    "gid": 44,
                }
            ],
            "resources": {
                "devices": [{"allow": True, "type": "c", "major": 10, "minor": 200, "access": "rw"}]
            },
        },
        "mounts": [
            {
                "destination": "/lib/w",
                "type": "bind",
                "source": "/host/lib",
                "options": ["rbind", "rprivate", "ro"],
            },
            {
                "destination": "/run/w",
                "type": "bind",
                "source": "/host/run",
                "options": ["rbind", "rprivate", "rw"],
            },
        ],
        "annotations": {"example.com/w": "0"},
    }


def test_no_options_change_nothing() -> None:
    """A container without devices keeps its configuration."""
    config = minimal_config(["sh"])
    assert oci.apply_to_oci(config, ContainerOptions(), {}) == config
    assert oci.apply_to_oci({}, ContainerOptions(), {}) == {}


def test_the_given_configuration_is_not_changed() -> None:
    """The same base serves many containers."""
    config = minimal_config(["sh"]) | {"annotations": {"a": "b"}}
    before = copy.deepcopy(config)
    result = oci.apply_to_oci(config, OPTIONS, FILES)
    assert config == before
    assert result["annotations"] == {"a": "b", "example.com/w": "0"}


def test_all_devices_are_denied_before_the_allocated_ones_are_allowed() -> None:
    """The order of the rules decides."""
    result = oci.apply_to_oci(minimal_config(["sh"]), OPTIONS, FILES)
    rules = result["linux"]["resources"]["devices"]
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert [rule["allow"] for rule in rules[1:]] == [True]


def test_a_variable_of_the_container_is_replaced() -> None:
    """The plugin's word is the later one, as with containerd."""
    config: dict[str, Any] = {"process": {"env": ["WIDGET=old", "B=1"]}}
    result = oci.apply_to_oci(config, OPTIONS, FILES)
    assert result["process"]["env"] == ["WIDGET=a=b", "B=1"]


def test_every_device_needs_its_number() -> None:
    """The paths to look at are told, each once, and a missing one is an error."""
    twice = ContainerOptions(devices=(DeviceSpec("/dev/a", "/x"), DeviceSpec("/dev/a", "/y")))
    assert oci.host_paths(twice) == ("/dev/a",)
    with pytest.raises(NotExpressible, match="the device /dev/a, without its number") as caught:
        oci.apply_to_oci({}, twice, {})
    assert caught.value.runtime == "oci"


def test_cdi_names_need_the_files_that_define_them() -> None:
    """They are injected after everything else, or refused: never forgotten."""
    options = ContainerOptions(env={"A": "1"}, cdi_devices=("example.com/w=0",))
    with pytest.raises(NotExpressible, match="without the files that define them"):
        oci.apply_to_oci({}, options, {})
    edits = ContainerEdits(env=("A=2",), device_nodes=(DeviceNode("/dev/w0"),))
    spec = CdiSpec(
        version="0.5.0", kind="example.com/w", devices=(CdiDevice("0", container_edits=edits),)
    )
    registry = CdiRegistry((SpecFile("/etc/cdi/w.json", 0, spec),))
    result = oci.apply_to_oci({}, options, {}, registry=registry, look=FILES.__getitem__)
    assert result["process"]["env"] == ["A=2"]
    assert result["linux"]["devices"][0]["minor"] == 200
    with pytest.raises(NotExpressible, match="without the files"):
        oci.apply_to_oci({}, options, {}, registry=registry)
    with pytest.raises(UnresolvableCdiDevices, match=r"example\.com/w=0"):
        oci.apply_to_oci({}, options, {}, registry=CdiRegistry(), look=FILES.__getitem__)


def test_the_small_configuration_asks_for_little() -> None:
    """No limits, no terminal, no group ID, three harmless capabilities, own namespaces."""
    config = minimal_config(["/bin/sh", "-c", "true"])
    assert config["process"]["args"] == ["/bin/sh", "-c", "true"]
    assert config["process"]["terminal"] is False
    assert "rlimits" not in config["process"]
    assert config["root"] == {"path": "rootfs", "readonly": True}
    assert config["mounts"][0] == {"destination": "/proc", "type": "proc", "source": "proc"}
    assert "nosuid" in config["mounts"][1]["options"]
    assert not any("gid=5" in mount.get("options", ()) for mount in config["mounts"])
    assert {each["type"] for each in config["linux"]["namespaces"]} == {
        "pid",
        "network",
        "ipc",
        "uts",
        "mount",
    }
