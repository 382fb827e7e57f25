"""Converts settings of generic-device-plugin: its file, or the values of its `--device` flags.

That plugin makes its first device from the first match of every path of a group, its second device
from the second matches, and so on, as long as every path has a match. Expose makes a device from
every match of one path; the files of the other paths belong to each of these devices.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import yaml

from kubedevices.config.keys import KeyPath
from kubedevices.config.yaml_source import entries, find
from kubedevices.expose.checks import permissions as permissions_problem
from kubedevices.expose.foreign_conversion import DIRECTORIES, Conversion, is_map
from kubedevices.expose.path_patterns import WILDCARD, PathPattern

NAMESPACE, OLD_NAMESPACE = "devic.es", "squat.ai"
"""The default domain of generic-device-plugin since version 0.2, and before."""

Keys: TypeAlias = Mapping[str, "Keys"]

_PATH: Keys = {
    key: {} for key in ("path", "mountPath", "permissions", "readOnly", "type", "limit", "optional")
}
_USB: Keys = {key: {} for key in ("vendor", "product", "serial")}
_GROUP: Keys = {"paths": _PATH, "usb": _USB, "usbs": _USB, "count": {}}
_DEVICE: Keys = {"name": {}, "groups": _GROUP}
_DEFAULTS = ("limit", "permissions", "readOnly", "type", "optional")
"""Keys of a path that `microshift show-config` prints although they are not set."""

_OPTIONS = ("listen", "log-level", "plugin-directory")
_FILE: Keys = {"domain": {}, "devices": _DEVICE, "device": _DEVICE, **{key: {} for key in _OPTIONS}}

_KINDS = {"mountPath": str, "permissions": str, "type": str, "readOnly": bool, "optional": bool}
_KIND_NAMES = {str: "text", bool: "true or false"}

_WILDCARDS = re.compile(r"(?:[*?]|\[[^]]*\])+")


class _Path(NamedTuple):
    """A path of a group, with the place of its entry, and the entry itself."""

    at: KeyPath
    path: str
    limit: int
    given: Mapping[str, Any]

    @property
    def is_glob(self) -> bool:
        return WILDCARD.search(self.path) is not None

    @property
    def is_directory(self) -> bool:
        return self.path.removeprefix("/dev/") in DIRECTORIES

    @property
    def is_optional(self) -> bool:
        return bool(self.given.get("optional"))

    @property
    def permissions(self) -> str:
        return str(self.given.get("permissions", "mrw"))


def namespace_of(work: Conversion, version: str) -> str:
    """Return the default domain of the version of the plugin, with a note if it is not known."""
    number = re.match(r"v?(\d+)\.(\d+)", version)
    if number:
        return OLD_NAMESPACE if (int(number[1]), int(number[2])) < (0, 2) else NAMESPACE
    work.note(
        (),
        f"the file names no domain: {NAMESPACE} is the default of generic-device-plugin since "
        f"0.2; before, it was {OLD_NAMESPACE}. Take the one that your pods ask for",
    )
    return NAMESPACE


def from_generic(work: Conversion, others: Sequence[str] = ()) -> tuple[str, list[dict[str, Any]]]:
    """Return the domain, empty if it is not given, and the resources.

    There are none if this is not a file of the plugin. `others` are keys around the settings.
    """
    root = work.root
    given = {str(key.value).lower() for key, _ in root.value} if _is_mapping(root) else set()
    is_file = bool({"devices", "device"} & given)
    if not is_file and _is_mapping(root) and not _DEVICE.keys() & given:
        return "", []
    around: Keys = {name: {} for name in others}
    _spell_keys(work, root, (), {**_FILE, **around} if is_file else _DEVICE)
    _take_synonyms(root)
    data = work.data()
    if not is_file:
        return "", _resources(work, (), data)
    if others:
        work.note((others[0],), f"{', '.join(others)}: left out, not about devices")
    for option in (each for each in _OPTIONS if each in data):
        work.note((option,), f"{option} is left out: it does not concern devices")
    found = [
        each for key in ("devices", "device") for each in _resources(work, (key,), data.get(key))
    ]
    return str(data.get("domain") or ""), found


def _take_synonyms(node: yaml.Node) -> None:
    """Rename `usbs` to `usb`, and remove lists without a value: MicroShift prints every key."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            key.value = "usb" if key.value == "usbs" else key.value
            _take_synonyms(value)
        lists = [pair for pair in node.value if pair[0].value in ("usb", "paths")]
        if len(lists) > 1:
            node.value = [pair for pair in node.value if not (pair in lists and _is_empty(pair[1]))]
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _take_synonyms(value)


