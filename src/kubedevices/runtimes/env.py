"""Container options as environment variables only: for a program of the host, without a container.

Such a program has the device files and directories of the host already. CDI names are not
expressible, because a CDI device may have further variables.
"""

from kubedevices.allocation import ContainerOptions
from kubedevices.errors import NotExpressible
from kubedevices.runtimes.docker import assignments


def words(options: ContainerOptions) -> list[str]:
    """Return `NAME=value` arguments for the command `env`; raises `NotExpressible`."""
    if options.cdi_devices:
        raise NotExpressible("env", f"the CDI devices {', '.join(options.cdi_devices)}")
    for name in options.env:
        if name.startswith("-"):
            raise NotExpressible("env", f"the environment variable name {name!r}")
    return [*assignments("env", "environment variable", options.env)]
