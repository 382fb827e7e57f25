"""Adds conditions for nodes to an affinity of the admin. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODES = ("nodeAffinity", _REQUIRED)
_TERMS = (*_NODES, "nodeSelectorTerms")


def shape_problem(affinity: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """Return the path at which `with_conditions` cannot use an affinity, and the reason."""
    value: Any = affinity
    kinds = ((dict, "keys and values"), (dict, "keys and values"), (list, "a list"))
    for depth, (name, (kind, words)) in enumerate(zip(_TERMS, kinds, strict=True), 1):
        value = value.get(name)
        if value is None:
            return None
        if not isinstance(value, kind):
            return _TERMS[:depth], f"must be {words}, as in a pod"
    for term in value:
        fields = ("matchExpressions", "matchFields")
        if not isinstance(term, dict) or not all(
            isinstance(term.get(each), list | None) for each in fields
        ):
            return _TERMS, "must be a list of {matchExpressions: [...]}, as in a pod"
    return None


def with_conditions(
    affinity: dict[str, Any], conditions: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return an affinity with `conditions` added to each of its nodeSelectorTerms.

    Kubernetes accepts a node that matches any of the terms, so every term needs the conditions. An
    empty term matches no node; with conditions it would match some, so empty terms are dropped.
    """
    of_nodes = affinity.get("nodeAffinity") or {}
    given = (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    terms = [each for each in given if each.get("matchExpressions") or each.get("matchFields")]
    if not conditions or (given and not terms):
        return affinity
    found = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *conditions]}
        for term in terms or [{}]
    ]
    return {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: {"nodeSelectorTerms": found}}}
