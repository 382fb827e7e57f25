"""Files of generic-device-plugin and smarter-device-manager, turned into expose's.

What one of them can say and expose cannot is a mistake with its place; what means something a bit
different afterwards becomes a note. Pure but for reading the file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kubedevices.builtin.expose_checks import resource as explain_name
from kubedevices.builtin.yaml_source import KeyPath, Report, find, read_yaml

GENERIC_NAMESPACE = "squat.ai"
SMARTER_NAMESPACE = "smarter-devices"

_WILDCARD = re.compile(r"[*?\[]")


class Converted(NamedTuple):
    """A configuration for expose as plain data, and what a person should know about it."""

    document: dict[str, Any]
    notes: tuple[str, ...]


@dataclass
class _Conversion:
    """The state of one conversion."""

    root: yaml.Node
    report: Report
    notes: list[str] = field(default_factory=list)

    def mistake(self, path: KeyPath, text: str, hint: str = "") -> None:
        self.report.mistake(find(self.root, path), path, text, hint)


def convert(file: Path) -> Converted:
    """Read `file` in whichever of the two formats it is.

    Raises `CannotRead`, and `ConfigError` for what cannot be said in expose's words.
    """
    root = read_yaml(file)
    work = _Conversion(root, Report(str(file), root))
    data = yaml.SafeLoader("").construct_document(root)
    if isinstance(data, list) and any("devicematch" in each for each in data if _is_map(each)):
        namespace, resources = SMARTER_NAMESPACE, _from_smarter(work, data)
    else:
        namespace, resources = _from_generic(work, data)
    work.report.raise_mistakes()
    if not resources:
        work.mistake(
            (), "this file is neither generic-device-plugin's nor smarter-device-manager's"
        )
    work.report.raise_mistakes()
    document = {"version": 1, "namespace": namespace, "resources": resources}
    return Converted(document, tuple(work.notes))


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping)


# ---------------------------------------------------------------- generic-device-plugin


def _from_generic(work: _Conversion, data: Any) -> tuple[str, list[dict[str, Any]]]:
    """Take its configuration file, or the value of one or several of its `--device` flags."""
    namespace: str = GENERIC_NAMESPACE
    at: KeyPath = ()
    if _is_map(data) and not {"name", "groups"} & data.keys():
        namespace = str(data.get("domain", namespace))
        at = ("devices",) if "devices" in data else ("device",)
        data = data.get("devices", data.get("device"))
    devices = [data] if _is_map(data) else data if isinstance(data, list) else []
    found = []
    for i, device in enumerate(devices):
        here: KeyPath = (*at, i) if isinstance(data, list) else at
        if _is_map(device) and (resource := _generic_resource(work, here, device)):
            found.append(resource)
    return namespace, found


def _generic_resource(work: _Conversion, at: KeyPath, device: Mapping[str, Any]) -> dict[str, Any]:
    groups = device.get("groups")
    if not isinstance(groups, list) or not isinstance(device.get("name"), str):
        work.mistake(at, "a name and a list of groups are needed")
        return {}
    name = device["name"]
    parts = [_group(work, (*at, "groups", i), each) for i, each in enumerate(groups)]
    merged: dict[str, Any] = {"name": name, "match": []}
    for i, part in enumerate(parts):
        merged["match"] += part.pop("match", [])
        if part != parts[0]:
            work.mistake(
                (*at, "groups", i),
                "this group gives containers something else than the first one, and a resource of "
                "expose gives the same with every device",
                "write two resources",
            )
    return merged | parts[0] if parts else merged


def _group(work: _Conversion, at: KeyPath, group: Any) -> dict[str, Any]:
    """Return what one group makes of a resource."""
    if not _is_map(group) or not (_maps(group, "paths") or _maps(group, "usb")):
        work.mistake(at, "a group needs a list of paths or of usb")
        return {}
    if not all(isinstance(each.get("path"), str) for each in group.get("paths", ())):
        work.mistake((*at, "paths"), "every entry needs a path")
        return {}
    count = _count(work, at, group, "count")
    found: dict[str, Any] = {"match": []}
    if usb := group.get("usb"):
        found["match"] = [{"usb": _usb(work, (*at, "usb", i), each)} for i, each in enumerate(usb)]
        if len(usb) > 1:
            work.notes.append(
                "several USB devices of one group were one device together, now each is one"
            )
    else:
        found |= _paths(work, at, group["paths"])
    return found | ({"replicas": count} if count > 1 else {})


def _maps(group: Mapping[str, Any], key: str) -> bool:
    """Whether `key` is there and has a list of keys and values."""
    entries = group.get(key)
    return isinstance(entries, list) and bool(entries) and all(map(_is_map, entries))


def _count(work: _Conversion, at: KeyPath, entry: Mapping[str, Any], key: str) -> int:
    count = entry.get(key, 1)
    if type(count) is int and count >= 1:
        return count
    work.mistake((*at, key), f"{count!r} is not a number of devices")
    return 1


def _usb(work: _Conversion, at: KeyPath, device: Mapping[str, Any]) -> dict[str, str]:
    """Return what stands in the file: YAML reads `0403` as a number, and not as 403."""
    found = {}
    for key in ("vendor", "product", "serial"):
        node = find(work.root, (*at, key))
        if key in device and isinstance(node, yaml.ScalarNode):
            found[key] = node.value
    return found


def _paths(work: _Conversion, at: KeyPath, paths: list[Mapping[str, Any]]) -> dict[str, Any]:
    nodes = [each for each in paths if each.get("type", "Device") != "Mount"]
    if not nodes:
        work.mistake(at, "a group needs a device file besides its mounts")
        return {}
    first, *others = nodes
    found: dict[str, Any] = {"match": [{"path": first["path"]}]}
    container = {}
    if mount_path := first.get("mountPath"):
        container["path"] = _place(work, first["path"], mount_path)
    permissions = str(first.get("permissions", "mrw"))
    if any(str(each.get("permissions", "mrw")) != permissions for each in others):
        work.mistake(at, "device files of one group with different permissions")
    if sorted(permissions) != ["r", "w"]:
        container["permissions"] = permissions
    if container:
        found["container"] = container
    for each in others:
        if each.get("mountPath", each["path"]) != each["path"]:
            work.mistake(at, f"{each['path']} comes along under its own path only, not mountPath")
        found.setdefault("with", []).append(_companion(work, at, first["path"], each["path"]))
    if any(each.get("optional") for each in others):
        found["optional"] = True
    mounts = [_mount(each) for each in paths if each.get("type") == "Mount"]
    return found | ({"mounts": mounts} if mounts else {})


def _place(work: _Conversion, path: str, mount_path: str) -> str:
    if _WILDCARD.search(path) and "{" not in mount_path:
        work.notes.append(
            f"every device of {path} is put at {mount_path}: write "
            f'"{mount_path}{{index}}" if a container may have several'
        )
    return mount_path


def _companion(work: _Conversion, at: KeyPath, first: str, path: str) -> str:
    wildcards = len(re.findall(r"[*?]|\[[^]]*\]\*?", path))
    if not wildcards:
        return path
    if wildcards > 1 or not _WILDCARD.search(first):
        work.mistake(at, f"which of {path} belongs to which of {first} cannot be said")
        return path
    work.notes.append(
        f"{path} goes with {first} by what the wildcard stands for, no longer by their order"
    )
    return re.sub(r"[*?]|\[[^]]*\]\*?", "{n}", path)


def _mount(path: Mapping[str, Any]) -> dict[str, Any]:
    mount: dict[str, Any] = {"host": path["path"]}
    if path.get("mountPath", path["path"]) != path["path"]:
        mount["container"] = path["mountPath"]
    return mount | ({"readOnly": True} if path.get("readOnly") else {})


# ---------------------------------------------------------------- smarter-device-manager


def _from_smarter(work: _Conversion, data: Iterable[Any]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for i, each in enumerate(data):
        expression = each.get("devicematch") if _is_map(each) else None
        if not isinstance(expression, str):
            work.mistake((i,), "a devicematch is needed")
            continue
        if expression == "nvidia-gpu":
            work.notes.append("nvidia-gpu is left out: it stood for the files of a Jetson board")
            continue
        glob = _glob_of(expression)
        if glob is None:
            work.mistake((i, "devicematch"), f"{expression!r} cannot be said with *, ? and [...]")
            continue
        name = _WILDCARD.split(glob)[0].replace("/", "_").strip("-_.")
        if problem := explain_name(name):
            work.mistake((i, "devicematch"), f"no resource name can be made of it: {problem}")
            continue
        if name in found:
            work.mistake((i, "devicematch"), f"a second resource {name} would come of it")
            continue
        replicas = _count(work, (i,), each, "nummaxdevices")
        found[name] = {"name": name, "match": [{"path": f"/dev/{glob}"}], "id": "path"}
        if replicas > 1:
            found[name]["replicas"] = replicas
        if _WILDCARD.search(glob):
            work.notes.append(
                f"{expression}: pods ask for {SMARTER_NAMESPACE}/{name} and get any of "
                f"/dev/{glob}, no longer for one by its name"
            )
        if name == "snd":
            found[name]["match"] = [{"path": "/dev/snd/*"}]
            work.notes.append("snd was the directory as a whole, now each file in it is a device")
    return [*found.values()]


def _glob_of(expression: str) -> str | None:
    """Return the glob that means the same, or None."""
    start, end = expression.startswith("^"), expression.endswith("$")
    text = expression.removeprefix("^").removesuffix("$")
    marked = re.sub(r"\[0-9\][*+]", "\1", text).replace(".*", "\2").replace("\\.", ".")
    if re.search(r"[\\^$()|{}+?*]", marked):
        return None
    glob = marked.replace("\1", "[0-9]*").replace("\2", "*")
    return ("" if start else "*") + glob + ("" if end or glob.endswith("*") else "*")
