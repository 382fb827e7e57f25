"""Claims of DRA drivers: who has what, and why a claim is not prepared. Pure."""

from collections.abc import Iterable, Iterator

from kubedevices.explain.facts import DriverHere
from kubedevices.explain.finding import Finding, Step, ok, problem, warning
from kubedevices.words import counted


def judge_claims(drivers: Iterable[DriverHere], domain: str = "") -> Iterator[Finding]:
    """Follow the claims of every driver, or of the driver `domain`."""
    for driver in drivers:
        if domain in ("", driver.name):
            yield from _judge(driver)


def _judge(driver: DriverHere) -> Iterator[Finding]:
    at = f"driver {driver.name}"
    ready = [each for each in driver.claims if each.is_ready]
    if not driver.is_listening and driver.claims:
        yield problem(
            Step.CLAIM,
            at,
            f"it is away, and {counted(len(driver.claims), 'claim')} of it are prepared: their "
            "pods cannot end",
            "start the driver again: pods give their claims back to it",
        )
    elif not driver.is_listening and driver.has_slices:
        yield warning(
            Step.CLAIM,
            at,
            "it is away; the kubelet deletes its ResourceSlices after 30 seconds",
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
                f"{claim.name} is prepared, and its CDI file is missing: its containers do "
                "not start",
                "the driver writes it again within a second: see its log",
            )
    for each in driver.refused:
        yield problem(
            Step.CLAIM,
            at,
            f"{each.namespace}/{each.name} is not prepared: {each.reason}",
            "the kubelet tries again by itself; the events of the pod have the same reason",
            f"kubectl --namespace {each.namespace} describe resourceclaim {each.name}",
        )
