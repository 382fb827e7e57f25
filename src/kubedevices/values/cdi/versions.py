"""The versions of CDI: which is the lowest for some content, and which runtimes can read it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from kubedevices.values.cdi.values import CdiSpec, ContainerEdits

VERSIONS = [
    "0.1.0",
    "0.2.0",
    "0.3.0",
    "0.4.0",
    "0.5.0",
    "0.6.0",
    "0.7.0",
    "0.8.0",
    "1.0.0",
    "1.1.0",
]  # fmt: skip
"""All versions of CDI, the oldest first; a runtime refuses a version that it does not know."""

_LOWEST = "0.3.0"


class Requirement(NamedTuple):
    """A version, and the JSON pointer of the content that needs it."""

    version: str
    pointer: str


def requirements(spec: CdiSpec) -> Iterator[Requirement]:
    """Yield all parts of `spec` that need more than the lowest version."""
    _, _, device_class = spec.kind.partition("/")
    if spec.annotations:
        yield Requirement("0.6.0", "/annotations")
    if "." in device_class:
        yield Requirement("0.6.0", "/kind")
    for i, device in enumerate(spec.devices):
        if device.annotations:
            yield Requirement("0.6.0", f"/devices/{i}/annotations")
        if device.name[:1].isdigit():
            yield Requirement("0.5.0", f"/devices/{i}/name")
    for pointer, edits in edits_with_pointers(spec):
        yield from _requirements_of_edits(edits, pointer)


def _requirements_of_edits(edits: ContainerEdits, pointer: str) -> Iterator[Requirement]:
    if edits.net_devices:
        yield Requirement("1.1.0", f"{pointer}/netDevices")
    if edits.intel_rdt is not None:
        rdt = edits.intel_rdt
        newer = rdt.schemata is not None or rdt.enable_monitoring
        yield Requirement("1.1.0" if newer else "0.7.0", f"{pointer}/intelRdt")
    if edits.additional_gids:
        yield Requirement("0.7.0", f"{pointer}/additionalGids")
    for i, node in enumerate(edits.device_nodes):
        if node.host_path:
            yield Requirement("0.5.0", f"{pointer}/deviceNodes/{i}/hostPath")
    for i, mount in enumerate(edits.mounts):
        if mount.type:
            yield Requirement("0.4.0", f"{pointer}/mounts/{i}/type")


def minimum_version(spec: CdiSpec) -> str:
    """Return the lowest version that allows this content: then most runtimes read the file."""
    return highest_requirement(spec).version


def with_minimum_version(spec: CdiSpec) -> CdiSpec:
    """Return `spec` with its lowest sufficient version."""
    return replace(spec, version=minimum_version(spec))


def highest_requirement(spec: CdiSpec) -> Requirement:
    """Return the content that needs the newest version."""
    lowest = Requirement(_LOWEST, "")
    return max((lowest, *requirements(spec)), key=lambda each: VERSIONS.index(each.version))


class Reader(NamedTuple):
    """A runtime and the newest CDI version that it reads."""

    runtime: str
    newest: str


READERS = (
    Reader("podman 4.3", "0.5.0"),
    Reader("podman 5.4", "0.8.0"),
    Reader("containerd 1.7.24", "0.8.0"),
)
"""Found by running these runtimes. Add a runtime only after a test with it."""


def readers_too_old_for(version: str) -> tuple[Reader, ...]:
    """Return the runtimes that do not read a file of this version."""
    if version not in VERSIONS:
        return ()
    needed = VERSIONS.index(version)
    return tuple(reader for reader in READERS if VERSIONS.index(reader.newest) < needed)


def edits_with_pointers(spec: CdiSpec) -> Iterator[tuple[str, ContainerEdits]]:
    """Yield all edits of a spec, each with its JSON pointer."""
    yield "/containerEdits", spec.container_edits
    for i, device in enumerate(spec.devices):
        yield f"/devices/{i}/containerEdits", device.container_edits
