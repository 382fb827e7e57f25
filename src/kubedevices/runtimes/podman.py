"""Container options as arguments of `podman run`. Tested with podman 4.3."""

from kubedevices.allocation import ContainerOptions
from kubedevices.runtimes.docker import arguments


def args(options: ContainerOptions) -> list[str]:
    """Return the arguments; printing them for a shell needs quoting (`shlex.join`)."""
    return arguments("podman", options)
