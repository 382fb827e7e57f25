"""`kubectl devices`: the installed command `kubectl-devices`."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from kubedevices.cli.kubectl_devices import main
from kubedevices.cli.shared.cluster_client import usual_kubeconfig
from tests.explain.cluster_rig import DRIVER, SmallCluster


def test_the_command_is_installed() -> None:
    """Kubectl runs a program of this name from the PATH."""
    command = Path(sysconfig.get_path("scripts")) / "kubectl-devices"
    done = subprocess.run(
        [command, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("usage: kubectl devices [OPTIONS] [RESOURCE|DRIVER]\n")


@pytest.mark.parametrize("words", [[], ["explain"]])
def test_its_help_names_it_as_kubectl_does(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    called = " ".join(["kubectl devices", *words])
    assert shown.startswith(f"usage: {called} ")
    assert f"\n  {called}" in shown.partition("\nexamples:")[2]
    assert "kubedevices" not in shown.partition("\nexamples:")[2]


def test_a_misspelt_explain_is_no_resource(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explian", "pod", "train-0"]) == 2
    assert capsys.readouterr().err == (
        "kubedevices: 'explian' is no command, resource or driver, did you mean 'explain'?\n"
    )


@pytest.mark.parametrize("verb", ["cordon", "uncordon"])
def test_a_device_is_cordoned_on_its_node(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error has the command."""
    assert main([verb, "example.com/gpu/g0", "--reason", "a fan"]) == 2
    said = capsys.readouterr().err
    assert f" -- kubedevices {verb} example.com/gpu/g0 --reason 'a fan'`" in said
    assert "kubectl debug node/NODE" in said


async def test_it_lists_the_devices_of_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And explains a pod of `--namespace`; the file is the one that kubectl would use."""
    async with SmallCluster().running() as cluster:
        cluster.hold("node1", "bert", namespace="ml")
        home = tmp_path / ".kube"
        home.mkdir()
        (home / "config").write_text(cluster.kubeconfig())
        shown = [await asked(tmp_path, *words) for words in ((DRIVER,), EXPLAIN, WRONG)]
    assert "ml/bert (claim bert-gpu)" in shown[0]
    assert shown[1].startswith("ok       pod ml/bert: the pod runs on node node1 with ")
    assert shown[2] == "kubedevices: unrecognized arguments: --wide (see kubectl devices --help)\n"


def test_the_file_of_the_home_directory_comes_after_the_variable(tmp_path: Path) -> None:
    """As for kubectl; without the file, a pod's own account is used."""
    home = {"HOME": str(tmp_path)}
    assert usual_kubeconfig(home) is None
    assert usual_kubeconfig({}) is None
    file = tmp_path / ".kube/config"
    file.parent.mkdir()
    file.touch()
    assert usual_kubeconfig(home) == file
    assert usual_kubeconfig({**home, "KUBECONFIG": "other"}) is None


EXPLAIN, WRONG = ("explain", "pod", "bert", "-n", "ml"), ("--wide",)


async def asked(home: Path, *words: str) -> str:
    """Return what the command prints for a user with this home directory."""
    import asyncio

    code = "import sys; from kubedevices.cli.kubectl_devices import main; sys.exit(main())"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return out.decode()
