"""`kubedevices check`."""

import json
import os
import sys
from pathlib import Path

import pytest

from kubedevices.cli import main
from kubedevices.conformance.checks import ALL
from tests.cli.commands import run
from tests.conformance.rig import GOOD_PLUGIN, MUTANT, widgets

QUICK = ("--timeout-scale", "0.1")
UNHURRIED = ("--timeout-scale", "0.3")


def plugin(devices: Path, script: Path = GOOD_PLUGIN, *options: str) -> list[str]:
    """Return the command of a plugin that is told where its directory is."""
    places = ["--device-dir", str(devices), "--socket-dir", "{socket_dir}"]
    return ["--", sys.executable, str(script), *options, *places]


def mutant(devices: Path, mutation: str) -> list[str]:
    return plugin(devices, MUTANT, "--mutation", mutation)


def test_a_good_plugin_exits_0_with_all_reports(short_dir: Path) -> None:
    """JSON on stdout, JUnit and HTML in files; each has the results, and how they were made."""
    junit, html = short_dir / "r.xml", short_dir / "r.html"
    manner = ["--quick", "--one-at-a-time", "--no-registry"]
    with widgets() as devices:
        options = ["--only", "list", "grpc", "--skip", "list.change", "--junit", junit, *manner]
        options += ["--trigger", "true", "--kubelet", "1.36"]
        done = run("check", *UNHURRIED, *options, "--html", html, "-o", "json", *plugin(devices))
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    about = document["about"]
    assert (about["options"], about["trigger"]) == (" ".join(manner), "true")
    assert (about["kubelet"], about["plugins"]) == ("1.36", "one at a time")
    assert f"{os.cpu_count()} processors" in about["machine"]
    ids = {each["id"] for each in document["checks"]}
    quiet = {"list.stays-open", "list.identical", "list.steady"}
    assert quiet == {*document["left_out"]}
    assert not quiet & ids
    assert "list.order" in ids
    assert "grpc.ping" in ids
    assert "list.change" not in ids
    assert not {name for name in ids if not name.startswith(("list.", "grpc."))}
    assert {each["resource"] for each in document["checks"]} == {"example.com/widget"}
    assert 'failures="0"' in junit.read_text()
    assert "list.order" in html.read_text()


def test_a_failure_exits_1_and_is_explained() -> None:
    """Findings come on stderr as they are found; the report on stdout explains them."""
    with widgets() as devices:
        done = run("check", *QUICK, "--only", "list", *mutant(devices, "double-id"))
    assert done.returncode == 1
    assert done.stderr.startswith("fail  list.id-unique  more than once: 'w0::0'")
    assert "mend        Make IDs of what tells the devices apart" in done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]


def test_a_warning_exits_0() -> None:
    """Fragile is no failure."""
    with widgets() as devices:
        done = run("check", *QUICK, "--only", "list", *mutant(devices, "long-id"))
    assert done.returncode == 0
    assert "warn  list.id-length" in done.stdout


def test_a_plugin_that_cannot_be_started_exits_3() -> None:
    """A missing program, and one that ends before it registers, with its last words."""
    done = run("check", "--", "no-such-plugin", "{socket_dir}")
    assert done.returncode == 3
    assert "could not be started: No such file or directory: no-such-plugin" in done.stderr
    done = run("check", "--", "sh", "-c", "echo no licence >&2; exit 4 {socket_dir}")
    assert done.returncode == 3
    assert "exit code" in done.stderr
    assert "no licence" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to check"),
        (["--only", "list.ordr", "--", "x"], "did you mean 'list.order'?"),
        (["--only", "list", "--skip", "list", "--", "x"], "leave no check"),
        (["--timeout-scale", "0", "--", "x"], "0 is not between"),
        (["--html", "/nowhere/r.html", "--", "x"], "does not exist"),
        (["--bind", "/tmp", "--", "x"], "it must read HOST:INSIDE"),
        (["--bind", "/tmp:/run/cdi/x", "--", "x"], "gets a /var/run/cdi of its own already"),
        (["--bind", "/tmp:/x", "/tmp"], "--bind is for plugins that check starts"),
        (["--explain", "list.ordr"], "did you mean 'list.order'?"),
    ],
)
def test_wrong_usage_exits_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what is wrong."""
    assert main(["check", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_fixture_that_is_missing_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    """--bind names a path that must exist."""
    assert main(["check", "--bind", "/no/such/dir:/dev", "--", "x"]) == 3
    assert "/no/such/dir does not exist" in capsys.readouterr().err


def test_without_root_it_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin with fixed paths needs root; the message names both ways out."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["check", "--", "true"]) == 3
    error = capsys.readouterr().err
    assert "only root may mount" in error
    assert "sudo" in error
    assert "{socket_dir}" in error


def test_the_list_has_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` prints ID, severity and rule, or objects."""
    assert main(["check", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(check.id in text and check.rule in text for check in ALL)
    assert main(["check", "--list", "--only", "grpc", "-o", "json"]) == 0
    assert {each["theme"] for each in json.loads(capsys.readouterr().out)} == {"grpc"}


def test_one_check_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """`--explain` prints all there is to say about a check."""
    assert main(["check", "--explain", "life.stream-cancelled"]) == 0
    text = capsys.readouterr().out
    for words in ("(fail)", "rule", "on a node", "#135437", "mend", "all that were tried"):
        assert words in text


def test_one_resource_of_several(short_dir: Path) -> None:
    """`--resource` limits the run; a name that does not register is a failure that says so."""
    with widgets() as devices:
        done = run("check", *QUICK, "--only", "list", "--resource", "a.b/c", *plugin(devices))
    assert done.returncode == 1
    assert "a.b/c did not register, only example.com/widget" in done.stdout


@pytest.mark.needs_host("root with CAP_SYS_ADMIN")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_plugin_with_fixed_paths_sees_ours(short_dir: Path) -> None:
    """The good plugin's default directory is the kubelet's; the host's stays untouched."""
    kubelet = Path("/var/lib/kubelet")
    before = sorted(kubelet.rglob("*")) if kubelet.exists() else None
    (short_dir / "fixture").mkdir()
    (short_dir / "fixture" / "w7").touch()
    command = [sys.executable, str(GOOD_PLUGIN), "--device-dir", "/dev/kd-widgets"]
    bind = ["--bind", f"{short_dir}/fixture:/dev/kd-widgets"]
    checks = ["--only", "registration", "allocate", "life.all-wiped", "--kubelet", "1.32"]
    checks += ["-o", "json"]
    done = run("check", *UNHURRIED, *bind, *checks, "--", *command, "--cdi-dir", "/var/run/cdi")
    assert done.returncode == 0, done.stdout
    passed = {each["id"] for each in json.loads(done.stdout)["checks"] if each["status"] == "pass"}
    assert {"allocate.host-paths", "allocate.cdi-resolvable", "life.all-wiped"} <= passed
    assert (sorted(kubelet.rglob("*")) if kubelet.exists() else None) == before
    assert not Path("/dev/kd-widgets").exists()
