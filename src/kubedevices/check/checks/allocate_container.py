"""Checks the content of Allocate answers: device files, mounts, environment and annotations."""

import re
from collections import defaultdict
from collections.abc import Callable

from kubedevices.check.answers import entry_text, shorten
from kubedevices.check.check import FAIL, WARN, Broken, Fragile, Harm, NotTried, Theme
from kubedevices.check.plugin import Plugin
from kubedevices.errors.words import counted
from kubedevices.values.device import DeviceSpec, Mount

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PERMISSIONS = re.compile(r"(?!.*(.).*\1)[rwm]{1,3}")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

theme = Theme("allocate", needs=("registration.options", "allocate.answers"), harm=Harm.POD)


async def _entries(plugin: Plugin) -> list[DeviceSpec | Mount]:
    """Return all device files and mounts of all answers; raises `NotTried` if there are none."""
    found: list[DeviceSpec | Mount] = []
    for answer in await plugin.answers():
        found += [*answer.devices, *answer.mounts]
    if not found:
        raise NotTried("its answers have neither device files nor mounts")
    return found


@theme.check(
    "paths",
    FAIL,
    suffers="The container cannot be created; the kubelet tries again and again "
    "(CreateContainerError).",
    source="CRI: host and container paths are absolute; kubelets do not check them",
    mend="Give absolute paths for the host and for the container.",
)
async def paths(plugin: Plugin) -> str:
    """All paths of device files and mounts are absolute."""
    entries = await _entries(plugin)
    for entry in entries:
        for path in (entry.host_path, entry.container_path):
            if not (path or "").startswith("/"):
                raise Broken(f"a path is not absolute: {entry_text(entry)}")
    return f"device files and mounts: {len(entries)}"


@theme.check(
    "permissions",
    FAIL,
    suffers="The runtime refuses the container, or gives it permissions that nobody wanted.",
    source="device plugin API: one or more of r, w, m",
    mend='Use "rw", or "mrw" if the container must create device files.',
)
async def permissions(plugin: Plugin) -> str:
    """Permissions of device files are one or more of the letters r, w and m."""
    specs = [entry for entry in await _entries(plugin) if isinstance(entry, DeviceSpec)]
    if not specs:
        raise NotTried("its answers have no device files")
    for spec in specs:
        if not _PERMISSIONS.fullmatch(spec.permissions):
            raise Broken(f"permissions '{spec.permissions}' of {spec.host_path}")
    return ", ".join(sorted({spec.permissions for spec in specs}))


@theme.check(
    "container-paths",
    FAIL,
    suffers="If several entries have the same container path, the kubelet uses only the first.",
    source="kubelet 1.32: the first entry for a container path wins",
    mend="Give each entry its own container path.",
)
async def container_paths(plugin: Plugin) -> str:
    """No two different entries of an answer have the same container path."""
    await _entries(plugin)
    count = 0
    for answer in await plugin.answers():
        places: dict[str | None, list[DeviceSpec | Mount]] = defaultdict(list)
        answered: list[DeviceSpec | Mount] = [*answer.devices, *answer.mounts]
        for entry in answered:
            if entry not in places[entry.container_path]:  # an equal entry does no harm
                places[entry.container_path].append(entry)
        count += len(places)
        for place, entries in places.items():
            hosts = sorted({each.host_path for each in entries})
            if len(hosts) > 1:
                raise Broken(f"{place} is both {' and '.join(hosts)}")
            if len(entries) > 1:
                raise Fragile(f"{len(entries)} different entries have the path {place}")
    return counted(count, "path")


@theme.check(
    "host-paths",
    FAIL,
    suffers="The container cannot be created (CreateContainerError) until the file exists.",
    source="containerd: lstat of the device file, no such file or directory",
    mend="List a device only while its files exist; check this in Allocate.",
)
async def host_paths(plugin: Plugin) -> str:
    """Device files and mounts exist on the host."""
    entries = await _entries(plugin)
    missing = await plugin.harness.missing_paths([entry.host_path for entry in entries])
    if missing:
        raise Broken(f"{missing[0]} does not exist", "\n".join(missing))
    return f"{len({entry.host_path for entry in entries})} paths"


@theme.check(
    "env-names",
    WARN,
    suffers="A shell removes variables with invalid names, so the program in the container does "
    "not get them.",
    source="POSIX: letters, digits and _; the first character is not a digit",
    mend="Replace every other character by _.",
    seen="simple-device-plugin (device IDs with - in variable names)",
)
async def env_names(plugin: Plugin) -> str:
    """The names of environment variables are valid in a shell."""
    names = {name for answer in await plugin.answers() for name in answer.env}
    return _valid(names, "environment variable", _ENV_NAME.fullmatch)


@theme.check(
    "annotations",
    WARN,
    suffers="Runtimes and hooks that look for the annotation do not find it.",
    source="Kubernetes: annotation keys are qualified names, like labels",
    mend="Use example.com/name, at most 63 letters, digits, -, _ and . after the slash.",
)
async def annotations(plugin: Plugin) -> str:
    """The keys of annotations are valid."""
    keys = {key for answer in await plugin.answers() for key in answer.annotations}
    return _valid(keys, "annotation", _is_annotation_key)


def _valid(names: set[str], what: str, is_valid: Callable[[str], object]) -> str:
    """Return the names; raises `Broken` for those that are not valid, `NotTried` for none."""
    if not names:
        raise NotTried(f"it sets no {what}")
    if odd := sorted(name for name in names if not is_valid(name)):
        raise Broken(shorten(odd))
    return shorten(sorted(names))


def _is_annotation_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _QUALIFIED.fullmatch(name) is not None
