"""`kubedevices manifests proxy --patch`: the patch that moves another plugin behind the proxy.

Volumes change: instead of the kubelet's directories, the plugin gets the directories in which the
proxy accepts registrations and finds the sockets of plugins. The paths in the container are the
same, so the plugin needs no change. An init container waits until the proxy answers: a kubelet
always starts before its plugins, so some plugins end, or never register, if nobody answers at
kubelet.sock.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kubedevices.config.yaml_source import (
    items_of,
    parse_documents,
    read_content,
    text_of,
    value_of,
)
from kubedevices.errors import ConfigError, ConfigProblem
from kubedevices.manifests import memory
from kubedevices.manifests.deployment import PLUGIN_DIR

WAITS = "wait-for-kubedevices-proxy"
"""The name of the init container."""


def patches(file: Path, moved: Mapping[str, str], image: str) -> list[dict[str, Any]]:
    """Return a strategic-merge patch for each DaemonSet of `file` that mounts a directory to move.

    `moved` has the proxy's directory for each directory of the kubelet, the plugin directory first.
    `image` is the image of kubedevices, for the init container. Raises `CannotRead`, and
    `ConfigError` with the line if there is none.
    """
    found, problems = [], []
    for node in _objects(file):
        kind = text_of(node, "kind")
        items = items_of(node, "spec", "template", "spec", "volumes")
        here = {text_of(each, "name"): moved[at] for each in items if (at := _path(each)) in moved}
        if kind == "DaemonSet" and here:
            # Only a plugin that dials kubelet.sock has to wait for the proxy.
            inside = next(iter(moved.values()))
            dials = [name for name, path in here.items() if path == inside]
            found.append(_patch(node, here, [_waits(node, dials[0], image)] if dials else []))
        else:
            problems.append(_problem(file, node, kind, items, moved))
    if found:
        return found
    if not problems:
        problems = [ConfigProblem(str(file), 1, 1, "", "the file has no object")]
    daemon_sets = [each for each in problems if each.key]
    raise ConfigError(daemon_sets or problems)


def _objects(file: Path) -> Iterator[yaml.Node]:
    """Yield every object of the file, and every item of a List."""
    for node in parse_documents(read_content(file), file):
        items = value_of(node, "items")
        yield from items_of(items) if isinstance(items, yaml.SequenceNode) else [node]


def _patch(
    node: yaml.Node, paths: Mapping[str, str], init_containers: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    about = value_of(node, "metadata")
    metadata = {key: text_of(about, key) for key in ("name", "namespace") if text_of(about, key)}
    # Create the directory like the proxy does: the plugin may start before the proxy.
    volumes = [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, path in paths.items()
    ]
    pod: dict[str, Any] = {"initContainers": [*init_containers]} if init_containers else {}
    return {
        "apiVersion": text_of(node, "apiVersion") or "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {"template": {"spec": {**pod, "volumes": volumes}}},
    }


def _waits(node: yaml.Node, volume: str, image: str) -> dict[str, Any]:
    """Return the container that ends when the proxy answers, with the rights of the plugin's."""
    items = items_of(node, "spec", "template", "spec", "containers")
    theirs = next((each for each in items if volume in _mounts(each)), None)
    arguments = ["wait", "--registration", "--socket-dir", PLUGIN_DIR, "--timeout", "24h"]
    return {
        "name": WAITS,
        "image": image,
        "args": arguments,
        "securityContext": _rights(value_of(theirs, "securityContext")),
        "resources": memory.resources(0),
        "volumeMounts": [{"name": volume, "mountPath": PLUGIN_DIR}],
    }


def _mounts(container: yaml.Node) -> list[str]:
    return [text_of(each, "name") for each in items_of(container, "volumeMounts")]


def _rights(theirs: yaml.Node | None) -> dict[str, Any]:
    """Return user, privilege and SELinux label of the plugin's container, by which it may connect.

    Everything else is as little as the command needs.
    """
    users = {
        key: int(text) for key in ("runAsUser", "runAsGroup") if (text := text_of(theirs, key))
    }
    if text_of(theirs, "privileged") == "true":
        return {"privileged": True, **users}
    labels = value_of(theirs, "seLinuxOptions")
    keys = [each for each in ("user", "role", "type", "level") if text_of(labels, each)]
    selinux = {"seLinuxOptions": {each: text_of(labels, each) for each in keys}} if keys else {}
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        **users,
        **selinux,
    }


def _problem(
    file: Path, node: yaml.Node, kind: str, volumes: Sequence[yaml.Node], moved: Mapping[str, str]
) -> ConfigProblem:
    """Return why there is no patch for an object; `key` is empty unless it is a DaemonSet."""
    name = text_of(node, "metadata", "name")
    if kind != "DaemonSet":
        what = f"this is a {kind}, not a DaemonSet" if kind else "this is not a Kubernetes object"
        hint = "give the plugin's DaemonSet: kubectl get daemonset NAME -o yaml"
        return ConfigProblem(str(file), *_place(node), "", what, hint)
    plugin_dir, inside = next(iter(moved)), []
    for path in moved:
        if found := [each for each in volumes if _path(each) != path and _is_in(path, _path(each))]:
            plugin_dir, inside = path, found
            break
    place = _place(inside[0] if inside else node)
    if inside:
        return ConfigProblem(
            str(file), *place, name,
            f"the volume {text_of(inside[0], 'name')!r} is {_path(inside[0])}, but the patch may "
            f"replace only {plugin_dir} in it",
            f"give the plugin a volume of its own for {plugin_dir}, with a volumeMount",
        )  # fmt: skip
    paths = ", ".join(filter(None, map(_path, volumes)))
    return ConfigProblem(
        str(file), *place, name, f"no volume is the kubelet's directory {plugin_dir}",
        f"its hostPath volumes: {paths or 'none'}; for another directory give --plugin-dir",
    )  # fmt: skip


def _path(volume: yaml.Node) -> str:
    path = text_of(volume, "hostPath", "path")
    return posixpath.normpath(path) if path else ""


def _is_in(path: str, directory: str) -> bool:
    return bool(directory) and f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
