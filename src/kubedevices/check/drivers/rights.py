"""The rights of a driver at the API server: what it used, and what its manifests give it. Pure.

A right is a resource and a verb, as in the rules of a ClusterRole. API groups are not compared: the
resources that a DRA driver uses have names of their own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

ANY = "*"
CLAIMS = "resourceclaims"
_GROUPS = {"nodes": "", "pods": "", "events": "", "leases": "coordination.k8s.io"}
_DRA_GROUP = "resource.k8s.io"


class Right(NamedTuple):
    """For example `resourceslices` and `create`."""

    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def granted_by(objects: Iterable[Any]) -> frozenset[Right]:
    """Return the rights in all roles among Kubernetes objects, as they stand there: also `*`."""
    return frozenset(
        Right(resource, verb)
        for each in _flat(objects)
        if each.get("kind") in ("ClusterRole", "Role")
        for rule in map(_mapping, _list(each.get("rules")))
        for resource in _texts(rule.get("resources"))
        for verb in _texts(rule.get("verbs"))
    )


def guards_slices(objects: Iterable[Any]) -> bool:
    """Whether an admission policy among Kubernetes objects looks at ResourceSlices.

    A ValidatingAdmissionPolicy counts only with a binding; a webhook counts as it is.
    """
    policies, bound = set(), set()
    for each in _flat(objects):
        spec, kind = _mapping(each.get("spec")), each.get("kind")
        if kind == "ValidatingAdmissionPolicy":
            rules = _list(_mapping(spec.get("matchConstraints")).get("resourceRules"))
            if _names_slices(rules):
                policies.add(_mapping(each.get("metadata")).get("name"))
        elif kind == "ValidatingAdmissionPolicyBinding":
            bound.add(spec.get("policyName"))
        elif kind == "ValidatingWebhookConfiguration":
            hooks = map(_mapping, _list(each.get("webhooks")))
            if any(_names_slices(_list(hook.get("rules"))) for hook in hooks):
                return True
    return bool(policies & bound)


def _names_slices(rules: Sequence[Any]) -> bool:
    found = (_texts(_mapping(rule).get("resources")) for rule in rules)
    return any({"resourceslices", ANY} & {*names} for names in found)


def _flat(objects: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects, and those in Lists, as `helm template` and `kubectl -o yaml` print."""
    for each in objects:
        if isinstance(each, dict):
            yield each
            yield from _flat(_list(each.get("items")))


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> Sequence[Any]:
    return found if isinstance(found, list) else ()


def _texts(found: Any) -> list[str]:
    return [each for each in _list(found) if isinstance(each, str)]


def is_granted(right: Right, granted: Iterable[Right]) -> bool:
    """Whether one of the granted rights, which may be `*`, gives `right`."""
    return any(
        each.resource in (right.resource, ANY) and each.verb in (right.verb, ANY)
        for each in granted
    )


def least_role(used: Iterable[Right]) -> list[dict[str, list[str]]]:
    """Return the rules of the smallest ClusterRole that would do."""
    verbs: dict[str, list[str]] = {}
    for each in sorted({*used}):
        verbs.setdefault(each.resource, []).append(each.verb)
    return [
        {"apiGroups": [_GROUPS.get(name, _DRA_GROUP)], "resources": [name], "verbs": found}
        for name, found in verbs.items()
    ]
