"""Which pods would hang without a DRA driver, by objects of the API. Pure.

A kubelet ends a pod with a claim only after the driver has unprepared the claim.
"""

import posixpath
from collections.abc import Collection, Iterable
from typing import Any

from kubedevices.manifests.volumes import OF_DRIVER


def drivers_of(daemon_sets: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the drivers that DaemonSets of kubedevices run."""
    return sorted(
        {
            posixpath.basename(volume["hostPath"]["path"])
            for each in daemon_sets
            if each["kind"] == "DaemonSet"
            for volume in each["spec"]["template"]["spec"].get("volumes") or ()
            if OF_DRIVER.fullmatch(volume["name"]) and "hostPath" in volume
        }
    )


def holders(claims: Iterable[dict[str, Any]], drivers: Collection[str]) -> list[str]:
    """Return the pods that use a claim with a device of `drivers`, such as `lab/pod`."""
    found = set()
    for claim in claims:
        status = claim.get("status") or {}
        devices = (status.get("allocation") or {}).get("devices") or {}
        if any(each["driver"] in drivers for each in devices.get("results") or ()):
            users = [each for each in status.get("reservedFor") or () if each["resource"] == "pods"]
            found |= {f"{claim['metadata']['namespace']}/{user['name']}" for user in users}
    return sorted(found)
