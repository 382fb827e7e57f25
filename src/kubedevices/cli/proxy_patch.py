"""`kubedevices manifests proxy --patch`: the patch that moves another plugin behind the proxy.

Only volumes change: instead of the kubelet's directories, the plugin gets the directories in which
the proxy accepts registrations and finds the sockets of plugins. The paths in the container are the
same, so the plugin needs no change.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kubedevices.config.yaml_source import parse_documents, read_content
from kubedevices.errors import ConfigError, ConfigProblem


def patches(file: Path, moved: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a strategic-merge patch for each DaemonSet of `file` that mounts a directory to move.

    `moved` has the proxy's directory for each directory of the kubelet, the plugin directory first.
    Raises `CannotRead`, and `ConfigError` with the line if there is none.
    """
    found, problems = [], []
    for node in _objects(file):
        kind = _text(node, "kind")
        volumes = _get(_get(_get(_get(node, "spec"), "template"), "spec"), "volumes")
        items = volumes.value if isinstance(volumes, yaml.SequenceNode) else []
        here = {_text(each, "name"): moved[at] for each in items if (at := _path(each)) in moved}
        if kind == "DaemonSet" and here:
            found.append(_patch(node, here))
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
        items = _get(node, "items")
        yield from items.value if isinstance(items, yaml.SequenceNode) else [node]


def _patch(node: yaml.Node, paths: Mapping[str, str]) -> dict[str, Any]:
    about = _get(node, "metadata")
    metadata = {key: _text(about, key) for key in ("name", "namespace") if _text(about, key)}
    # Create the directory like the proxy does: the plugin may start before the proxy.
    volumes = [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, path in paths.items()
    ]
    return {
        "apiVersion": _text(node, "apiVersion") or "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {"template": {"spec": {"volumes": volumes}}},
    }


def _problem(
    file: Path, node: yaml.Node, kind: str, volumes: Sequence[yaml.Node], moved: Mapping[str, str]
) -> ConfigProblem:
    """Return why there is no patch for an object; `key` is empty unless it is a DaemonSet."""
    name = _text(_get(node, "metadata"), "name")
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
            f"the volume {_text(inside[0], 'name')!r} is {_path(inside[0])}, but the patch may "
            f"replace only {plugin_dir} in it",
            f"give the plugin a volume of its own for {plugin_dir}, with a volumeMount",
        )  # fmt: skip
    paths = ", ".join(filter(None, map(_path, volumes)))
    return ConfigProblem(
        str(file), *place, name, f"no volume is the kubelet's directory {plugin_dir}",
        f"its hostPath volumes: {paths or 'none'}; for another directory give --plugin-dir",
    )  # fmt: skip


def _path(volume: yaml.Node) -> str:
    path = _text(_get(volume, "hostPath"), "path")
    return posixpath.normpath(path) if path else ""


def _is_in(path: str, directory: str) -> bool:
    return bool(directory) and f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _get(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                found: yaml.Node = value
                return found
    return None


def _text(node: yaml.Node | None, key: str) -> str:
    value = _get(node, key)
    return value.value if isinstance(value, yaml.ScalarNode) else ""


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
