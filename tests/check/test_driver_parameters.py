"""`kubedevices check --parameters`: what a driver does with valid parameters."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import DriverTarget
from kubedevices.cli import main
from tests.check.test_drivers import LONG, PLACES, PROGRAM, driver, with_needs

FILE = """\
{apiVersion: example.com/v1, watts: 200}
---
{apiVersion: example.com/v1, watts: 300}
"""
SETS = tuple({"apiVersion": "example.com/v1", "watts": watts} for watts in (200, 300))
RULES = ("prepare.config-order", "prepare.config-strict", "prepare.subrequest")


def tuned(defect: str = "none") -> DriverTarget:
    """Return a driver with parameters."""
    words = ("run", "tests.check.tuned_scanner:Tuned", "--domain", "example.com", "--mode", "dra")
    return DriverTarget((*PROGRAM, defect, *words, *PLACES), parameters=SETS)


async def found_in(target: DriverTarget) -> dict[str, tuple[str, str]]:
    """Return status and evidence of the rules about parameters."""
    results = (await run_driver(target, with_needs(*RULES), LONG)).results
    return {
        each.check.id: (each.status.value, each.verdict.evidence)
        for each in results
        if each.check.id in RULES
    }


async def test_a_driver_that_applies_its_parameters() -> None:
    """In each form."""
    found = await found_in(tuned())
    assert found == {
        "prepare.config-order": ("pass", "B counts in 7 forms"),
        "prepare.config-strict": (
            "pass",
            "refused: kind, unknown field, version, wrong type of",
        ),
        "prepare.subrequest": ("pass", "answered for gpu, with parameters for gpu and for gpu/big"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "rule", "status", "words"),
    [
        ("class-wins", "prepare.config-order", "fail", "class A, claim B"),
        ("first-wins", "prepare.config-order", "fail", "A for all, then B for the request"),
        ("ignores-parent", "prepare.subrequest", "fail", "parameters for gpu do not count"),
        ("lenient", "prepare.config-strict", "fail", "unknown field noSuchField"),
        ("any-version", "prepare.config-strict", "warn", "another version was accepted"),
    ],
)
async def test_a_defect_in_parameters_is_found(
    defect: str, rule: str, status: str, words: str
) -> None:
    """By its rule alone."""
    found = await found_in(tuned(defect))
    assert found[rule][0] == status, found
    assert words in found[rule][1]
    assert {each[0] for name, each in found.items() if name != rule} == {"pass"}, found


async def test_without_parameters_the_rule_is_skipped() -> None:
    """And says what it needs."""
    found = await found_in(replace(tuned(), parameters=()))
    assert found["prepare.config-order"][0] == "skip"
    assert "--parameters FILE" in found["prepare.config-order"][1]


async def test_parameters_without_an_effect_are_not_judged() -> None:
    """Nobody could tell which of them counts."""
    found = await found_in(replace(tuned(), parameters=(SETS[0], SETS[0])))
    assert found["prepare.config-order"] == (
        "skip",
        "the parameters A and B give the same CDI edits",
    )


@pytest.mark.parametrize(
    "text", ["a: 1", "a: 1\n---\na: 2\n---\na: 3", "a: 1\n---\nb: 2", "a\n---\nb", "[1"]
)
def test_a_wrong_file_of_parameters(
    text: str, short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It must have two mappings with the same keys."""
    file = short_dir / "parameters.yaml"
    file.write_text(text)
    assert main(["check", "--parameters", str(file), "--dra", "--", "driver"]) == 2
    assert "parameters.yaml" in capsys.readouterr().err


def test_parameters_and_requests_on_the_command_line(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--show-requests` shows what the driver asked, also what this API server does not know."""
    file = short_dir / "parameters.yaml"
    file.write_text(FILE)
    options = ["--only", "prepare.config-order", "--parameters", str(file), "--show-requests"]
    assert main(["check", *options, "-o", "json", "--", *tuned().command]) == 0
    document = json.loads(capsys.readouterr().out)
    (check,) = document["checks"]
    assert check["evidence"] == "B counts in 7 forms"
    claims = "GET /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/NAME"
    assert document["requests"][claims] > 7
    options = ["--only", "register.info", "--show-requests"]
    assert main(["check", *options, "--", *driver("none").command]) == 0
    assert "  1  GET /api/v1/nodes/check-node" in capsys.readouterr().out
