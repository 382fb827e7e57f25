"""The kinds of objects, their URL paths and field selectors. Pure."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kubedevices.errors import ApiRefused

Object = dict[str, Any]

_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
"""Fields that a field selector may name for every kind."""

RESOURCE_GROUP = "resource.k8s.io/v1"


class Kind(NamedTuple):
    """A kind of objects; `fields` are the further fields that a field selector may name."""

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


def field_selector(plural: str, text: str) -> Callable[[Object], bool]:
    """Return a function that tells whether a selector such as `a=b,c!=d` matches an object.

    Raises `ApiRefused` with status 400 for an unknown field.
    """
    terms: list[tuple[str, str, bool]] = []
    for term in filter(None, text.split(",")):
        key, _, value = term.partition("=")
        is_equal = not key.endswith("!")
        key, value = key.removesuffix("!"), value.removeprefix("=")
        if key not in (*_COMMON_FIELDS, *KINDS[plural].fields):
            problem = f'field label not supported: "{key}"'
            raise ApiRefused(f"list {plural}", 400, "BadRequest", problem)
        terms.append((key, value, is_equal))
    return lambda found: all((_value(found, key) == value) == equal for key, value, equal in terms)


def _value(found: Object, key: str) -> str:
    value: object = found
    for part in key.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)
