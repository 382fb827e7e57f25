"""Decides which repairs of a node are safe, and for which a person has to decide. Pure.

A repair changes only state of kubedevices: a claim that our driver has prepared, a file that it
wrote, its socket, and the list of cordoned devices. For the state of others there is a command.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubedevices.dra.names import may_be_label
from kubedevices.errors.safe_text import shell_line
from kubedevices.errors.words import some_of
from kubedevices.explain.on_node.commands import FIND_PODS, release_of, restart_of
from kubedevices.explain.on_node.driver_facts import ClaimFacts, DraFacts, DriverFacts
from kubedevices.explain.on_node.facts import RegistrySocket, ResourceFacts, ResourceState
from kubedevices.explain.on_node.join_claims import is_dead, is_ours
from kubedevices.rules.replicas import device_of
from kubedevices.values.proxied_plugin import DeviceReason

_RESTART = "systemctl restart"


class Action(enum.StrEnum):
    """What `do_repairs` can do; `NONE` is for a person."""

    NONE = "none"
    UNPREPARE = "unprepare"
    REMOVE_FILE = "remove file"
    REMOVE_SOCKET = "remove socket"
    UNCORDON = "uncordon"


@dataclass(frozen=True, slots=True)
class Repair:
    """What helps, `why` it is safe, what `changes`, and the command that does the same.

    Without an `action` a person has to decide, and `why` says on what. `about` is a driver or a
    resource; `target` is what the action is for.
    """

    what: str
    why: str
    changes: str
    command: str
    about: str
    action: Action = Action.NONE
    target: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Whether `--yes` does it."""
        return self.action is not Action.NONE

    def concerns(self, subject: str) -> bool:
        """Whether it is about this resource or driver; everything is about an empty subject."""
        return not subject or subject in (self.about, self.about.partition("/")[0])

    def as_dict(self) -> Mapping[str, Any]:
        """Return the repair for JSON and YAML; the keys are public."""
        names = ("what", "why", "changes", "command")
        return {name: getattr(self, name) for name in names} | {"automatic": self.is_ours}


@dataclass(frozen=True, slots=True)
class RepairFacts:
    """What the repairs depend on.

    `pods_without_claims` are the pods (namespace, name) for which the kubelet names no claim; None
    if it does not answer. `states` are the resources with all their devices, as far as known.
    """

    dra: DraFacts
    watched: Sequence[RegistrySocket] = ()
    answers: ResourceFacts = field(default_factory=ResourceFacts)
    states: Mapping[str, ResourceState] | None = None
    cordoned: Sequence[DeviceReason] = ()
    units: Sequence[str] = ()
    pods_without_claims: Sequence[tuple[str, str]] | None = None


def find_repairs(seen: RepairFacts) -> Iterator[Repair]:
    """Yield the repairs, those of drivers first."""
    for driver in seen.dra.drivers:
        if not driver.runs and driver.files is not None and (driver.claims or driver.dead):
            yield _start(driver, seen.units)
        for claim in driver.claims:
            if claim.unused:
                yield _unprepare(driver, claim, seen.pods_without_claims)
    yield from _remove_files(seen.dra)
    yield from _remove_sockets(seen)
    yield from _uncordon(seen)


def _start(driver: DriverFacts, units: Sequence[str]) -> Repair:
    command = FIND_PODS
    if len(units) == 1:
        command = f"{_RESTART} {units[0]}"
    elif units:
        command = "systemctl status 'kubedevices-*'"
    return Repair(
        f"start the driver {driver.name} again",
        "only a person knows why it ended: its log says it",
        "it unprepares the claims of pods that end, and publishes its devices",
        command,
        driver.name,
    )


# ---------------------------------------------------------------- claims


def _unprepare(
    driver: DriverFacts, claim: ClaimFacts, pods: Sequence[tuple[str, str]] | None
) -> Repair:
    what = f"unprepare the claim {claim.name} of the driver {driver.name}"
    devices = ", ".join(claim.devices) or "its devices"
    changes = f"the driver frees {devices} for other claims, and removes its CDI file"
    command = release_of(claim.name)
    if not claim.is_ours:
        why = "the driver is of another vendor; the kubelet calls it again after a restart"
        processes = (each.socket.listener for each in driver.instances if each.socket)
        restart = next((text for each in processes if (text := restart_of(each))), "")
        return Repair(what, why, changes, restart, driver.name)
    if why := _why_not_unprepared(driver, claim, pods):
        return Repair(what, why, changes, command, driver.name)
    if claim.is_forgotten:
        why = f"no container has it, and {claim.unused}; no pod of its namespace can have it"
    else:
        why = f"no container has it, and {claim.unused}"
    return Repair(
        what, why, changes, command, driver.name, Action.UNPREPARE, (driver.name, claim.uid)
    )


