"""A program is a device plugin or a DRA driver by what it registers."""

import json
import sys
import time
from pathlib import Path

import pytest

from kubedevices.check.drivers import detect as detect_module
from kubedevices.check.drivers.detect import ProgramKind, detect
from kubedevices.cli import main, verb_parser
from kubedevices.cli.find_mistakes import check
from kubedevices.cli.find_mistakes.check_driver import settle_kind
from tests.host_needs import needs

pytestmark = needs("root", "mount")
SIMULATE = f"{sys.executable} -m kubedevices simulate --env-prefix GPU"
DRIVER = f"{SIMULATE} --mode dra --kube-node check-node"


def program(directory: Path, *lines: str) -> str:
    """Return an executable with the usual paths built in: no word tells what it is."""
    file = directory / "program"
    file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((f"exec {SIMULATE}",), {ProgramKind.PLUGIN}),
        ((f"exec {DRIVER}",), {ProgramKind.DRIVER}),
        ((f"{SIMULATE} &", DRIVER), {*ProgramKind}),
        (("exit 3",), set()),
    ],
    ids=["plugin", "driver", "both", "neither"],
)
async def test_what_registers_is_seen(
    short_dir: Path,
    lines: tuple[str, ...],
    kinds: set[ProgramKind],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At kubelet.sock, or in the registry of plugins; a program can be both."""
    if len(kinds) > 1:
        monkeypatch.setattr(detect_module, "_OTHER", 20.0)  # here two processes must start
    assert await detect([program(short_dir, *lines)]) == kinds


@pytest.mark.slow
def test_a_driver_without_a_word_about_it(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rules for drivers run."""
    command = program(short_dir, f"exec {DRIVER}")
    assert main(["check", "--quick", "-o", "json", "--", command]) == 0
    found = {each["id"] for each in json.loads(capsys.readouterr().out)["checks"]}
    assert {"register.info", "prepare.answers"} <= found


def test_a_program_that_is_both_is_checked_twice(
    short_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user says how."""
    monkeypatch.setattr(detect_module, "_OTHER", 20.0)
    lines = (f"{SIMULATE} &", DRIVER)
    assert main(["check", "--", program(short_dir, *lines)]) == 2
    assert "with --device-plugin and with --dra" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "is_driver"),
    [
        (["--dra", "--", "x"], True),
        (["--device-plugin", "--", "x", "{kubeconfig}"], False),
        (["--", "x", "{pod_uid}"], True),
        (["--", "x", "{socket_dir}"], False),
        (["--in-place", "--", "x"], False),
        (["--show-requests", "--", "x"], True),
        (["--only", "slices", "--", "x"], True),
        (["--skip", "life.dies", "--", "x"], False),
        (["/tmp"], False),
    ],
)
def test_what_is_said_is_not_tried(
    words: list[str], is_driver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options, words of the command, and checks that only one kind of program has."""

    async def never(_command: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr(detect_module, "detect", never)
    args = verb_parser(check).parse_args(words)
    settle_kind(args)
    assert args.dra is is_driver


def test_a_quick_run_waits_only_once_for_a_program_that_registers_nothing(
    short_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of its kind begins after that, and says how long it was in all."""
    monkeypatch.setattr(detect_module, "LIMIT", 8.0)  # of 9 s

    async def nothing(_command: object) -> set[object]:
        return set()

    monkeypatch.setattr(detect_module, "detect", nothing)
    began = time.monotonic()
    assert main(["check", "--quick", "--", "sleep", "100"]) == 1
    assert time.monotonic() - began < 9
    assert "nothing called Register within 9 s" in capsys.readouterr().out
