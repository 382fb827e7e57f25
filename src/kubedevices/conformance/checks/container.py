"""What stands in the answers of Allocate: what a container would be made of."""

import re
from collections import defaultdict

from kubedevices.conformance.check import Broken, Fragile, NotTried, Severity, Theme
from kubedevices.conformance.plugin import Plugin, shorten
from kubedevices.device import DeviceSpec, Mount

FAIL, WARN = Severity.FAIL, Severity.WARN

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PERMISSIONS = re.compile(r"(?!.*(.).*\1)[rwm]{1,3}")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

theme = Theme("allocate", needs=("registration.options", "allocate.answers"))


async def _entries(plugin: Plugin) -> list[DeviceSpec | Mount]:
    """Return all device files and mounts of all answers; skip the check where there are none."""
    found: list[DeviceSpec | Mount] = []
    for answer in await plugin.answers():
        found += [*answer.devices, *answer.mounts]
    if not found:
        raise NotTried("it hands out neither device files nor mounts")
    return found


@theme.check(
    "paths",
    FAIL,
    suffers="The container cannot be created (CreateContainerError), again and again.",
    source="CRI: host and container paths are absolute; kubelets pass them on unchecked",
    mend="Give absolute paths for both sides.",
)
async def paths(plugin: Plugin) -> str:
    """All paths of device files and mounts are absolute."""
    entries = await _entries(plugin)
    for entry in entries:
        for path in (entry.host_path, entry.container_path):
            if not (path or "").startswith("/"):
                raise Broken(f"path {path!r} in {entry}")
    return f"{len(entries)} entries"


@theme.check(
    "permissions",
    FAIL,
    suffers="The runtime refuses the container, or gives unwanted rights.",
    source="device plugin API: one or more of r, w, m",
    mend='Use "rw", or "mrw" where the container has to make nodes.',
)
async def permissions(plugin: Plugin) -> str:
    """Permissions of device files are letters of r, w and m."""
    specs = [entry for entry in await _entries(plugin) if isinstance(entry, DeviceSpec)]
    if not specs:
        raise NotTried("it hands out no device files")
    for spec in specs:
        if not _PERMISSIONS.fullmatch(spec.permissions):
            raise Broken(f"permissions {spec.permissions!r} of {spec.host_path}")
    return ", ".join(sorted({spec.permissions for spec in specs}))


@theme.check(
    "container-paths",
    FAIL,
    suffers="Of several entries for one path the kubelet keeps the first and drops the others.",
    source="kubelet 1.32: the first entry for a container path wins",
    mend="Collect by container path before answering; give each node its own place.",
)
async def container_paths(plugin: Plugin) -> str:
    """No two different entries of an answer have the same container path."""
    await _entries(plugin)
    count = 0
    for answer in await plugin.answers():
        places: dict[str | None, list[DeviceSpec | Mount]] = defaultdict(list)
        answered: list[DeviceSpec | Mount] = [*answer.devices, *answer.mounts]
        for entry in answered:
            if entry not in places[entry.container_path]:  # the same again changes nothing
                places[entry.container_path].append(entry)
        count += len(places)
        for place, entries in places.items():
            hosts = sorted({each.host_path for each in entries})
            if len(hosts) > 1:
                raise Broken(f"{place} is both {' and '.join(hosts)}")
            if len(entries) > 1:
                raise Fragile(f"{place} is there {len(entries)} times, each in another way")
    return f"{count} different places"


@theme.check(
    "host-paths",
    FAIL,
    suffers="The container cannot be created (CreateContainerError) until the file appears.",
    source="containerd: lstat of the device file, no such file or directory",
    mend="List a device only while its files exist; check in Allocate.",
)
async def host_paths(plugin: Plugin) -> str:
    """Device files and mounts exist on the host."""
    entries = await _entries(plugin)
    missing = await plugin.stage.missing_paths([entry.host_path for entry in entries])
    if missing:
        raise Broken(f"{missing[0]} does not exist", "\n".join(missing))
    return f"{len({entry.host_path for entry in entries})} paths"


@theme.check(
    "env-names",
    WARN,
    suffers="A shell drops variables it cannot name: the program in the container misses them.",
    source="POSIX: letters, digits and _, not beginning with a digit",
    mend="Replace every other character by _.",
    seen="simple-device-plugin (device IDs with - in names)",
)
async def env_names(plugin: Plugin) -> str:
    """A shell can use the names of environment variables."""
    names = {name for answer in await plugin.answers() for name in answer.env}
    if not names:
        raise NotTried("it sets no environment variable")
    odd = sorted(name for name in names if not _ENV_NAME.fullmatch(name))
    if odd:
        raise Broken(shorten(odd))
    return shorten(sorted(names))


@theme.check(
    "annotations",
    WARN,
    suffers="Runtimes and hooks that look for the annotation do not find it.",
    source="Kubernetes: annotation keys are qualified names, like labels",
    mend="Use example.com/name, at most 63 letters, digits, -, _ and . after the slash.",
)
async def annotations(plugin: Plugin) -> str:
    """Keys of annotations are valid."""
    keys = {key for answer in await plugin.answers() for key in answer.annotations}
    if not keys:
        raise NotTried("it sets no annotation")
    odd = sorted(key for key in keys if not _is_annotation_key(key))
    if odd:
        raise Broken(shorten(odd))
    return shorten(sorted(keys))


def _is_annotation_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _QUALIFIED.fullmatch(name) is not None
