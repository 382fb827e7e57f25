"""Container options in an OCI runtime configuration.

The result is what containerd would give to runc for the same answer of a device plugin. The numbers
of device files are an argument (`host.device_files.read_device_files` reads them), because this
module reads no files.
"""

import copy
from collections.abc import Mapping
from typing import Any

from kubedevices.errors import NotADeviceFile, NotExpressible
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.cdi import (
    CdiMount,
    CdiRegistry,
    ContainerEdits,
    DeviceFile,
    DeviceNode,
    Look,
    apply_edits,
    inject,
)
from kubedevices.values.device import DeviceSpec


def host_paths(options: ContainerOptions) -> tuple[str, ...]:
    """Return the device files whose numbers are needed."""
    return tuple(dict.fromkeys(device.host_path for device in options.devices))


def apply_to_oci(
    config: Mapping[str, Any],
    options: ContainerOptions,
    device_files: Mapping[str, DeviceFile],
    *,
    registry: CdiRegistry | None = None,
    look: Look | None = None,
) -> dict[str, Any]:
    """Return a copy of `config` with the options added.

    A runtime such as runc does not know CDI. So options with CDI names need the `registry` that
    defines them, and `look` to read the device files of these definitions. Raises `NotExpressible`.
    """
    result = copy.deepcopy(dict(config))
    edits = ContainerEdits(
        env=tuple(f"{name}={value}" for name, value in options.env.items()),
        device_nodes=tuple(_node(device, device_files) for device in options.devices),
        mounts=tuple(
            CdiMount(
                mount.host_path,
                mount.container_path,
                ("rbind", "rprivate", "ro" if mount.read_only else "rw"),
                "bind",
            )
            for mount in options.mounts
        ),
    )
    result = apply_edits(result, edits, _nothing_to_look_at)
    if options.annotations:
        result["annotations"] = {**(result.get("annotations") or {}), **options.annotations}
    if not options.cdi_devices:
        return result
    if registry is None or look is None:
        names = ", ".join(options.cdi_devices)
        raise NotExpressible("oci", f"the CDI devices {names}, without the files that define them")
    return inject(result, options.cdi_devices, registry, look)


def _node(device: DeviceSpec, device_files: Mapping[str, DeviceFile]) -> DeviceNode:
    if device.host_path not in device_files:
        raise NotExpressible("oci", f"the device {device.host_path}, without its number")
    file = device_files[device.host_path]
    return DeviceNode(
        device.container_path or device.host_path,
        device.host_path,
        type=file.type,
        major=file.major,
        minor=file.minor,
        file_mode=file.file_mode,
        permissions=device.permissions,
        uid=file.uid,
        gid=file.gid,
    )


def _nothing_to_look_at(path: str) -> DeviceFile:
    raise NotADeviceFile(path, "it has no device number")
