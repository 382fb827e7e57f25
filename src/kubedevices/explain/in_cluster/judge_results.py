"""Whether the devices that claims have exist, and have one holder. Pure."""

from collections.abc import Iterable

from kubedevices.errors.words import did_you_mean, some_of
from kubedevices.explain.finding import Outcome
from kubedevices.explain.in_cluster.judge_cause import Cause
from kubedevices.explain.in_cluster.objects import (
    ClusterObjects,
    full_name,
    key_of,
    named,
    results_of,
)
from kubedevices.values.scheduling.kinds import Object


def check_holders(cluster: ClusterObjects, claims: Iterable[Object]) -> None:
    """Raise `Cause` if a device of a claim has two holders."""
    for result in (each for claim in claims for each in results_of(claim)):
        if holders := cluster.conflicts.get(key_of(result)):
            raise Cause(
                f"{device_label(result)} has {len(holders)} holders: "
                + "; ".join(map(str, holders)),
                advice="only one of them may have it: delete the pods of the others",
            )


def check_published(cluster: ClusterObjects, claims: Iterable[Object], node: str) -> None:
    """Raise `Cause` if a device of a pod that starts is in no slice.

    A pod that runs keeps its devices while its driver is away, as in an update.
    """
    if "resourceslices" in cluster.unread:
        return
    for result in (each for claim in claims for each in results_of(claim)):
        key = key_of(result)
        if key not in cluster.published:
            who = "no slice has it" if key[0] in cluster.drivers else "its driver has no slice"
            raise Cause(
                f"{device_label(result)} of node {node} does not exist any more: {who}, so the "
                "driver does not run there, or has lost the device",
                advice="start the driver, or delete the pod",
                command=slices_of(key[0]),
            )


def slices_of(driver: str) -> list[str]:
    """Return the command that shows the slices of a driver."""
    return ["kubectl", "get", "resourceslices", "--field-selector", f"spec.driver={driver}"]


def device_label(result: Object) -> str:
    """Return DRIVER/POOL/DEVICE."""
    return "/".join(key_of(result))


def _elsewhere(there: Iterable[Object], namespace: str, name: str) -> str:
    others = [full_name(each) for each in there if each["metadata"]["name"] == name]
    return f"; there is {some_of(others)}" if others else ""


def missing(
    cluster: ClusterObjects, plural: str, there: Iterable[Object], namespace: str, name: str
) -> Cause:
    """Return the cause for a pod or claim that does not exist, or cannot be read."""
    if why := cluster.unread.get(plural):
        return Cause(f"{plural} cannot be read: {why}", result=Outcome.UNKNOWN)
    names = named(each for each in there if full_name(each).startswith(f"{namespace}/"))
    return Cause(
        f"it does not exist{did_you_mean(name, names)}{_elsewhere(there, namespace, name)}",
        command=["kubectl", "--namespace", namespace, "get", plural],
    )
