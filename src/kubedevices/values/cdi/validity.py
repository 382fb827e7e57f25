"""Validates CDI specs.

Without `strict` the rules are those of CDI's reference library, for files of other programs.
`strict` is for files that we write. Called by `host.cdi_specs` and by code that creates a
`CdiSpec`.
"""

import re
from collections.abc import Iterator, Sequence

from kubedevices.errors import CdiProblem, InvalidCdiSpec
from kubedevices.values.cdi.names import SUBDOMAIN, explain_device_name, explain_kind
from kubedevices.values.cdi.values import (
    CdiMount,
    CdiSpec,
    ContainerEdits,
    DeviceNode,
    Hook,
    IntelRdt,
    NetDevice,
)
from kubedevices.values.cdi.versions import VERSIONS, edits_with_pointers, highest_requirement

HOOK_NAMES = (
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
)

_CLOS_ID_LIMIT = 4096
_ANNOTATIONS_LIMIT = 256 * 1024
_ANNOTATION_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


def validate(spec: CdiSpec, *, strict: bool = False, file: str = "") -> None:
    """Raise `InvalidCdiSpec` with all problems, if any."""
    if problems := find_problems(spec, strict=strict):
        raise InvalidCdiSpec(file, problems)


def find_problems(spec: CdiSpec, *, strict: bool = False) -> tuple[CdiProblem, ...]:
    """Return all problems that make the file invalid, about in the order of the file."""
    found = [*_problems_of_version(spec, strict)]
    if problem := explain_kind(spec.kind, strict=strict):
        found.append(CdiProblem("/kind", problem))
    if not spec.devices:
        found.append(CdiProblem("/devices", "there must be at least one device"))
    found += _problems_of_devices(spec)
    for pointer, edits in edits_with_pointers(spec):
        found += _problems_of_edits(edits, pointer, strict)
    if strict:
        found += _problems_of_annotations(spec.annotations, "/annotations")
        for i, device in enumerate(spec.devices):
            found += _problems_of_annotations(device.annotations, f"/devices/{i}/annotations")
    return tuple(found)


def _problems_of_version(spec: CdiSpec, strict: bool) -> Iterator[CdiProblem]:
    version = spec.version if strict else spec.version.removeprefix("v")
    if version not in VERSIONS:
        known = f"known are {VERSIONS[0]} to {VERSIONS[-1]}"
        yield CdiProblem("/cdiVersion", f"invalid version {spec.version!r} ({known})")
        return
    needed = highest_requirement(spec)
    if VERSIONS.index(version) < VERSIONS.index(needed.version):
        why = (
            f"{needed.pointer} needs it"
            if needed.pointer
            else "older versions are not read any more"
        )
        yield CdiProblem(
            "/cdiVersion", f"the spec version must be at least v{needed.version} ({why})"
        )


def _problems_of_devices(spec: CdiSpec) -> Iterator[CdiProblem]:
    seen: set[str] = set()
    for i, device in enumerate(spec.devices):
        if problem := explain_device_name(device.name):
            yield CdiProblem(f"/devices/{i}/name", problem)
        if device.name in seen:
            yield CdiProblem(f"/devices/{i}/name", f"duplicate device {device.name!r}")
        seen.add(device.name)
        if device.container_edits.is_empty:
            yield CdiProblem(f"/devices/{i}/containerEdits", "empty device edits")


def _problems_of_edits(edits: ContainerEdits, pointer: str, strict: bool) -> Iterator[CdiProblem]:
    yield from _problems_of_env(edits.env, f"{pointer}/env")
    for i, node in enumerate(edits.device_nodes):
        yield from _problems_of_node(node, f"{pointer}/deviceNodes/{i}")
    for i, mount in enumerate(edits.mounts):
        yield from _problems_of_mount(mount, f"{pointer}/mounts/{i}", strict)
    for i, hook in enumerate(edits.hooks):
        yield from _problems_of_hook(hook, f"{pointer}/hooks/{i}", strict)
    if edits.intel_rdt is not None:
        yield from _problems_of_rdt(edits.intel_rdt, f"{pointer}/intelRdt")
    yield from _problems_of_net_devices(edits.net_devices, f"{pointer}/netDevices")


