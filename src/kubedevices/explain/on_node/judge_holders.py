"""Finds a device that two containers hold, which no API can see. Pure.

A kubelet counts IDs, so two IDs of one device are two devices for it: two resources have the
device, or two plugins. Only `expose` tells which file each of its IDs means. The answers of other
plugins are no proof against each other: many containers may share /dev/kvm, or the parts of one
GPU. Replicas of one device share it on purpose.

A kubelet does not compare the two device APIs either: a device plugin and a driver of kubedevices
with the same domain name the same device by type and ID.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kubedevices.dra.names import may_be_label
from kubedevices.explain.finding import Finding, Step
from kubedevices.explain.on_node.driver_facts import ClaimFacts, DriverFacts
from kubedevices.explain.on_node.facts import Allocation, ResourceState
from kubedevices.rules.replicas import device_of

Device = tuple[str, str]
"""Resource and ID, without the number of a replica."""


def judge_holders(
    allocations: Iterable[Allocation],
    known_files: Mapping[Device, str],
    pods: Mapping[str, str],
    drivers: Iterable[DriverFacts] = (),
) -> Iterator[Finding]:
    """Yield a problem for each device file of `known_files` with holders under several IDs.

    `known_files` has the device file of each ID of `expose`; `pods` the names of pods by UID.
    `drivers` hold devices by claims.
    """
    of_file: dict[str, dict[Device, set[str]]] = {file: {} for file in known_files.values()}
    for each in allocations:
        pod = pods.get(each.pod_uid, each.pod_uid)
        devices = [(each.resource, device_of(device_id)) for device_id in each.device_ids]
        of_expose = {device: known_files[device] for device in devices if device in known_files}
        answered = {(spec.host_path, devices[0]) for spec in each.response.devices if devices}
        told = {(file, device) for device, file in of_expose.items()} or answered
        for file, device in told:
            if file in of_file:
                of_file[file].setdefault(device, set()).add(f"{pod} ({each.container})")
    for device, file in known_files.items():
        for claim in _claims_with(device, drivers):
            of_file[file].setdefault(device, set()).add(f"claim {claim.name}")
    for file, found in sorted(of_file.items()):
        if len(found) > 1:
            listed = "; ".join(
                f"{resource}/{name} by {', '.join(sorted(holders))}"
                for (resource, name), holders in sorted(found.items())
            )
            yield Step.HELD.problem(
                file,
                f"one device is held under {len(found)} IDs: {listed}",
                "end all but one of these pods, and offer the device in one resource of one plugin",
            )


def judge_both_apis(
    resources: Iterable[ResourceState],
    allocations: Iterable[Allocation],
    drivers: Sequence[DriverFacts],
) -> Iterator[Finding]:
    """Yield a problem for each device that a pod has by a device plugin, and a claim too.

    If the device files of both are known and none is the same, these are two devices with one name.
    """
    files: dict[Device, set[str]] = {}
    for each in allocations:
        for device_id in each.device_ids:
            found = files.setdefault((each.resource, device_of(device_id)), set())
            found |= {spec.host_path for spec in each.response.devices}
    held: dict[Device, set[str]] = {}
    for state in resources:
        for device_state in state.devices:
            if device_state.held_by:
                device = state.name, device_of(device_state.device_id)
                held.setdefault(device, set()).update(device_state.held_by)
    for device, holders in held.items():
        known = files.get(device, set())
        for claim in _claims_with(device, drivers):
            if known and claim.files and not known & claim.files:
                continue
            by_claim = f", held by {', '.join(claim.held_by)}" if claim.held_by else ""
            yield Step.HELD.problem(
                "/".join(device),
                f"one device is held in both device APIs: by the device plugin for "
                f"{', '.join(sorted(holders))}; by claim {claim.name}{by_claim}",
                "end one of the two pods, and serve the device in one API: two processes with "
                "different settings offer it",
            )


def _claims_with(device: Device, drivers: Iterable[DriverFacts]) -> Iterator[ClaimFacts]:
    """Yield the claims of our driver of this domain that have a device, by its name."""
    domain, _, device_type = device[0].partition("/")
    for driver in drivers:
        if driver.name == domain and driver.files is not None:
            for claim in driver.claims:
                labels = (part.device for part in claim.parts if not part.is_admin)
                if any(may_be_label(each, device_type, device[1]) for each in labels):
                    yield claim
