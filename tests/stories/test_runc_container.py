"""From container options to a running container of runc, whose limits the kernel enforces."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from examples.runc_config import minimal_config
from kubedevices.host.device_files import read_device_files
from kubedevices.host.runtimes import oci
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.cdi import (
    CdiDevice,
    CdiRegistry,
    CdiSpec,
    ContainerEdits,
    DeviceNode,
    SpecFile,
    inject,
)
from kubedevices.values.device import DeviceSpec, Mount
from tests.containers import (
    look_at_node,
    make_node_like,
    make_root_file_system,
    try_to_open,
    two_devices,
)
from tests.host_needs import require

DEADLINE = 30


@pytest.fixture
def bundle(short_dir: Path) -> Path:
    """A bundle without configuration: a root file system with busybox."""
    require("mount", "runc")
    make_root_file_system(short_dir / "rootfs")
    return short_dir


def run(bundle: Path, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the container to its end, with runc's state inside the bundle."""
    (bundle / "config.json").write_text(json.dumps(config))
    command = ["runc", "--root", str(bundle / "state"), "run", "--bundle", str(bundle), bundle.name]
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_a_container_opens_its_device_and_no_other(bundle: Path) -> None:
    """The allocated device opens; the kernel refuses a device file of another device."""
    allocated, foreign = two_devices()
    make_node_like(foreign, bundle / "rootfs/foreign")
    options = ContainerOptions(devices=(DeviceSpec(allocated),))
    config = oci.apply_to_oci(
        minimal_config(try_to_open(allocated, "/foreign")),
        options,
        read_device_files(oci.host_paths(options)),
    )
    done = run(bundle, config)
    assert done.stdout.splitlines() == [f"opened {allocated}", "refused /foreign"], done.stderr
    assert "Operation not permitted" in done.stderr


def test_the_other_device_opens_after_its_allocation(bundle: Path) -> None:
    """The kernel refused it only because it was not allocated, under any path."""
    _, other = two_devices()
    options = ContainerOptions(
        devices=(DeviceSpec(other, "/dev/mine"),),
        env={"WIDGET": "/dev/mine"},
        mounts=(Mount(str(bundle / "shared"), "/shared", read_only=True),),
    )
    (bundle / "shared").mkdir()
    (bundle / "shared/note").write_text("hello")
    script = ': <"$WIDGET" && cat /shared/note && ! echo x >/shared/note 2>/dev/null && echo'
    command = ["/bin/busybox", "sh", "-c", script.replace("cat", "/bin/busybox cat")]
    config = oci.apply_to_oci(
        minimal_config(command), options, read_device_files(oci.host_paths(options))
    )
    done = run(bundle, config)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_a_cdi_device_opens_in_a_container_of_runc(bundle: Path) -> None:
    """runc does not know CDI: our injection alone gives access to the device."""
    allocated, foreign = two_devices()
    make_node_like(foreign, bundle / "rootfs/foreign")
    edits = ContainerEdits(device_nodes=(DeviceNode("/dev/widget", allocated),))
    device = CdiDevice("w", container_edits=edits)
    spec = CdiSpec(version="0.5.0", kind="example.com/widget", devices=(device,))
    registry = CdiRegistry((SpecFile("widget.json", 0, spec),))
    config = minimal_config(try_to_open("/dev/widget", "/foreign"))
    done = run(bundle, inject(config, ["example.com/widget=w"], registry, look_at_node))
    assert done.stdout.splitlines() == ["opened /dev/widget", "refused /foreign"], done.stderr