def _why_not_unprepared(
    driver: DriverFacts, claim: ClaimFacts, pods: Sequence[tuple[str, str]] | None
) -> str:
    """Return why a person has to decide; empty if nobody can have the claim.

    A kubelet that lost its checkpoint forgets the claims of pods that run, too. Such a pod is one
    for which it names no claim at all.
    """
    if not driver.runs:
        return "the driver does not run: start it first"
    if not claim.is_certain:
        return f"{claim.unused}, but its checkpoint could not be read: is the pod gone?"
    if not claim.is_forgotten:
        return ""
    if pods is None:
        return "the kubelet does not say which pods it has: is the pod gone?"
    namespace = claim.name.partition("/")[0]
    maybe = [f"{each[0]}/{each[1]}" for each in pods if each[0] == namespace]
    if maybe:
        return f"the kubelet may have forgotten that one of these pods has it: {some_of(maybe)}"
    return ""


# ---------------------------------------------------------------- files


def _remove_files(dra: DraFacts) -> Iterator[Repair]:
    for each in dra.leftover:
        driver = dra.by_name.get(each.driver)
        is_known = (
            driver is not None and driver.files is not None
        ) or dra.kubelet.claims is not None
        yield Repair(
            f"remove the CDI file {each.path}",
            f"the driver {each.driver} wrote it, and neither its checkpoint nor the kubelet has "
            "the claim: no container can name its devices"
            if is_known
            else "neither the driver nor the kubelet says which claims there are",
            "runtimes do not read the file any more",
            shell_line(["rm", str(each.path)]),
            each.driver,
            Action.REMOVE_FILE if is_known else Action.NONE,
            (str(each.path),),
        )


def _remove_sockets(seen: RepairFacts) -> Iterator[Repair]:
    names = {each.path: driver.name for driver in seen.dra.drivers for each in driver.dead}
    for each in seen.watched:
        if not is_dead(each):
            continue
        ours = is_ours(each)
        yield Repair(
            f"remove the registration socket {each.path}",
            "no process listens on it, and a driver of kubedevices that starts uses another name"
            if ours
            else "it is not of kubedevices: is its driver or plugin uninstalled?",
            "the kubelet does not dial it any more",
            shell_line(["rm", str(each.path)]),
            names.get(each.path, ""),
            Action.REMOVE_SOCKET if ours else Action.NONE,
            (str(each.path),),
        )


# ---------------------------------------------------------------- cordoned devices


def _uncordon(seen: RepairFacts) -> Iterator[Repair]:
    for each in seen.cordoned:
        if why := _why_gone(each, seen):
            name = f"{each.resource}/{each.id}"
            yield Repair(
                f"uncordon {name} ({each.reason})",
                f"{why}: the entry takes no device from a pod",
                "if the device comes back, new pods may get it",
                shell_line(["kubedevices", "uncordon", name]),
                each.resource,
                Action.UNCORDON,
                (each.resource, each.id),
            )


def _why_gone(entry: DeviceReason, seen: RepairFacts) -> str:
    """Return why a cordoned device does not exist; empty if it does, or if that is not known.

    A kubelet does not list unhealthy devices, and a cordoned device is unhealthy, so only a whole
    list counts: that of a node, of a plugin that was asked, or of a driver's slices.
    """
    if not seen.answers.source or any(each.serves(entry.resource) for each in seen.answers.proxied):
        return ""
    domain, _, device_type = entry.resource.partition("/")
    driver = seen.dra.by_name.get(domain)
    if driver is not None and driver.files is not None:
        labels = driver.files.devices
        device_id = device_of(entry.id)
        if not labels or not driver.runs:
            return ""
        if any(may_be_label(each, device_type, device_id) for each in labels):
            return ""
    state = (seen.states or {}).get(entry.resource)
    if state is not None and entry.resource in seen.answers.resources:
        if state.capacity is None or state.plugin not in (None, "connected"):
            return ""
        listed = {device_of(each.device_id) for each in state.devices}
        listed |= {each.device_id for each in state.devices}
        return "" if entry.id in listed else f"{entry.resource} has no such device"
    if entry.resource in seen.answers.known:
        return ""
    if driver is not None:
        return f"neither a device plugin nor the driver {domain} has the device"
    return f"no device plugin and no driver serves {entry.resource}"