def _is_empty(listed: yaml.Node) -> bool:
    """Whether no entry of a list of paths or USB devices says which device it means."""
    entries_ = listed.value if isinstance(listed, yaml.SequenceNode) else []
    return not any(
        value.value
        for each in entries_
        if isinstance(each, yaml.MappingNode)
        for key, value in each.value
        if key.value not in _DEFAULTS
    )


def _is_mapping(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode)


def _spell_keys(work: Conversion, node: yaml.Node, at: KeyPath, known: Keys) -> None:
    """Spell keys as the plugin documents them, also below `node`; unknown keys are mistakes.

    The plugin itself ignores upper and lower case, and ignores unknown keys.
    """
    is_list = isinstance(node, yaml.SequenceNode)
    spelled = {name.lower(): name for name in known}
    for i, item in enumerate(node.value if is_list else [node]):
        here = (*at, i) if is_list else at
        if not isinstance(item, yaml.MappingNode):
            continue
        seen = set()
        for name, key, value in entries(item, here, work.report):
            key.value = spelled.get(name.lower(), name)
            place = (*here, key.value)
            if key.value not in known:
                work.unknown_key(key, place, known)
            elif key.value in seen:
                work.report.mistake(key, place, "this key stands twice")
            elif below := known[key.value]:
                _spell_keys(work, value, place, below)
            seen.add(key.value)


def _resources(work: Conversion, at: KeyPath, data: Any) -> list[dict[str, Any]]:
    """Return the resources of a list of devices, or of a single one."""
    devices = [data] if is_map(data) else data if isinstance(data, list) else []
    found: list[dict[str, Any]] = []
    for i, device in enumerate(devices):
        here: KeyPath = (*at, i) if isinstance(data, list) else at
        with work.entry(found):
            if is_map(device) and (resource := _resource(work, here, device)):
                found.append(resource)
    return found


def _resource(work: Conversion, at: KeyPath, device: Mapping[str, Any]) -> dict[str, Any]:
    groups = device.get("groups")
    if not isinstance(groups, list) or not groups or not isinstance(device.get("name"), str):
        work.mistake(at, "a name and a list of groups are needed")
        return {}
    name = device["name"]
    parts = [_group(work, (*at, "groups", i), each) for i, each in enumerate(groups)]
    merged: dict[str, Any] = {"name": name, "match": []}
    for i, part in enumerate(parts):
        merged["match"] += part.pop("match", [])
        if part != parts[0]:
            differ = sorted(key for key in {*part, *parts[0]} if part.get(key) != parts[0].get(key))
            work.mistake(
                (*at, "groups", i),
                f"this group differs from the first group ({', '.join(differ)}), but in expose all "
                "devices of a resource have the same files and replicas",
                "write two resources",
            )
    return merged | parts[0]


def _group(work: Conversion, at: KeyPath, group: Any) -> dict[str, Any]:
    """Return the keys of a resource that one group gives."""
    if not is_map(group) or _are_maps(group, "paths") == _are_maps(group, "usb"):
        work.mistake(at, "a group needs a list of paths or of usb")
        return {}
    count = work.count(at, group, "count")
    if _are_maps(group, "usb"):
        usb = [_usb(work, (*at, "usb", i), each) for i, each in enumerate(group["usb"])]
        found: dict[str, Any] = {"match": [{"usb": each} for each in usb]}
        if len(usb) > 1:
            work.note(
                (*at, "usb"),
                "the plugin made one device from several USB devices of a group, expose makes one "
                "from each",
            )
    else:
        found = _paths(work, at, group["paths"])
    return found | ({"replicas": count} if count > 1 else {})


