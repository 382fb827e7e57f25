"""`kubedevices check` for DRA drivers with a trigger, which changes a device."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.drivers.rules import ALL, CATALOGUE
from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import TRIGGERED, DriverTarget
from kubedevices.check.target import Trigger
from tests.check.grpc_driver.inventory import USUAL
from tests.check.grpc_driver_rig import FAST, grpc_driver, with_needs
from tests.check.our_driver import OUR_DRIVER, PLACES
from tests.check.rig import found

AWAY = USUAL.replace("gpu-1 ", "")
MANY = "a b c " + " ".join(f"d{number}" for number in range(130))


@pytest.mark.parametrize(
    ("after", "status"),
    [(None, "pass"), (AWAY, "pass"), (USUAL, "skip")],
    ids=["tainted", "away", "no-change"],
)
async def test_what_a_trigger_changes_is_judged(
    short_dir: Path, after: str | None, status: str
) -> None:
    """One bad device: its slice alone is written, and it comes back after the undo."""
    target = grpc_driver(short_dir / "devices", after=after)
    chosen = [CATALOGUE.find(f"slices.{name}") for name in ("change-one", "unhealthy")]
    results = (await run_driver(target, chosen, replace(FAST, change=5))).results
    assert {each.status.value for each in results} == {status}, [e.verdict for e in results]
    assert (short_dir / "devices").read_text() == f"{USUAL}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "rules"),
    [
        ("a b! c", ("slices.change-one", "slices.unhealthy", "health.recovers", "health.message")),
        ("a c", ("slices.unhealthy", "unprepare.device-gone")),
        ("", ("slices.empty",)),
        (MANY, ("slices.generation", "slices.many")),
    ],
    ids=["tainted", "away", "empty", "many"],
)
async def test_our_driver_keeps_the_rules_with_a_trigger(
    short_dir: Path, after: str, rules: tuple[str, ...]
) -> None:
    """The devices a, b and c become others; no rule fails, and those pass that this concerns."""
    file = short_dir / "devices"
    file.write_text("a b c")
    scanner = ("tests.check.file_scanner:FromFile", "--domain", "example.com")
    words = ("run", *scanner, "--mode", "dra", "--arg", f"file={file}", *PLACES)
    step = "echo '{}' > {}.new && mv {}.new {}"  # a scan never sees half of the file
    trigger = Trigger(step.format(after, *[file] * 3), undo=step.format("a b c", *[file] * 3))
    target = DriverTarget((*OUR_DRIVER, *words), trigger=trigger)
    chosen = with_needs(*(rule.id for rule in ALL if rule.track == TRIGGERED))
    results = (await run_driver(target, chosen, replace(FAST, change=5))).results
    passed = {each.check.id for each in results if each.status.value == "pass"}
    assert {*rules} <= passed, [each.verdict for each in results]
    assert "fail" not in found(results).values(), found(results)
