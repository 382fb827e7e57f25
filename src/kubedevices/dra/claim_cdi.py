"""The CDI file of a claim: what a container gets with the devices of the claim. Pure.

The file has one CDI device for each device of the claim, because a container that names a request
of the claim gets only the devices of this request. The metadata file of a request is a CDI device
too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kubedevices.dra.claims import Result
from kubedevices.dra.names import cdi_device_name, cdi_kind, cdi_metadata_name
from kubedevices.values.allocation import AllocateResponse
from kubedevices.values.cdi import CdiDevice, CdiSpec, ContainerEdits, edits_of
from kubedevices.values.cdi.container_annotations import PREFIX, parse_annotations
from kubedevices.values.cdi.parse import from_dict
from kubedevices.values.cdi.values import to_dict
from kubedevices.values.device import Device, Health, Mount

CdiEdits = tuple[ContainerEdits, tuple[str, ...]]
"""The edits of our CDI device, and the names of CDI devices that other programs define."""


def edits_for(device: Device) -> CdiEdits:
    """Return what a container gets with `device`.

    If `device.cdi` has the same variable, device file or mount as the other fields of `device`, the
    value of `device.cdi` counts.
    """
    plain = plain_part(device)
    names = (plain.cdi,) if plain.cdi is not None else ()
    own = edits_of(env=plain.env.items(), devices=plain.all_specs, mounts=plain.mounts)
    return cdi_part(device).plus(own), names


def cdi_part(device: Device) -> ContainerEdits:
    """Return the edits in `device.cdi`; no edits for the name of a CDI device."""
    if device.cdi is None or isinstance(device.cdi, str):
        return ContainerEdits()
    found: ContainerEdits = getattr(device.cdi, "container_edits", device.cdi)
    return found


def plain_part(device: Device) -> Device:
    """Return `device` without the edits in its `cdi`, and without what these edits replace.

    The result is healthy: whether a claim may have an unhealthy device is the scheduler's decision.
    """
    given = cdi_part(device)
    names = {each.partition("=")[0] for each in given.env}
    paths = {each.path for each in given.device_nodes}
    places = {each.container_path for each in given.mounts}
    return replace(
        device,
        health=Health.HEALTHY,
        reason="",
        env={name: value for name, value in device.env.items() if name not in names},
        paths=(),
        specs=[each for each in device.all_specs if each.container_path not in paths],
        mounts=[each for each in device.mounts if each.container_path not in places],
        cdi=device.cdi if isinstance(device.cdi, str) else None,
    )


def edits_of_answer(answer: AllocateResponse) -> CdiEdits:
    """Return the contents of an Allocate answer.

    CDI has no annotations, so only annotations with names of CDI devices count. Raises
    `InvalidCdiAnnotation`.
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
    """Return the names of the annotations that `edits_of_answer` ignores."""
    keys = dict.fromkeys(key for each in answer.containers for key in each.annotations)
    return tuple(key for key in keys if not key.startswith(PREFIX))


def edits_from_json(content: Mapping[str, Any]) -> ContainerEdits:
    """Return the edits that the checkpoint has as `to_dict`; raises `InvalidCdiSpec`."""
    return from_dict({"containerEdits": content}, strict=False).container_edits


def answer_as_json(answer: CdiEdits) -> Mapping[str, Any]:
    """Return what a container gets with a device as a JSON object, for the checkpoint."""
    return {"edits": to_dict(answer[0]), "names": [*answer[1]]}


def answer_from_json(content: Mapping[str, Any]) -> CdiEdits:
    """Return the value of `answer_as_json`; raises `InvalidCdiSpec`."""
    return edits_from_json(content["edits"]), tuple(content["names"])


def claim_spec(
    driver: str,
    uid: str,
    given: Iterable[tuple[Result, CdiEdits]],
    metadata: Mapping[str, Mount] = MappingProxyType({}),
) -> tuple[CdiSpec | None, Mapping[Result, tuple[str, ...]]]:
    """Return the CDI file of a claim, None if it needs no file, and the CDI names of each result.

    `metadata` has the mount of the metadata file of each request that has such a file.
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
        # Only the first device of the request gets the name of the metadata. A container gets all
        # devices of a request, so it gets the mount exactly once.
        first = next(each for each in names if each.request == request)
        name = cdi_metadata_name(uid, request)
        devices[name] = CdiDevice(name, container_edits=edits_of(mounts=[mount]))
        names[first] = (*names[first], f"{kind}={name}")
    return CdiSpec(kind=kind, devices=tuple(devices.values())) if devices else None, names
