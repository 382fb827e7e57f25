"""The kinds of objects, and where they are in URLs. Pure."""

from typing import Any, NamedTuple

Object = dict[str, Any]

RESOURCE_GROUP = "resource.k8s.io/v1"


class Kind(NamedTuple):
    """A kind of objects; `fields` are those that a field selector may name besides the name."""

    api_version: str
    name: str
    is_namespaced: bool
    fields: tuple[str, ...] = ()
    has_status: bool = False

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]


KINDS = {
    "nodes": Kind("v1", "Node", is_namespaced=False, has_status=True),
    "pods": Kind("v1", "Pod", True, ("spec.nodeName", "status.phase"), has_status=True),
    "deviceclasses": Kind(RESOURCE_GROUP, "DeviceClass", is_namespaced=False),
    "resourceclaims": Kind(RESOURCE_GROUP, "ResourceClaim", True, has_status=True),
    "resourceclaimtemplates": Kind(RESOURCE_GROUP, "ResourceClaimTemplate", is_namespaced=True),
    "resourceslices": Kind(
        RESOURCE_GROUP, "ResourceSlice", False, ("spec.nodeName", "spec.driver")
    ),
}
"""By the name in URLs and RBAC rules."""


class ApiPath(NamedTuple):
    """What a URL path names; `name` is empty for all objects, `namespace` for all namespaces."""

    plural: str
    namespace: str
    name: str
    subresource: str = ""


def place_of(path: str) -> ApiPath | None:
    """Return what a path names, None if there is no such thing here."""
    parts = path.strip("/").split("/")
    if parts[:2] == ["api", "v1"]:
        version, rest = "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 2:
        version, rest = "/".join(parts[1:3]), parts[3:]
    else:
        return None
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = [*rest, "", "", ""]
    kind = KINDS.get(plural)
    if kind is None or kind.api_version != version or any(more):
        return None
    if bool(namespace) and not kind.is_namespaced:
        return None
    if subresource and not (subresource == "status" and kind.has_status):
        return None
    return ApiPath(plural, namespace, name, subresource)
