"""What a container gets with the devices of a claim, in the words of CDI. Pure.

One file per claim, and in it one CDI device per device of the claim: a container that names a
request of the claim gets only the devices of this request. Metadata of a request is a CDI device
too.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kubedevices.allocation import AllocateResponse
from kubedevices.cdi import CdiDevice, CdiSpec, ContainerEdits, edits_of
from kubedevices.cdi.annotations import PREFIX, parse_annotations
from kubedevices.device import Device, Mount
from kubedevices.dra.claims import Result
from kubedevices.dra.names import cdi_device_name, cdi_kind, cdi_metadata_name

Given = tuple[ContainerEdits, tuple[str, ...]]
"""Edits, and the names of CDI devices that are somebody else's."""


def edits_for(device: Device) -> Given:
    """Return what a container gets with `device`.

    What a device says twice, as itself and in CDI, counts once: as CDI says it.
    """
    if isinstance(device.cdi, str):
        return _own_edits(device, ContainerEdits()), (device.cdi,)
    given = getattr(device.cdi, "container_edits", device.cdi) or ContainerEdits()
    return given.plus(_own_edits(device, given)), ()


def _own_edits(device: Device, given: ContainerEdits) -> ContainerEdits:
    names = {each.partition("=")[0] for each in given.env}
    paths = {each.path for each in given.device_nodes}
    places = {each.container_path for each in given.mounts}
    return edits_of(
        env=[(name, value) for name, value in device.env.items() if name not in names],
        devices=[each for each in device.all_specs if each.container_path not in paths],
        mounts=[each for each in device.mounts if each.container_path not in places],
    )


def edits_of_answer(answer: AllocateResponse) -> Given:
    """Return what an answer to Allocate says.

    Of annotations, those that name CDI devices count, and no others: CDI has no annotations.
    Raises `InvalidCdiAnnotation`.
    """
    edits, names = ContainerEdits(), []
    for container in answer.containers:
        edits = edits.plus(
            edits_of(env=container.env.items(), devices=container.devices, mounts=container.mounts)
        )
        _, annotated = parse_annotations(container.annotations)
        names += [*container.cdi_devices, *annotated]
    return edits, tuple(dict.fromkeys(names))


def annotations_left_out(answer: AllocateResponse) -> tuple[str, ...]:
    """Return the annotations of an answer that no container of a claim gets."""
    keys = dict.fromkeys(key for each in answer.containers for key in each.annotations)
    return tuple(key for key in keys if not key.startswith(PREFIX))


def claim_spec(
    driver: str,
    uid: str,
    given: Iterable[tuple[Result, Given]],
    metadata: Mapping[str, Mount] = MappingProxyType({}),
) -> tuple[CdiSpec | None, Mapping[Result, tuple[str, ...]]]:
    """Return the CDI file of a claim, if it needs one, and the CDI names for each result.

    `metadata` is the mount of the metadata file of each request that has such a file.
    """
    kind = cdi_kind(driver)
    devices: dict[str, CdiDevice] = {}
    names: dict[Result, tuple[str, ...]] = {}
    for result, (edits, others) in given:
        names[result] = others
        if not edits.is_empty:
            name = cdi_device_name(uid, result.device, result.share_id)
            devices[name] = CdiDevice(name, container_edits=edits)
            names[result] = (f"{kind}={name}", *others)
    for request, mount in metadata.items():
        # Only the first device of the request names it: a container gets all of them, and the
        # mount once.
        first = next(each for each in names if each.request == request)
        name = cdi_metadata_name(uid, request)
        devices[name] = CdiDevice(name, container_edits=edits_of(mounts=[mount]))
        names[first] = (*names[first], f"{kind}={name}")
    return CdiSpec(kind=kind, devices=tuple(devices.values())) if devices else None, names
