"""`kubedevices check` for DRA drivers with a trigger, which changes a device."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.drivers.rules import ALL, CATALOGUE
from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import TRIGGERED, DriverTarget
from kubedevices.check.target import Trigger
from tests.check.defective_driver import DEFECTS
from tests.check.test_drivers import LONG, PLACES, PROGRAM, with_needs

MANY = "a b c " + " ".join(f"d{number}" for number in range(130))
AFTER = {
    "unprepare.device-gone": "a c",
    "slices.empty": "",
    "slices.generation": MANY,
    "slices.many": MANY,
}
"""Devices after the trigger; for other rules the second is bad."""

NAMES = [name for name in DEFECTS if CATALOGUE.find(name).track == TRIGGERED]


def triggered(file: Path, defect: str = "none", *more: str, after: str = "a b! c") -> DriverTarget:
    """Return a driver with the devices a, b and c, which the trigger replaces by `after`."""
    file.write_text("a b c")
    scanner = ("tests.check.file_scanner:FromFile", "--domain", "example.com")
    words = ("run", *scanner, "--mode", "dra", "--arg", f"file={file}", *more)
    step = "echo '{}' > {}.new && mv {}.new {}"  # a scan never sees half of the file
    trigger = Trigger(step.format(after, *[file] * 3), undo=step.format("a b c", *[file] * 3))
    return DriverTarget((*PROGRAM, defect, *words, *PLACES), trigger=trigger)


@pytest.mark.parametrize(
    ("defect", "more", "after", "statuses"),
    [
        ("none", (), "a b! c", ["pass", "pass"]),
        ("none", (), "a c", ["pass", "pass"]),
        ("none", (), "a b c", ["skip", "skip"]),
        ("none", ("--arg", "is_sticky=yes"), "a b! c", ["pass", "fail"]),
        ("makes-slices-anew", (), "a b! c", ["warn", "pass"]),
    ],
    ids=["tainted", "away", "no-change", "taint-stays", "slices-anew"],
)
async def test_what_a_trigger_changes_is_judged(
    short_dir: Path, defect: str, more: tuple[str, ...], after: str, statuses: list[str]
) -> None:
    """One bad device: its slice alone is written, and it comes back after the undo."""
    target = triggered(short_dir / "devices", defect, *more, after=after)
    chosen = [CATALOGUE.find(f"slices.{name}") for name in ("change-one", "unhealthy")]
    results = (await run_driver(target, chosen, replace(LONG, change=5))).results
    assert [each.status.value for each in results] == statuses, [e.verdict for e in results]
    assert (short_dir / "devices").read_text() == "a b c\n"


@pytest.mark.slow
@pytest.mark.parametrize("rule", NAMES)
async def test_a_triggered_defect_is_found_by_its_rule(rule: str, short_dir: Path) -> None:
    """Others may warn, but do not fail; a driver without defect breaks none of them."""
    chosen = with_needs(rule, *(each.id for each in ALL if each.track == TRIGGERED))
    for defect in ("none", rule):
        target = triggered(short_dir / "devices", defect, after=AFTER.get(rule, "a b! c"))
        results = (await run_driver(target, chosen, replace(LONG, change=5))).results
        found = {each.check.id: each.status.value for each in results}
        texts = [(each.check.id, each.verdict) for each in results]
        wanted = "pass" if defect == "none" else CATALOGUE.find(rule).severity.value
        assert found.pop(rule) == wanted, texts
        assert "fail" not in found.values(), texts