def _problems_of_env(env: Sequence[str], pointer: str) -> Iterator[CdiProblem]:
    for i, text in enumerate(env):
        if text.find("=") < 1:
            yield CdiProblem(f"{pointer}/{i}", f"{text!r} must read NAME=value")


def _problems_of_node(node: DeviceNode, pointer: str) -> Iterator[CdiProblem]:
    if not node.path:
        yield CdiProblem(f"{pointer}/path", "a device node needs a path")
    if node.type not in ("", "b", "c", "u", "p"):
        yield CdiProblem(f"{pointer}/type", f"{node.type!r} must be one of b, c, u, p")
    if node.permissions.strip("rwm"):
        yield CdiProblem(f"{pointer}/permissions", f"{node.permissions!r} must be letters of 'rwm'")
    for key, number in (("major", node.major), ("minor", node.minor)):
        if number is not None and number < 0:
            yield CdiProblem(f"{pointer}/{key}", f"{number} must not be negative")


def _problems_of_mount(mount: CdiMount, pointer: str, strict: bool) -> Iterator[CdiProblem]:
    if not mount.host_path:
        yield CdiProblem(f"{pointer}/hostPath", "a mount needs a host path")
    if not mount.container_path:
        yield CdiProblem(f"{pointer}/containerPath", "a mount needs a container path")
    if strict and not mount.type and not {"bind", "rbind"} & set(mount.options):
        yield CdiProblem(
            f"{pointer}/options", "without 'bind' or a type, runtimes try to mount a file system"
        )


def _problems_of_hook(hook: Hook, pointer: str, strict: bool) -> Iterator[CdiProblem]:
    if hook.hook_name not in HOOK_NAMES:
        names = ", ".join(HOOK_NAMES)
        yield CdiProblem(f"{pointer}/hookName", f"{hook.hook_name!r} must be one of {names}")
    if not hook.path:
        yield CdiProblem(f"{pointer}/path", "a hook needs a path")
    elif strict and not hook.path.startswith("/"):
        yield CdiProblem(f"{pointer}/path", f"the path {hook.path!r} must be absolute")
    if strict and hook.timeout is not None and hook.timeout <= 0:
        yield CdiProblem(f"{pointer}/timeout", f"{hook.timeout} must be more than 0 seconds")
    yield from _problems_of_env(hook.env, f"{pointer}/env")


def _problems_of_rdt(rdt: IntelRdt, pointer: str) -> Iterator[CdiProblem]:
    name = rdt.clos_id
    if name == "/":
        return
    if len(name.encode()) >= _CLOS_ID_LIMIT or name in (".", "..") or set(name) & {"/", "\n"}:
        yield CdiProblem(f"{pointer}/closID", "it must be '/' or a file name below 4096 bytes")


def _problems_of_net_devices(devices: Sequence[NetDevice], pointer: str) -> Iterator[CdiProblem]:
    for key, names in (
        ("hostInterfaceName", [device.host_interface_name for device in devices]),
        ("name", [device.name for device in devices]),
    ):
        for i, name in enumerate(names):
            if not name:
                yield CdiProblem(f"{pointer}/{i}/{key}", "it must not be empty")
            elif name in names[:i]:
                yield CdiProblem(f"{pointer}/{i}/{key}", f"duplicate {name!r}")


def _problems_of_annotations(
    annotations: Sequence[tuple[str, str]], pointer: str
) -> Iterator[CdiProblem]:
    """Check the limits of Kubernetes; runtimes do not check them, but other tools do."""
    size = sum(len(key.encode()) + len(text.encode()) for key, text in annotations)
    if size > _ANNOTATIONS_LIMIT:
        yield CdiProblem(pointer, f"{size} bytes, at most {_ANNOTATIONS_LIMIT} are allowed")
    for key, _ in annotations:
        prefix, slash, name = key.rpartition("/")
        named = len(name) <= 63 and _ANNOTATION_NAME.fullmatch(name)
        placed = not slash or (len(prefix) <= 253 and SUBDOMAIN.fullmatch(prefix))
        if not named or not placed:
            yield CdiProblem(pointer, f"the key {key!r} is not a qualified name of Kubernetes")
