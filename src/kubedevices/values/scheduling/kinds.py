"""The kinds of objects and their URL paths. Pure."""

from typing import Any, NamedTuple

Object = dict[str, Any]

RESOURCE_GROUP = "resource.k8s.io/v1"

POD_GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
"""What a reservation for a PodGroup has, beside its name and UID."""


class Kind(NamedTuple):
    """A kind of objects; `fields` are the further fields that a field selector may name."""

    api_version: str
    name: str
    is_namespaced: bool
    fields: tuple[str, ...] = ()
    has_status: bool = False

    @property
    def is_shown_deleted(self) -> bool:
        """Whether the answer to a delete is the object, and not a `Status`."""
        return self.name == "Pod" or self.api_version == RESOURCE_GROUP

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]


KINDS = {
    "namespaces": Kind("v1", "Namespace", is_namespaced=False, has_status=True),
    "configmaps": Kind("v1", "ConfigMap", is_namespaced=True),
    "secrets": Kind("v1", "Secret", is_namespaced=True),
    "serviceaccounts": Kind("v1", "ServiceAccount", is_namespaced=True),
    "events": Kind(
        "v1", "Event", True, ("involvedObject.kind", "involvedObject.name", "reason", "type")
    ),
    "leases": Kind("coordination.k8s.io/v1", "Lease", is_namespaced=True),
    "nodes": Kind("v1", "Node", is_namespaced=False, has_status=True),
    "pods": Kind("v1", "Pod", True, ("spec.nodeName", "status.phase"), has_status=True),
    "deviceclasses": Kind(RESOURCE_GROUP, "DeviceClass", is_namespaced=False),
    "resourceclaims": Kind(RESOURCE_GROUP, "ResourceClaim", True, has_status=True),
    "resourceclaimtemplates": Kind(RESOURCE_GROUP, "ResourceClaimTemplate", is_namespaced=True),
    "resourceslices": Kind(
        RESOURCE_GROUP, "ResourceSlice", False, ("spec.nodeName", "spec.driver")
    ),
}
"""The kinds by their plural, the name in URLs and RBAC rules."""


class ApiPath(NamedTuple):
    """A URL path; an empty `name` means all objects, an empty `namespace` all namespaces."""

    plural: str
    namespace: str
    name: str
    subresource: str = ""


def parse_path(path: str) -> ApiPath | None:
    """Return the parts of a URL path, None for a path that this server does not know."""
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
