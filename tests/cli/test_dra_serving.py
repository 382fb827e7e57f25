"""`--mode dra` of the verbs that serve."""

import subprocess
import sys
from pathlib import Path

import pytest

from kubedevices.cli import main
from kubedevices.cli.shared import serving
from tests.command_line import CommandLine

SIMULATE = ["simulate", "--resource-name", "example.com/gpu"]


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--mode dra --socket-dir x", "--socket-dir has no effect with --mode dra"),
        ("--mode dra --registration watch", "--registration has no effect with --mode dra"),
        ("--mode=dra --pod-resources s", "--pod-resources has no effect with --mode dra"),
        ("--kubelet-dir x", "--kubelet-dir has no effect with --mode device-plugin"),
        ("--kube-node x", "--kube-node has no effect with --mode device-plugin"),
        ("--dra-metadata", "--dra-metadata has no effect with --mode device-plugin"),
        ("--dra-devices gpu", "--dra-devices needs --mode split, --mode-file or --mode-label"),
        ("--mode-file f --mode-label l --kubeconfig {d}/none", "in a file or in a label"),
        ("--mode-label l", "the address of the API server is unknown: give --kubeconfig FILE"),
        ("--mode split --kubeconfig {d}/none", "mode split needs dra_devices"),
        ("--mode dra", "the address of the API server is unknown: give --kubeconfig FILE"),
        ("--mode dra --kube-node Node_1", "'Node_1' cannot be the name of a node"),
        ("--mode dra --kubeconfig {d}/none", "none"),
    ],
)
def test_contradicting_mode_options_are_refused(
    words: str,
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, without a traceback, and before the host is looked at."""
    monkeypatch.setattr(serving, "check_socket_dir", lambda _: pytest.fail("looked at the host"))
    assert main([*SIMULATE, *words.format(d=tmp_path).split()]) in (2, 3)
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--mode dra --pod-resources s", "--pod-resources has no effect with --mode dra"),
        ("--kube-node x", "--kube-node has no effect with --mode device-plugin"),
        ("--dra-metadata", "--dra-metadata has no effect with --mode device-plugin"),
        ("--mode dra", "the address of the API server is unknown: give --kubeconfig FILE"),
        ("--mode dra --kube-node Node_1", "'Node_1' cannot be the name of a node"),
    ],
)
def test_a_proxy_without_what_a_driver_needs_ends_at_once(
    words: str, problem: str, tmp_path: Path, cli: CommandLine
) -> None:
    """Before a plugin registers."""
    places = [f"--{name}-dir={tmp_path / name}" for name in ("plugin", "state")]
    assert problem in cli("proxy", *places, *words.split(), code=2).err
    assert not [*tmp_path.iterdir()]


def test_the_error_names_the_missing_extra(
    monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """h11 is installed by those who want a driver."""
    monkeypatch.setitem(sys.modules, "h11", None)
    for name in ("driver", "api_client", "publisher"):
        monkeypatch.delitem(sys.modules, f"kubedevices.dra.{name}", raising=False)
    assert "pip install 'kubedevices[dra]'" in cli(*SIMULATE, "--mode", "dra", code=2).err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", False),
        ("--mode dra", True),
        ("--mode=split", True),
        ("--mode-file /nowhere/mode", True),
        ("--mode-file=/nowhere/mode", True),
    ],
)
def test_a_mode_that_may_need_the_api_server_loads_tls(words: str, expected: bool) -> None:
    """Also where the mode changes only later; a device plugin saves the memory."""
    program = (
        "import sys\nfrom kubedevices.cli import main\ncode = main(sys.argv[1:])\n"
        "import asyncio.sslproto\nprint(code, asyncio.sslproto.ssl is not None)"
    )
    arguments = [*SIMULATE, *words.split(), "--preset", "none"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"2 {expected}\n"
