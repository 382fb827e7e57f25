"""What a server says of itself: its version, its groups and their resources. Pure."""

from typing import Any

from kubedevices.values.scheduling.kinds import KINDS, Object

VERSION = "1.36"

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def discovered(path: str) -> Object | None:
    """Return the answer for a path such as `/version` or `/apis`; None for all other paths."""
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return _version()
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(name) for name in _groups()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name] if name in _groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}
        case ["api", "v1"]:
            return _resources("v1")
        case ["apis", group, version] if version in _groups().get(group, ()):
            return _resources(f"{group}/{version}")
    return None


def _version() -> Object:
    major, minor = VERSION.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{VERSION}.0",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def _groups() -> dict[str, list[str]]:
    """Return the versions of each group but the core group."""
    found: dict[str, list[str]] = {}
    for kind in KINDS.values():
        group, _, version = kind.api_version.rpartition("/")
        if group and version not in found.setdefault(group, []):
            found[group].append(version)
    return found


def _group(name: str) -> Object:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version} for version in _groups()[name]
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(api_version: str) -> Object:
    found: list[dict[str, Any]] = []
    for plural, kind in KINDS.items():
        if kind.api_version != api_version:
            continue
        about = {"namespaced": kind.is_namespaced, "kind": kind.name}
        single = {"name": plural, "singularName": kind.name.lower(), "verbs": _VERBS}
        found.append(single | about)
        if kind.has_status:
            status = {"name": f"{plural}/status", "singularName": ""}
            found.append(status | about | {"verbs": ["get", "patch", "update"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": found,
    }
