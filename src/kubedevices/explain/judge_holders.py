"""Finds a device that two containers hold, which no API can see. Pure.

A kubelet counts IDs, so two IDs of one device are two devices for it: two resources have the
device, or two plugins. Only `expose` tells which file each of its IDs means. The answers of other
plugins are no proof against each other: many containers may share /dev/kvm, or the parts of one
GPU. Replicas of one device share it on purpose.

A kubelet does not compare the two device APIs either: a device plugin and a driver of kubedevices
with the same domain name the same device by type and ID.
"""

from collections.abc import Iterable, Iterator, Mapping

from kubedevices.explain.driver_facts import ClaimFacts, DriverFacts
from kubedevices.explain.facts import Allocation, ResourceState
from kubedevices.explain.finding import Finding, Step, problem
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
    for device, claim in _claimed(drivers):
        if device in known_files:
            of_file[known_files[device]].setdefault(device, set()).add(f"claim {claim.name}")
    for file, found in sorted(of_file.items()):
        if len(found) > 1:
            listed = "; ".join(
                f"{resource}/{name} by {', '.join(sorted(holders))}"
                for (resource, name), holders in sorted(found.items())
            )
            yield problem(
                Step.HELD,
                file,
                f"one device is held under {len(found)} IDs: {listed}",
                "end all but one of these pods, and offer the device in one resource of one plugin",
            )


def judge_both_apis(
    resources: Iterable[ResourceState], drivers: Iterable[DriverFacts]
) -> Iterator[Finding]:
    """Yield a problem for each device that a pod has by a device plugin, and a claim too."""
    held: dict[Device, set[str]] = {}
    for state in resources:
        for each in state.devices:
            if each.held_by:
                holders = held.setdefault((state.name, device_of(each.device_id)), set())
                holders |= {*each.held_by}
    for device, claim in _claimed(drivers):
        if device in held:
            name = "/".join(device)
            by_claim = f", held by {', '.join(claim.held_by)}" if claim.held_by else ""
            yield problem(
                Step.HELD,
                name,
                f"one device is held in both device APIs: by the device plugin for "
                f"{', '.join(sorted(held[device]))}; by claim {claim.name}{by_claim}",
                "end one of the two pods, and serve the device in one API: two processes with "
                "different settings offer it",
            )


def _claimed(drivers: Iterable[DriverFacts]) -> Iterator[tuple[Device, ClaimFacts]]:
    """Yield each device of a claim of our drivers, as the device plugin API names it."""
    for driver in drivers:
        for claim in driver.claims:
            for device_type, device_id in claim.device_ids:
                yield (f"{driver.name}/{device_type}", device_of(device_id)), claim
