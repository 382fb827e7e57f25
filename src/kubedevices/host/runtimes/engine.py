"""Container options as arguments of `podman run` and `docker run`, which have these in common.

Tested with podman 4.3. CDI names need docker 25 (before 28.2, the feature must be switched on),
annotations docker 24.
"""

from collections.abc import Iterator, Mapping

from kubedevices.errors import NotExpressible
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.device import DeviceSpec, Mount


def args(runtime: str, options: ContainerOptions) -> list[str]:
    """Return the arguments; printing them for a shell needs quoting (`shlex.join`).

    `runtime` is podman or docker, for messages.
    """
    words = [f"--env={text}" for text in assignments(runtime, "environment variable", options.env)]
    words += [f"--device={_device(runtime, device)}" for device in options.devices]
    words += [f"--mount={_bind_mount(runtime, mount)}" for mount in options.mounts]
    annotations = assignments(runtime, "annotation", options.annotations)
    words += [f"--annotation={text}" for text in annotations]
    words += [f"--device={name}" for name in options.cdi_devices]
    if any("\0" in word for word in words):
        raise NotExpressible(runtime, "a NUL character")
    return words


def assignments(runtime: str, kind: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield `NAME=value`; raises `NotExpressible` for a name that is empty or contains `=`."""
    for name, value in texts.items():
        if not name or "=" in name:
            raise NotExpressible(runtime, f"the {kind} name {name!r}")
        yield f"{name}={value}"


def _device(runtime: str, device: DeviceSpec) -> str:
    """Return `HOST:CONTAINER:PERMISSIONS`; a colon in a path cannot be quoted."""
    container_path = device.container_path or device.host_path
    for path in (device.host_path, container_path):
        if ":" in path:
            raise NotExpressible(runtime, f"the device path {path}, because of its colon")
    return f"{device.host_path}:{container_path}:{device.permissions}"


def _bind_mount(runtime: str, mount: Mount) -> str:
    """Return the value of `--mount`: a CSV line, which can quote anything but a line break."""
    fields = ["type=bind", f"source={mount.host_path}", f"target={mount.container_path}"]
    if mount.read_only:
        fields.append("readonly")
    if any("\n" in field or "\r" in field for field in fields):
        raise NotExpressible(runtime, f"the mount {mount.host_path!r}, because of its line break")
    return ",".join(map(_csv, fields))


def _csv(field: str) -> str:
    doubled = field.replace('"', '""')
    return f'"{doubled}"' if doubled != field or "," in field else field