def _are_maps(group: Mapping[str, Any], key: str) -> bool:
    """Whether `key` has a list of mappings that is not empty."""
    listed = group.get(key)
    return isinstance(listed, list) and bool(listed) and all(map(is_map, listed))


def _usb(work: Conversion, at: KeyPath, device: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as texts of the file: YAML would read `0403` as an octal number.

    The plugin reads vendor and product as hexadecimal numbers, with or without `0x`; an empty text
    means any.
    """
    found = {}
    for key in ("vendor", "product", "serial"):
        node = find(work.root, (*at, key))
        if key not in device or not isinstance(node, yaml.ScalarNode) or not node.value:
            continue
        text = node.value
        if key != "serial":
            number = text.lower().removeprefix("0x")
            if re.fullmatch("[0-9a-f]{1,4}", number) is None:
                work.mistake((*at, key), f"{text!r} is no number of four digits 0-9 a-f")
                continue
            text = number.rjust(4, "0")
        found[key] = text
    return found


def _paths(work: Conversion, at: KeyPath, listed: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys of a resource that a group of paths gives."""
    if not all(isinstance(each.get("path"), str) for each in listed):
        work.mistake((*at, "paths"), "every entry needs a path")
        return {}
    paths = [_path(work, (*at, "paths", i), each) for i, each in enumerate(listed)]
    mounts = [each for each in paths if each.given.get("type") == "Mount"]
    nodes = [each for each in paths if each not in mounts]
    if not nodes:
        work.mistake(at, "a group needs a device file in addition to its mounts")
        return {}
    _check_limits(work, paths)
    first = min(nodes, key=lambda each: (not each.is_glob, each.is_optional))
    others = [each for each in nodes if each is not first]
    _check_directories(work, first, others)
    kind = "directory" if first.is_directory else "path"
    found: dict[str, Any] = {"match": [{kind: first.path}]}
    if container := _container(work, first):
        found["container"] = container
    if others:
        found |= _companions(work, first, others)
    if mounts:
        found["mounts"] = [_mount(work, first, each) for each in mounts]
    return found


def _path(work: Conversion, at: KeyPath, given: Mapping[str, Any]) -> _Path:
    """Return an entry of `paths`, with its glob in the form of expose; report its mistakes."""
    for key, kind in _KINDS.items():
        if key in given and not isinstance(given[key], kind):
            work.mistake((*at, key), f"must be {_KIND_NAMES[kind]}")
    is_mount = given.get("type") == "Mount"
    if given.get("type", "Device") not in ("Device", "Mount"):
        work.mistake((*at, "type"), f"{given['type']!r} is neither 'Device' nor 'Mount'")
    if problem := permissions_problem(str(given.get("permissions", "mrw"))):
        work.mistake((*at, "permissions"), problem)
    path = given["path"].replace("[^", "[!")
    if is_mount or path.removeprefix("/dev/").rstrip("/") in DIRECTORIES:
        path = path.rstrip("/")
    if "[!" in given["path"] or "\\" in path:
        work.mistake((*at, "path"), "[!...] and \\ have another meaning in expose")
    try:
        PathPattern(path)
    except ValueError as error:
        work.mistake((*at, "path"), str(error))
    return _Path(at, path, work.count(at, given, "limit"), given)


def _check_limits(work: Conversion, paths: Sequence[_Path]) -> None:
    """Report globs that give another number of devices in expose than in the plugin.

    The plugin uses each match `limit` times, so a path without a wildcard serves `limit` devices.
    """
    globs = [each.path for each in paths if each.is_glob]
    for each in paths if globs else ():
        if each.is_glob and len(globs) > 1 and each.limit > 1:
            work.mistake(
                (*each.at, "limit"),
                f"expose cannot use each match of {each.path} {each.limit} times",
            )
        elif not each.is_glob and each.limit == 1:
            work.mistake(
                each.at,
                f"{each.path} belongs to one device, but expose would give it to every {globs[0]}",
                f"name the device instead of {globs[0]}, or set a limit to share it",
            )
        elif not each.is_glob:
            work.note(
                (*each.at, "limit"),
                f"{each.path} belongs to every {globs[0]}, no longer to {each.limit} of them at "
                "most",
            )


def _container(work: Conversion, first: _Path) -> dict[str, str]:
    """Return the key `container` of the resource: path and permissions in the container."""
    container = {}
    mount_path = str(first.given.get("mountPath") or "")
    if mount_path and mount_path != first.path:
        container["path"] = mount_path + "{name}" * mount_path.endswith("/")
        if first.is_glob and "{" not in container["path"]:
            work.note(
                (*first.at, "mountPath"),
                f"every device of {first.path} has the path {mount_path} in the container: write "
                f'"{mount_path}{{index}}" if a container may have several',
            )
    if sorted(first.permissions) != ["r", "w"]:
        container["permissions"] = first.permissions
    return container


def _check_directories(work: Conversion, first: _Path, others: Sequence[_Path]) -> None:
    """Report a directory that has further files or another path in the container."""
    for each in (first, *others):
        if each.is_directory and (others or each.given.get("mountPath", each.path) != each.path):
            work.mistake(
                (*each.at, "path"),
                f"{each.path} is a directory, which expose serves only alone and at its own path",
                f"name one of its files, or {each.path}/* for all files as single devices",
            )


def _companions(work: Conversion, first: _Path, others: Sequence[_Path]) -> dict[str, Any]:
    """Return the keys of the resource for the further files of every device."""
    if first.is_optional:
        work.mistake(others[0].at, "expose needs one file of a group that is not optional")
    all_optional = all(each.is_optional for each in others)
    found: dict[str, Any] = {"with": [_companion(work, first, each) for each in others]}
    if not all_optional:
        return found
    for each in found["with"]:
        if isinstance(each, dict):
            each.pop("optional")
    found["with"] = [_shortest(each) for each in found["with"]]
    return found | {"optional": True}


def _companion(work: Conversion, first: _Path, each: _Path) -> Any:
    entry: dict[str, Any] = {"path": _of_the_device(work, first, each)}
    mount_path = str(each.given.get("mountPath") or each.path)
    if mount_path.endswith("/"):
        mount_path += entry["path"].rpartition("/")[2]
    if mount_path != each.path:
        entry["container"] = mount_path
    if sorted(each.permissions) != sorted(first.permissions):
        entry["permissions"] = each.permissions
    return _shortest(entry | ({"optional": True} if each.is_optional else {}))


def _shortest(entry: Any) -> Any:
    """Return an entry of `with` as a text if it has only a path."""
    return entry["path"] if isinstance(entry, dict) and [*entry] == ["path"] else entry


def _of_the_device(work: Conversion, first: _Path, other: _Path) -> str:
    """Return the path of a further file, with a placeholder for its wildcard."""
    if not other.is_glob:
        return other.path
    if len(_WILDCARDS.findall(other.path)) > 1 or not first.is_glob:
        work.mistake(
            other.at,
            f"it is not clear which file of {other.path} belongs to which of {first.path}",
        )
        return other.path
    work.note(
        other.at,
        f"{other.path} belongs to the {first.path} with the same text for the wildcard, no longer "
        "with the same position",
    )
    return _WILDCARDS.sub("{n}", other.path)


def _mount(work: Conversion, first: _Path, mount: _Path) -> dict[str, Any]:
    if mount.is_optional:
        work.mistake((*mount.at, "optional"), "a mount cannot be optional")
    found: dict[str, Any] = {"host": _of_the_device(work, first, mount)}
    if mount.given.get("mountPath", mount.path) != mount.path:
        found["container"] = str(mount.given["mountPath"]).rstrip("/")
    return found | ({"readOnly": True} if mount.given.get("readOnly") else {})
