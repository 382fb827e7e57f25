"""Whether a node is selected by a ResourceSlice or a device. Pure.

Rules of k8s.io/component-helpers, `scheduling/corev1/nodeaffinity`: a selector matches if one
of its terms does, and a term if all its requirements do. An empty term matches nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kubedevices.values.scheduling.kinds import Object


def is_on_node(spec: Mapping[str, Any], node: Object) -> bool:
    """Return whether a slice's or device's `nodeName`, `allNodes` or `nodeSelector` fits."""
    if name := spec.get("nodeName"):
        return bool(name == node["metadata"]["name"])
    if spec.get("allNodes"):
        return True
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return any(_matches_term(each, node) for each in terms)


def _matches_term(term: Mapping[str, Any], node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    wanted = [
        *((each, labels) for each in term.get("matchExpressions") or ()),
        *((each, fields) for each in term.get("matchFields") or ()),
    ]
    return bool(wanted) and all(_fits(each, values) for each, values in wanted)


def _fits(requirement: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    found, given = values.get(requirement["key"]), requirement.get("values") or []
    compared: dict[str, Callable[[], bool]] = {
        "In": lambda: found in given,
        "NotIn": lambda: found not in given,
        "Exists": lambda: found is not None,
        "DoesNotExist": lambda: found is None,
        "Gt": lambda: _number(found) is not None and _number(found) > _number(given[0]),
        "Lt": lambda: _number(found) is not None and _number(found) < _number(given[0]),
    }
    return compared[requirement["operator"]]()


def _number(text: str | None) -> Any:
    try:
        return int(text or "")
    except ValueError:
        return None
