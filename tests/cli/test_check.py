"""`kubedevices check`."""

import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kubedevices.check import directories
from kubedevices.check.checks import ALL
from kubedevices.check.processes import Supervisor, SupervisorRefused
from tests.check.rig import GOOD_PLUGIN, MUTANT, widgets
from tests.cli.commands import COMMAND, run
from tests.command_line import CommandLine
from tests.host_needs import needs
from tests.nobody import run_as_nobody

QUICK = ("--timeout-scale", "0.1")
IN_A_COMMAND = ("--mode=dra", "--mode dra", "--config={kubeconfig}")
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
    assert "repair      Use something unique as the ID" in done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]


def test_a_warning_exits_0() -> None:
    """Fragile is no failure."""
    with widgets() as devices:
        done = run("check", *QUICK, "--only", "list", *mutant(devices, "long-id"))
    assert done.returncode == 0
    assert "warn  list.id-length" in done.stdout


def test_a_plugin_that_cannot_be_started_exits_3(short_dir: Path) -> None:
    """A missing program, and one that ends before it registers, with its last words."""
    report = short_dir / "report.xml"
    done = run("check", "--junit", report, "--", "no-such-plugin", "{socket_dir}")
    assert done.returncode == 3
    problem = "the plugin could not be started: no-such-plugin: no such program in PATH"
    assert problem in done.stderr
    suites = ET.parse(report).getroot()
    assert (suites.attrib["tests"], suites.attrib["errors"]) == ("1", "1")
    error = suites.find("./testsuite/testcase/error")
    assert error is not None
    assert error.attrib["message"] == problem
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
        (["--write-expected", "/nowhere/k.yaml", "--", "x"], "does not exist"),
        (["--bind", "/tmp", "--", "x"], "it must read HOST:INSIDE"),
        (["--bind", "/tmp:/run/cdi/x", "--", "x"], "gets a /var/run/cdi of its own already"),
        (["--bind", "/tmp:/x", "/tmp"], "--bind is for plugins that check starts"),
        (["--in-place", "/tmp"], "--in-place is for plugins that check starts"),
        (["--in-place", "--bind", "/tmp:/x", "--", "x"], "--in-place makes none"),
        (["--explain", "list.ordr"], "did you mean 'list.order'?"),
    ],
)
def test_wrong_usage_exits_2(arguments: list[str], message: str, cli: CommandLine) -> None:
    """One line says what is wrong."""
    assert message in cli("check", *arguments, code=2).err


def test_a_fixture_that_is_missing_exits_3(cli: CommandLine) -> None:
    """--bind names a path that must exist."""
    err = cli("check", "--bind", "/no/such/dir:/dev", "--", "x", code=3).err
    assert "/no/such/dir does not exist" in err


