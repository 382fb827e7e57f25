"""Container options as environment variables alone: for a program of the host, without container.

Everything else that belongs to the devices is already there for such a program; CDI names, which
stand for more variables, are not expressible.
"""

from kubedevices.allocation import ContainerOptions
from kubedevices.errors import NotExpressible


def words(options: ContainerOptions) -> list[str]:
    """Return `NAME=value` words, as `env` takes them before a command."""
    if options.cdi_devices:
        raise NotExpressible("env", f"the CDI devices {', '.join(options.cdi_devices)}")
    return [f"{name}={value}" for name, value in options.env]
