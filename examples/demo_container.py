"""Starts a container with runc and container options; it reports which device files it can open.

The root file system of the container has only one static busybox. The container also sees a device
file that was not allocated. The kernel must refuse to open this file.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from examples.runc_config import minimal_config
from kubedevices.host.device_files import read_device_file, read_device_files
from kubedevices.host.runtimes import oci
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.device import DeviceSpec, Mount

FOREIGN = ("/dev/kvm", "/dev/net/tun", "/dev/fuse", "/dev/loop0", "/dev/hwrng", "/dev/ttyS0")
SCRIPT = """
for file in "$@"; do
    if (: <"$file") 2>/dev/null; then echo "opened $file"; else echo "refused $file"; fi
done
"""


def prove_access(bundle: Path, given: dict[str, Any]) -> list[str]:
    """Run a container with the options `given` (as `allocate -o json` prints them).

    Returns the lines of the container: `opened PATH` or `refused PATH` for each device file.
    """
    options = ContainerOptions(
        env=given["env"],
        devices=tuple(DeviceSpec(**device) for device in given["devices"]),
        mounts=tuple(Mount(**mount) for mount in given["mounts"]),
    )
    real = [device for device in options.devices if Path(device.host_path).exists()]
    options = ContainerOptions(env=options.env, devices=tuple(real), mounts=options.mounts)
    root = bundle / "rootfs"
    for folder in ("bin", "dev", "proc", "sys"):
        (root / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "bin/busybox")
    paths = [device.container_path or "" for device in real]
    taken = {device.host_path for device in real}
    foreign = next((path for path in FOREIGN if path not in taken and Path(path).exists()), None)
    command = ["/bin/busybox", "sh", "-c", SCRIPT, "sh", *paths, *([foreign] if foreign else [])]
    config = oci.apply_to_oci(
        minimal_config(command), options, read_device_files(oci.host_paths(options))
    )
    if foreign:
        # The device file is created, but the cgroup has no permission for it: opening it must fail.
        config["linux"].setdefault("devices", []).append(device_node(foreign))
    (bundle / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [
            "runc",
            "--root",
            str(bundle / "state"),
            "run",
            "--bundle",
            str(bundle),
            bundle.parent.name,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return (done.stdout or done.stderr).splitlines()


def device_node(path: str) -> dict[str, Any]:
    """Return `path` as an entry of linux.devices."""
    file = read_device_file(path)
    return {
        "path": path,
        "type": file.type,
        "major": file.major,
        "minor": file.minor,
        "fileMode": 0o666,
    }
