"""`kubedevices check --parameters`: what a driver does with valid parameters."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import DriverTarget
from kubedevices.cli import main
from tests.check.grpc_driver.defects import rule_of
from tests.check.grpc_driver_rig import FAST, PARAMETERS, grpc_driver, with_needs
from tests.check.our_driver import OUR_DRIVER, PLACES

FILE = """\
{apiVersion: grpc.example.com/v1, kind: DeviceConfig, mode: safe}
---
{apiVersion: grpc.example.com/v1, kind: DeviceConfig, mode: fast}
"""
SETS = tuple({"apiVersion": "example.com/v1", "watts": watts} for watts in (200, 300))
RULES = ("prepare.config-order", "prepare.config-strict", "prepare.subrequest")
RIGHT = {
    "prepare.config-order": ("pass", "B counts in 7 forms"),
    "prepare.config-strict": ("pass", "refused: kind, unknown field, version, wrong type"),
    "prepare.subrequest": ("pass", "answered for gpu, with parameters for gpu and for gpu/big"),
}


async def found_in(target: DriverTarget) -> dict[str, tuple[str, str]]:
    """Return status and evidence of the rules about parameters."""
    results = (await run_driver(target, with_needs(*RULES), FAST)).results
    return {
        each.check.id: (each.status.value, each.verdict.evidence)
        for each in results
        if each.check.id in RULES
    }


async def test_our_driver_applies_its_parameters() -> None:
    """In each form."""
    words = ("run", "tests.check.tuned_scanner:Tuned", "--domain", "example.com", "--mode", "dra")
    target = DriverTarget((*OUR_DRIVER, *words, *PLACES), parameters=SETS)
    assert await found_in(target) == RIGHT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "words"),
    [
        ("prepare.config-order", "class A, claim B"),
        ("prepare.config-order/first-wins", "A for all, then B for the request"),
        ("prepare.subrequest/parent-ignored", "parameters for gpu do not count"),
        ("prepare.config-strict/unknown-field", "unknown field noSuchField"),
        ("prepare.config-strict/any-version", "another version was accepted"),
    ],
)
async def test_a_defect_in_parameters_is_named(short_dir: Path, defect: str, words: str) -> None:
    """By its rule alone."""
    found = await found_in(grpc_driver(short_dir / "devices", defect))
    assert words in found.pop(rule_of(defect))[1]
    assert {each[0] for each in found.values()} == {"pass"}, found


async def test_without_parameters_the_rule_is_skipped(short_dir: Path) -> None:
    """And says what it needs."""
    found = await found_in(replace(grpc_driver(short_dir / "devices"), parameters=()))
    assert found["prepare.config-order"][0] == "skip"
    assert "--parameters FILE" in found["prepare.config-order"][1]


async def test_parameters_without_an_effect_are_not_judged(short_dir: Path) -> None:
    """Nobody could tell which of them counts."""
    same = (PARAMETERS[0], PARAMETERS[0])
    found = await found_in(replace(grpc_driver(short_dir / "devices"), parameters=same))
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
    command = grpc_driver(short_dir / "devices").command
    options = ["--only", "prepare.config-order", "--parameters", str(file), "--show-requests"]
    assert main(["check", *options, "-o", "json", "--", *command]) == 0
    document = json.loads(capsys.readouterr().out)
    (check,) = document["checks"]
    assert check["evidence"] == "B counts in 7 forms"
    claims = "GET /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/NAME"
    assert document["requests"][claims] > 7
    options = ["--only", "register.info", "--show-requests"]
    assert main(["check", *options, "--", *command]) == 0
    assert "  1  GET /api/v1/nodes/check-node" in capsys.readouterr().out