def test_without_root_the_error_says_what_to_do(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin with fixed paths needs a mount; the message names all ways out."""

    async def refused(supervisor: Supervisor, binds: object) -> None:
        raise SupervisorRefused("Operation not permitted: unshare")

    monkeypatch.setattr(Supervisor, "enter_private_view", refused)
    error = cli("check", "--", "true", code=3).err
    for words in ("Operation not permitted", "sudo", "{socket_dir}", "--in-place"):
        assert words in error


@needs("user namespaces")
def test_without_root_a_user_namespace_gives_the_view(short_dir: Path) -> None:
    """Somebody else finds the plugin directory at its fixed path, and the host's stays as it is."""
    script = "from kubedevices.testing.kubelet.mounts import *; "
    script += "enter_private_view([Bind(*sys.argv[1:])]); "
    script += "print(*os.listdir(sys.argv[2]))"
    (short_dir / "seen").touch()
    short_dir.chmod(0o755)
    done = run_as_nobody(script, str(short_dir), "/var/lib/kubelet/x")
    assert (done.stdout, done.stderr) == ("seen\n", "")


@pytest.mark.parametrize("there", [True, False])
def test_in_place_needs_no_mount_and_leaves_nothing(
    there: bool, short_dir: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """The check acts at the fixed paths themselves; what it made is gone afterwards."""
    fixed = {name: short_dir / "lib" / name for name in ("plugins", "registry", "cdi")}
    if there:
        fixed["plugins"].mkdir(parents=True)
    for name, kind in (
        ("DEVICE_PLUGIN_DIR", "plugins"),
        ("PLUGIN_REGISTRY_DIR", "registry"),
        ("GENERATED_DIRECTORY", "cdi"),
    ):
        monkeypatch.setattr(directories, name, fixed[kind])
    socket = short_dir / "lib" / "pod-resources" / "kubelet.sock"
    monkeypatch.setattr(directories, "POD_RESOURCES_SOCKET", socket)
    with widgets() as devices:
        command = [sys.executable, str(GOOD_PLUGIN), "--device-dir", str(devices)]
        command += ["--socket-dir", str(fixed["plugins"]), "--cdi-dir", str(fixed["cdi"])]
        checks = ["--only", "list.order", "allocate.answers", "life.stop-code", "-o", "json"]
        shown = cli("check", *UNHURRIED, "--in-place", *checks, "--", *command)
    statuses = {each["status"] for each in shown.data["checks"]}
    assert statuses == {"pass"}
    left = sorted(path.name for path in short_dir.rglob("*"))
    assert left == (["lib", "plugins"] if there else [])


def test_in_place_refuses_a_directory_in_use(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """A machine with a kubelet is no place for it, and what is there stays."""
    (short_dir / "kubelet.sock").touch()
    monkeypatch.setattr(directories, "DEVICE_PLUGIN_DIR", short_dir)
    err = cli("check", "--in-place", "--", "true", code=3).err
    assert f"cannot use {short_dir}: it has files: kubelet.sock" in err
    assert (short_dir / "kubelet.sock").exists()


def known(directory: Path, text: str) -> list[str]:
    file = directory / "known.yaml"
    file.write_text(text)
    return ["--expect", str(file)]


def test_a_known_failure_exits_0_and_a_new_one_1(short_dir: Path) -> None:
    """Findings of the file do not fail the run, in any report; what is gone is told."""
    entries = "findings:\n- {check: list.id-unique, reason: bug 7}\n"
    entries += "- {check: list.order, reason: bug 8}\n"
    markdown = short_dir / "summary.md"
    with widgets() as devices:
        options = [*QUICK, "--only", "list", "--markdown", str(markdown)]
        command = mutant(devices, "double-id")
        done = run("check", *options, *known(short_dir, entries), *command)
        assert done.returncode == 0, done.stdout
        assert "known       bug 7" in done.stdout
        assert "no longer found: list.order; remove it" in done.stdout
        assert "## kubedevices check: passed" in markdown.read_text()
        other = "findings:\n- {check: list.id-unique, resource: a.b/c, reason: bug 7}\n"
        assert run("check", *options, *known(short_dir, other), *command).returncode == 1
        assert "## kubedevices check: failed" in markdown.read_text()


def test_findings_are_written_for_the_next_run(short_dir: Path) -> None:
    """`--write-expected` makes the file, keeps the reasons, and `--expect` accepts the findings."""
    file = short_dir / "known.yaml"
    with widgets() as devices:
        options = [*QUICK, "--only", "list.id-unique", "--write-expected", str(file)]
        command = mutant(devices, "double-id")
        first = run("check", *options, *command)
        assert first.returncode == 1
        assert f"added 1 finding to {file}: write 1 reason, then use" in first.stderr
        file.write_text(file.read_text().replace('reason: ""', "reason: bug 7"))
        again = run("check", *options, "--expect", str(file), *command)
    assert (again.returncode, again.stderr.splitlines()[-1]) == (0, f"added 0 findings to {file}")
    assert "reason: bug 7" in file.read_text()


def test_a_quick_run_with_a_crash_fails() -> None:
    """The check that saw the crash only warns; `life.dies` fails and is not left out."""
    with widgets() as devices:
        checks = ["--quick", "--only", "life.own-socket-removed", "life.dies", "-o", "json"]
        done = run("check", *UNHURRIED, *checks, *mutant(devices, "panics-without-its-socket"))
    assert done.returncode == 1, done
    document = json.loads(done.stdout)
    statuses = {each["id"]: each["status"] for each in document["checks"]}
    assert statuses == {"life.own-socket-removed": "warn", "life.dies": "fail"}
    causes = {each["cause"] for each in document["checks"]}
    assert causes == {"its process ends: panic: send on closed channel"}
    assert document["left_out"] == []


def test_the_list_has_every_check(cli: CommandLine) -> None:
    """`--list` prints ID, severity and rule, or objects."""
    text = cli("check", "--list").out
    assert all(check.id in text and check.rule in text for check in ALL)
    shown = cli("check", "--list", "--only", "grpc", "-o", "json")
    assert {each["theme"] for each in shown.data} == {"grpc"}


def test_a_check_can_be_explained(cli: CommandLine) -> None:
    """`--explain` prints all there is to say about a check."""
    text = cli("check", "--explain", "life.stream-cancelled").out
    for words in (
        "(fail)",
        "rule",
        "on a node",
        "#135437",
        "repair",
        "all plugins that were tried",
    ):
        assert words in text


def test_a_check_of_only_one_resource(short_dir: Path) -> None:
    """`--resource` limits the run; a name that does not register is wrong usage."""
    with widgets() as devices:
        for name, code in (("example.com/widget", 0), ("example.com/widgets", 2)):
            only = ["--only", "list.order", "--resource", name]
            done = run("check", *UNHURRIED, *only, *plugin(devices))
            assert done.returncode == code, done
    said = "--resource example.com/widgets: the plugin registers only example.com/widget"
    assert f"{said}, did you mean 'example.com/widget'?" in done.stderr


def test_a_plugin_that_never_registers_exits_3() -> None:
    """No other check is blamed; only the check of this rule reports a failure."""
    command = ["--", sys.executable, "-c", "import time; print('hm', flush=True); time.sleep(99)"]
    for only, code in ((["life.sockets-wiped"], 3), (["registration.registers", "life"], 1)):
        done = run("check", *QUICK, "--only", *only, *command, "{socket_dir}")
        assert done.returncode == code, done
        assert "nothing called Register within 4 s" in done.stdout + done.stderr
        assert "hm" in done.stdout + done.stderr
    assert "1 failed" in done.stdout


@pytest.mark.parametrize(
    ("trigger", "undo", "problem"),
    [
        ("exit 7", "touch {}/undone", "the trigger failed: exit code 7"),
        ("touch {}/new-1", "exit 7", "the undo failed: exit code 7"),
    ],
)
def test_a_trigger_that_fails_exits_4(trigger: str, undo: str, problem: str) -> None:
    """The sentence names the command that failed; a run that failed is not undone."""
    with widgets() as devices:
        options = ["--trigger", trigger.format(devices), "--undo", undo.format(devices)]
        checks = ["--only", "list.change", "list.recovers", "grpc.ping"]
        done = run("check", *UNHURRIED, *checks, *options, *plugin(devices))
        assert not (devices / "undone").exists()
    assert done.returncode == 4, done
    assert problem in done.stdout
    assert "because the trigger failed" in done.stdout.splitlines()[-1]


def test_a_run_that_tried_nothing_exits_5() -> None:
    """A run that says nothing about the plugin is no success."""
    with widgets() as devices:
        done = run("check", *UNHURRIED, "--only", "list.change", *plugin(devices))
    assert done.returncode == 5, done
    assert "0 of 1 check tried: nothing was tried" in done.stdout.splitlines()[-1]


@needs("mount")
def test_a_plugin_with_fixed_paths_sees_directories_of_the_check(short_dir: Path) -> None:
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


@pytest.mark.parametrize(
    "words",
    [["--dra", "--", "driver"], *(["--", "driver", *said.split()] for said in IN_A_COMMAND)],
)
def test_a_driver_is_judged_by_the_rules_for_drivers(words: list[str], cli: CommandLine) -> None:
    """By an option, or by a word of the command; --device-plugin says the contrary."""
    chosen = ["check", "--list", "--only", "prepare.repeat"]
    assert "Preparing a claim again" in cli(*chosen, *words).out
    if "--dra" not in words:
        err = cli(*chosen, "--device-plugin", *words, code=2).err
        assert "there is no check 'prepare.repeat'" in err


@pytest.mark.parametrize("option", ["--resource=x/y", "--in-place", "--no-registry", "--bind=/:/x"])
def test_options_of_plugins_are_refused_for_a_driver(option: str, cli: CommandLine) -> None:
    """They would have no effect."""
    assert "is for device plugins" in cli("check", "--dra", option, "--", "driver", code=2).err


@pytest.mark.parametrize("option", ["--manifests=a.yaml", "--parameters=a.yaml", "--show-requests"])
def test_options_of_drivers_are_refused_for_a_plugin(option: str, cli: CommandLine) -> None:
    """A device plugin has no rights at the API server, no parameters and no requests."""
    err = cli("check", "--device-plugin", option, "--", "plugin", code=2).err
    assert f"{option.partition('=')[0]} is for DRA drivers" in err


def test_a_driver_has_a_report() -> None:
    """The command of docs/dra-conformance.md: the report speaks of a driver, and of its name."""
    places = ["--kubelet-dir", "{kubelet_dir}", "--cdi-dir", "{cdi_dir}"]
    command = ["simulate", "--mode", "dra", "--kubeconfig", "{kubeconfig}", "--kube-node", "{node}"]
    checks = ["--only", "register.info", "prepare.answers", "-o", "json"]
    done = run("check", *checks, "--", *COMMAND, *command, *places)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [each["id"] for each in document["checks"]] == ["register.info", "prepare.answers"]
    assert {each["resource"] for each in document["checks"]} == {"example.com"}
    assert "a well-behaved driver" in document["verdict"]
