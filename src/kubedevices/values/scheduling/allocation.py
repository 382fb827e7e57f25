"""The allocation in the status of a claim, from the chosen devices. Pure.

Rules of k8s.io/dynamic-resource-allocation 1.36, `structured/internal/incubating`.
"""

from collections.abc import Sequence

from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.wishes import ChosenDevice, NotAllocatable, Wish

_SHARE_PREFIX = "00000000-0000-4000-8000-"


def allocation_of(
    claim: Object, found: Sequence[ChosenDevice], wishes: Sequence[Wish], node_name: str, share: int
) -> Object:
    """Return `status.allocation`; `share` is the number of the last share."""
    results = [_result(each, share + number) for number, each in enumerate(found, 1)]
    config = _config(claim, wishes)
    made: Object = {"devices": {"results": results, **({"config": config} if config else {})}}
    if selector := _node_selector(found, node_name):
        made["nodeSelector"] = selector
    return made


def share_number(result: Object) -> int:
    """Return the number in a share ID that was made here, 0 for all others."""
    prefix, _, number = result.get("shareID", "").rpartition("-")
    return int(number) if f"{prefix}-" == _SHARE_PREFIX else 0


def _result(chosen: ChosenDevice, share: int) -> Object:
    wish, offered = chosen.wish, chosen.offered
    made: Object = {"request": wish.name, "driver": offered.driver, "pool": offered.pool}
    made["device"] = offered.device["name"]
    if wish.is_admin:
        made["adminAccess"] = True
    if chosen.consumed is not None:
        made["shareID"] = f"{_SHARE_PREFIX}{share:012}"
        if chosen.consumed:
            made["consumedCapacity"] = dict(chosen.consumed)
    if tolerations := wish.spec.get("tolerations"):
        made["tolerations"] = tolerations
    return made


def _config(claim: Object, wishes: Sequence[Wish]) -> list[Object]:
    """Return the configuration for the chosen alternatives: classes once, then the claim."""
    classes: dict[str, tuple[list[str], list[Object]]] = {}
    for wish in wishes:
        spec = wish.found_class.get("spec") or {}
        names, _ = classes.setdefault(wish.spec["deviceClassName"], ([], spec.get("config") or []))
        names.append(wish.name)
    made = [
        {"source": "FromClass", "requests": names, **each}
        for names, found in classes.values()
        for each in found
    ]
    chosen = {name for wish in wishes for name in (wish.name, wish.name.partition("/")[0])}
    for each in claim["spec"].get("devices", {}).get("config") or ():
        wanted = each.get("requests") or ()
        times = sum(bool({wish.name, wish.name.partition("/")[0]} & {*wanted}) for wish in wishes)
        if not wanted or chosen.intersection(wanted):
            made += [{"source": "FromClaim", **each}] * (times if wanted else 1)
    return made


def _node_selector(found: Sequence[ChosenDevice], node_name: str) -> Object | None:
    """Return on which nodes the devices can be used; None for all nodes."""
    terms: dict[str, list[Object]] = {"matchFields": [], "matchExpressions": []}
    for each in found:
        spec, device = each.offered.spec, each.offered.device
        where = device if spec.get("perDeviceNodeSelection") else spec
        if where.get("nodeName") or device.get("bindsToNode"):
            field_ = {"key": "metadata.name", "operator": "In", "values": [node_name]}
            return {"nodeSelectorTerms": [{"matchFields": [field_]}]}
        wanted = (where.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
        if len(wanted) > 1:
            raise NotAllocatable(f"unsupported nodeSelector of a slice with {len(wanted)} terms")
        for term in wanted:
            for kind, requirements in term.items():
                terms[kind] += [one for one in requirements if one not in terms[kind]]
    kept = {kind: requirements for kind, requirements in terms.items() if requirements}
    return {"nodeSelectorTerms": [kept]} if kept else None
