"""Container options as a CDI file with one device, which has everything that was allocated.

Any engine that reads CDI can then start the container with one `--device` argument.
"""

from collections.abc import Callable, Iterable

from kubedevices.errors import NotExpressible
from kubedevices.values import cdi
from kubedevices.values.allocation import ContainerOptions


def spec(
    options: ContainerOptions,
    name: cdi.CdiName,
    *,
    resolve: Callable[[Iterable[str]], cdi.ContainerEdits] | None = None,
) -> cdi.CdiSpec:
    """Return the file that defines `name` as these options, in the lowest sufficient CDI version.

    A CDI file cannot refer to a device of another file. So CDI names among the options need
    `resolve`, such as `CdiRegistry.edits`; their present edits are copied. Raises `NotExpressible`,
    also for annotations, which CDI does not have.
    """
    if options.annotations:
        keys = ", ".join(options.annotations)
        raise NotExpressible("cdi", f"the annotations {keys}")
    edits = cdi.edits_of(env=options.env.items(), devices=options.devices, mounts=options.mounts)
    if options.cdi_devices:
        if resolve is None:
            names = ", ".join(options.cdi_devices)
            raise NotExpressible("cdi", f"other CDI devices, {names}")
        edits = edits.plus(resolve(options.cdi_devices))
    if edits.is_empty:
        raise NotExpressible("cdi", "a device that changes nothing")
    device = cdi.CdiDevice(name.device, container_edits=edits)
    result = cdi.with_minimum_version(cdi.CdiSpec(kind=name.kind, devices=(device,)))
    cdi.validate(result, strict=True)
    return result


def text(
    options: ContainerOptions,
    name: cdi.CdiName,
    *,
    resolve: Callable[[Iterable[str]], cdi.ContainerEdits] | None = None,
) -> str:
    """Return the file of `spec` as JSON text."""
    return cdi.to_json(spec(options, name, resolve=resolve))
