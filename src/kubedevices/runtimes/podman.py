"""Container options as arguments of `podman run`. Seen to work with podman 4.3."""

from kubedevices.allocation import ContainerOptions
from kubedevices.runtimes.docker import bind_mount, device_argument, environment


def args(options: ContainerOptions) -> list[str]:
    """Return the arguments; printing them for a shell needs quoting (`shlex.join`)."""
    words = [f"--env={text}" for text in environment("podman", options)]
    words += [f"--device={device_argument('podman', device)}" for device in options.devices]
    words += [f"--mount={bind_mount('podman', mount)}" for mount in options.mounts]
    words += [f"--annotation={key}={value}" for key, value in options.annotations]
    words += [f"--device={name}" for name in options.cdi_devices]
    return words
