"""Container options as arguments of `podman run`. Tested with podman 4.3."""

from kubedevices.host.runtimes.docker import arguments
from kubedevices.values.allocation import ContainerOptions


def args(options: ContainerOptions) -> list[str]:
    """Return the arguments; printing them for a shell needs quoting (`shlex.join`)."""
    return arguments("podman", options)
