"""Container options as environment variables alone: for a program of the host, without container.

Everything else that belongs to the devices is already there for such a program; CDI names, which
stand for more variables, are not expressible.
"""

from kubedevices.allocation import ContainerOptions
from kubedevices.errors import NotExpressible
from kubedevices.runtimes.docker import assignments


def words(options: ContainerOptions) -> list[str]:
    """Return `NAME=value` words, as `env` takes them before a command."""
    if options.cdi_devices:
        raise NotExpressible("env", f"the CDI devices {', '.join(options.cdi_devices)}")
    for name in options.env:
        if name.startswith("-"):
            raise NotExpressible("env", f"the environment variable name {name!r}")
    return [*assignments("env", "environment variable", options.env)]
