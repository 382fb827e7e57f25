"""Container options as a CDI file: one device that stands for everything that was allocated.

Any engine that reads CDI can then start the container with a single `--device` word.
"""

from collections.abc import Callable, Iterable

from kubedevices import cdi
from kubedevices.allocation import ContainerOptions
from kubedevices.errors import NotExpressible


def spec(
    options: ContainerOptions,
    name: cdi.CdiName,
    *,
    resolve: Callable[[Iterable[str]], cdi.ContainerEdits] | None = None,
) -> cdi.CdiSpec:
    """Return the file that defines `name` as these options, in the lowest version that can.

    CDI files cannot refer to one another: CDI names among the options need `resolve`, such as
    `CdiRegistry.edits`, and what they mean now is copied. Annotations have no words in CDI.
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
    """Return the same as the JSON text of a file."""
    return cdi.to_json(spec(options, name, resolve=resolve))
