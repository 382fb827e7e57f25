"""Applies CDI devices to an OCI runtime configuration, as container engines do.

For use without an engine: runtimes such as runc do not support CDI. This module reads no file: the
argument `look` reads device files of the host.
"""

import copy
import posixpath
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kubedevices.errors import CdiInjectionFailed, NotADeviceFile
from kubedevices.values.cdi.registry import CdiRegistry
from kubedevices.values.cdi.values import (
    CdiMount,
    ContainerEdits,
    DeviceNode,
    Hook,
    to_dict,
)


class DeviceFile(NamedTuple):
    """A device file of the host: `type` is b, c or p, `file_mode` its permission bits."""

    type: str
    major: int
    minor: int
    file_mode: int
    uid: int = 0
    gid: int = 0


Look = Callable[[str], DeviceFile]
"""Reads a device file without following links; raises `NotADeviceFile`."""


def inject(
    config: dict[str, Any], names: Iterable[str], registry: CdiRegistry, look: Look
) -> dict[str, Any]:
    """Return a changed copy; raises `UnresolvableCdiDevices` with all, or `CdiInjectionFailed`."""
    return apply_edits(config, registry.edits(names), look)


def apply_edits(config: dict[str, Any], edits: ContainerEdits, look: Look) -> dict[str, Any]:
    """Return a copy of `config` with `edits` applied, in the order of the CDI specification."""
    result: dict[str, Any] = copy.deepcopy(config)
    for text in edits.env:
        set_env(result, text)
    for node in edits.device_nodes:
        _add_device(result, node, look)
    for device in edits.net_devices:
        names = _member(result, "linux", "netDevices", {})
        names[device.host_interface_name] = {"name": device.name}
    for mount in edits.mounts:
        _add_mount(result, mount)
    if edits.mounts:
        result["mounts"].sort(key=lambda each: _depth(each["destination"]))
    for hook in edits.hooks:
        _member(result, "hooks", hook.hook_name, []).append(_hook_to_oci(hook))
    if edits.intel_rdt is not None:
        _object(result, "linux")["intelRdt"] = to_dict(edits.intel_rdt)
    for gid in edits.additional_gids:
        gids = _member(_object(result, "process"), "user", "additionalGids", [])
        if gid and gid not in gids:
            gids.append(gid)
    return result


def set_env(config: dict[str, Any], text: str) -> None:
    """Replace the value of NAME by `NAME=value`, or append it; remove further values of NAME."""
    env = _member(config, "process", "env", [])
    name = text.partition("=")[0] + "="
    places = [i for i, old in enumerate(env) if old.startswith(name)]
    if not places:
        env.append(text)
        return
    env[places[0]] = text
    for i in reversed(places[1:]):
        del env[i]


def _add_device(config: dict[str, Any], node: DeviceNode, look: Look) -> None:
    device = _device_to_oci(node, look)
    user = (config.get("process") or {}).get("user") or {}
    for key in ("uid", "gid"):
        if key not in device and user.get(key, 0) > 0:
            device[key] = user[key]
    devices = _member(config, "linux", "devices", [])
    devices[:] = [old for old in devices if old["path"] != node.path]
    devices.append(device)
    if device["type"] in ("b", "c"):
        rule = {
            "allow": True,
            "type": device["type"],
            "major": device["major"],
            "minor": device["minor"],
            "access": node.permissions or "rwm",
        }
        _member(_object(config, "linux"), "resources", "devices", []).append(rule)


def _device_to_oci(node: DeviceNode, look: Look) -> dict[str, Any]:
    seen = _host_file(node, look)
    device: dict[str, Any] = {"path": node.path, "type": node.type or (seen.type if seen else "")}
    if device["type"] != "p":
        use_host = seen is not None and not node.major
        device["major"] = seen.major if seen and use_host else node.major or 0
        device["minor"] = seen.minor if seen and use_host else node.minor or 0
    mode = node.file_mode if node.file_mode is not None else (seen.file_mode if seen else None)
    optional = {"fileMode": mode, "uid": node.uid, "gid": node.gid}
    return device | {key: value for key, value in optional.items() if value is not None}


def _host_file(node: DeviceNode, look: Look) -> DeviceFile | None:
    """Return the host's device file; None if it is missing and the edit has type and numbers."""
    is_complete = bool(node.type) and (bool(node.major) or node.type == "p")
    path = node.host_path or node.path
    try:
        seen = look(path)
    except NotADeviceFile as error:
        if is_complete:
            return None
        raise CdiInjectionFailed(path, error.reason) from error
    if not is_complete and node.type and node.type != seen.type:
        raise CdiInjectionFailed(path, f"it is of type {seen.type!r}, not {node.type!r}")
    return seen


def _add_mount(config: dict[str, Any], mount: CdiMount) -> None:
    if config.get("mounts") is None:
        config["mounts"] = []
    mounts = config["mounts"]
    mounts[:] = [old for old in mounts if old["destination"] != mount.container_path]
    entry: dict[str, Any] = {"destination": mount.container_path}
    if mount.type:
        entry["type"] = mount.type
    entry["source"] = mount.host_path
    entry["options"] = list(mount.options)
    mounts.append(entry)


def _depth(destination: str) -> int:
    return posixpath.normpath("/" + destination.lstrip("/")).count("/")


def _hook_to_oci(hook: Hook) -> dict[str, Any]:
    given = to_dict(hook)
    del given["hookName"]
    return given


def _object(config: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object under `key`; add an empty one if it is absent or null."""
    if config.get(key) is None:
        config[key] = {}
    part: dict[str, Any] = config[key]
    return part


def _member(config: dict[str, Any], outer: str, inner: str, empty: Any) -> Any:
    """Return `config[outer][inner]`; add `empty` there if it is absent or null."""
    above = _object(config, outer)
    if above.get(inner) is None:
        above[inner] = empty
    return above[inner]
