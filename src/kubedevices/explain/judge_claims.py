"""Judges the claims of DRA drivers: their devices, and why a claim is not prepared. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from kubedevices.errors.words import counted
from kubedevices.explain.facts import DriverFacts, HeldClaim
from kubedevices.explain.finding import Finding, Step, ok, problem, warning


def judge_claims(drivers: Iterable[DriverFacts], domain: str = "") -> Iterator[Finding]:
    """Judge the claims of every driver, or of the driver with the name `domain`."""
    for driver in drivers:
        if domain in ("", driver.name):
            yield from _judge(driver)


def judge_foreign_claims(
    claims: Iterable[HeldClaim], drivers: Sequence[DriverFacts], domain: str = ""
) -> Iterator[Finding]:
    """Name the claims of drivers that are not in `drivers`, or of the driver `domain` only.

    Nothing but the kubelet's answer is known of them, so nothing is wrong with them here.
    """
    ours = {each.name for each in drivers}
    foreign: dict[str, list[HeldClaim]] = {}
    for each in claims:
        if each.driver not in ours and domain in ("", each.driver):
            foreign.setdefault(each.driver, []).append(each)
    for driver, held in foreign.items():
        has = "; ".join(
            f"{each.name} has {', '.join(each.devices)}, held by {', '.join(each.held_by)}"
            for each in held
        )
        yield ok(Step.CLAIM, f"driver {driver}", f"{counted(len(held), 'claim')} in use: {has}")


def _judge(driver: DriverFacts) -> Iterator[Finding]:
    at = f"driver {driver.name}"
    ready = [each for each in driver.claims if each.is_ready]
    if not driver.is_listening and driver.claims:
        yield problem(
            Step.CLAIM,
            at,
            f"the driver does not run, but has {counted(len(driver.claims), 'prepared claim')}: "
            "their pods cannot end",
            "start the driver again: a pod ends when the driver has unprepared its claims",
        )
    elif not driver.is_listening and driver.has_slices:
        yield warning(
            Step.CLAIM,
            at,
            "the driver does not run; the kubelet deletes its ResourceSlices after 30 seconds",
            "start the driver again",
        )
    else:
        held = "; ".join(f"{each.name} has {', '.join(each.devices)}" for each in ready)
        yield ok(Step.CLAIM, at, f"{counted(len(ready), 'claim')} prepared{held and f': {held}'}")
    for claim in driver.claims:
        if claim.lacks_file:
            yield problem(
                Step.CLAIM,
                at,
                f"{claim.name} is prepared, but its CDI file is missing: its containers do "
                "not start",
                "a driver that runs writes the file again within a second: see its log",
            )
    unused = [each for each in driver.claims if each.is_unused]
    for claim in unused:
        yield warning(
            Step.CLAIM,
            at,
            f"{claim.name} is prepared and has {', '.join(claim.devices)}, but the kubelet has no "
            "container with this claim",
            "if its pod is gone, the driver asks the API server and frees the devices within "
            "minutes; to free them now:",
            f"kubedevices release --claim {claim.name}",
        )
    for each in driver.refused:
        holder = next((claim for claim in unused if f" {claim.name} " in each.reason), None)
        advice = "the kubelet tries again by itself; the events of the pod have the same reason"
        command = f"kubectl --namespace {each.namespace} describe resourceclaim {each.name}"
        if holder is not None:
            advice = f"no container has {holder.name}: if its pod is gone, free its devices"
            command = f"kubedevices release --claim {holder.name}"
        yield problem(
            Step.CLAIM,
            at,
            f"{each.namespace}/{each.name} is not prepared: {each.reason}",
            advice,
            command,
        )
