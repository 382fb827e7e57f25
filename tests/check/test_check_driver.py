"""`check_driver`, `DriverCheck` and the fixture `dra_check`: the rules for drivers in a test."""

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from kubedevices.cli import verb_parser
from kubedevices.cli.find_mistakes import check as verb
from kubedevices.cli.find_mistakes.check_driver import driver_check
from kubedevices.errors import UsageError
from kubedevices.testing import DriverCheck, NotConformant, check_driver
from tests.check.grpc_driver_rig import grpc_driver

FEW = ("register.info", "prepare.no-allocation")


def test_each_field_is_an_option_with_the_same_default() -> None:
    """The command line binds its options to this object."""
    args = verb_parser(verb).parse_args(["--dra", "--", "driver", "{node}"])
    assert driver_check(args) == DriverCheck(("driver", "{node}"))
    words = ["--quick", "--only", "prepare", "--manifests", "a", "--manifests", "b"]
    args = verb_parser(verb).parse_args([*words, "--fail-on", "warn", "--", "driver"])
    assert driver_check(args) == DriverCheck(
        ("driver",),
        quick=True,
        only=("prepare",),
        manifests=(Path("a"), Path("b")),
        fail_on="warn",
    )


def test_each_field_has_a_sentence() -> None:
    """A reader of the class need not read the page."""
    (body,) = ast.parse(inspect.getsource(DriverCheck)).body
    assert isinstance(body, ast.ClassDef)
    texts = [
        after.value.value
        for before, after in zip(body.body, body.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    ]
    assert len(texts) == len(fields(DriverCheck))
    assert all(str(each).endswith(".") for each in texts)


def test_a_good_driver(
    dra_check: Callable[[DriverCheck], Sequence[object]], short_dir: Path
) -> None:
    """The fixture returns the results of all rules that were chosen."""
    command = grpc_driver(short_dir / "devices").command
    assert len(dra_check(DriverCheck(command, only=FEW, quick=True))) == len(FEW)


def test_a_driver_with_a_defect(short_dir: Path) -> None:
    """The error is the report; a known finding does not fail."""
    command = grpc_driver(short_dir / "devices", "prepare.no-allocation").command
    check = DriverCheck(command, only=FEW, quick=True)
    with pytest.raises(NotConformant, match=r"FAIL prepare\.no-allocation") as caught:
        check_driver(check)
    assert {each.status.value for each in caught.value.results} == {"pass", "fail"}
    known = short_dir / "known.yaml"
    known.write_text("findings: [{check: prepare.no-allocation, reason: known}]")
    assert len(check_driver(DriverCheck(command, only=FEW, quick=True, expect=known))) == len(FEW)


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (DriverCheck(()), "nothing to check"),
        (DriverCheck(("x",), only=("prepare.repaet",)), "did you mean 'prepare.repeat'"),
        (DriverCheck(("x",), quick=True, long=True), "exclude each other"),
        (DriverCheck(("x",), undo="true"), "--undo needs --trigger"),
        (DriverCheck(("x",), change_timeout=0.0), "more than 0 seconds"),
    ],
)
def test_a_wrong_check(check: DriverCheck, words: str) -> None:
    """Nothing starts."""
    with pytest.raises(UsageError, match=words):
        check_driver(check)
