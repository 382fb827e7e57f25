"""Health of exposed devices, by file and by command."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import kubedevices as kd
from kubedevices.config.yaml_source import SourceProblems
from kubedevices.expose.config import ExposedHealthRule, load_expose_config
from kubedevices.expose.scanner import ExposeScanner
from kubedevices.rules.health_checks import DeviceCheck, HealthChecks, look
from kubedevices.rules.health_gate import Check
from tests.middleware_rig import scanned
from tests.waiting import until, until_sync


def test_a_file_is_read(tmp_path: Path) -> None:
    """Its content is compared without the white space around it; without `equals` it must exist."""
    file = tmp_path / "state"
    there, ok = ExposedHealthRule(file=str(file)), ExposedHealthRule(file="{path}", equals="ok")
    values = {"path": str(file)}
    assert look(there, {}) == f"{file}: No such file or directory"
    assert look(ok, values) == f"{file}: No such file or directory"
    file.write_text(" ok\n")
    assert look(there, {}) == look(ok, values) == ""
    file.write_text("broken\n")
    assert look(ok, values) == f"{file} says 'broken'"
    assert look(ok, {"path": "/dev/state"}, lambda path: path.replace("/dev", str(tmp_path)))


def test_a_command_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exit code counts; it is ended when it takes too long, however long its interval is."""

    def run(code: str, interval: float = 30.0) -> str:
        command = (sys.executable, "-S", "-c", code)
        return look(ExposedHealthRule(command=command, interval=interval), {})

    assert run("") == ""
    assert run("raise SystemExit(3)") == f"{sys.executable} ended with exit code 3"
    assert run("import time; time.sleep(60)", 0.3) == (
        f"{sys.executable} was still running after 0.3 s"
    )
    monkeypatch.setattr("kubedevices.rules.health_checks.LONGEST_COMMAND", 0.2)
    assert run("import time; time.sleep(60)").endswith("was still running after 0.2 s")
    assert (
        look(ExposedHealthRule(command=("/no/such",)), {}) == "/no/such: No such file or directory"
    )
    assert look(ExposedHealthRule(command=("test", "{n}", "=", "7")), {"n": "7"}) == ""


def test_a_check_leaves_no_file_open(tmp_path: Path) -> None:
    """Whatever it finds: a device is checked for months."""
    (tmp_path / "there").write_text("ok")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/out").symlink_to(tmp_path / "there")
    rules = (
        ExposedHealthRule(file=f"{tmp_path}/there"),
        ExposedHealthRule(file=f"{tmp_path}/there", equals="ok"),
        ExposedHealthRule(file=f"{tmp_path}/none"),
        ExposedHealthRule(file=f"{tmp_path}/inside/{{name}}"),
        ExposedHealthRule(file=f"{tmp_path}/inside/{{name}}", equals="ok"),
        ExposedHealthRule(command=("true",)),
        ExposedHealthRule(command=("sleep", "60"), interval=0.1),
    )
    before = len([*Path("/proc/self/fd").iterdir()])
    problems = [look(rule, {"name": "out"}) for rule in rules]
    assert [not each for each in problems] == [True, True, False, False, False, True, False]
    assert len([*Path("/proc/self/fd").iterdir()]) == before


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def make_scanner(tmp_path: Path) -> Callable[..., ExposeScanner]:
    """Return a function that exposes /dev/card* with a health rule, and a clock to move."""
    (tmp_path / "dev").mkdir()

    def make(health: str, clock: Callable[[], float], replicas: int = 1) -> ExposeScanner:
        file = tmp_path / "host.yaml"
        file.write_text(
            "version: 1\nnamespace: example.com\ngoneGrace: 0s\nresources:\n- name: card\n"
            f"  match: [{{path: /dev/card*}}]\n  replicas: {replicas}\n  health: {health}\n"
        )
        config = load_expose_config(file)[0]
        return ExposeScanner(config, dev_root=tmp_path / "dev", clock=clock)

    return make


def healths(scanner: ExposeScanner) -> dict[str, str]:
    return {id_: str(d.health) for id_, d in scanner.list_devices().devices("card").items()}


def settle(scanner: ExposeScanner, expected: dict[str, str]) -> None:
    """Scan until the check that is due has ended and shows."""
    until_sync(lambda: healths(scanner) == expected, what=f"{expected}")


def test_health_follows_a_file_with_hysteresis(
    tmp_path: Path, make_scanner: Callable[..., ExposeScanner], caplog: pytest.LogCaptureFixture
) -> None:
    """The first look decides; then it takes failAfter bad or okAfter good ones."""
    caplog.set_level(logging.INFO)
    for name in ("card0", "card1"):
        (tmp_path / "dev" / name).touch()
    state = tmp_path / "state-card0"
    state.write_text("ok")
    (tmp_path / "state-card1").write_text("bad")
    clock = Clock()
    rule = (
        f"{{file: '{tmp_path}/state-{{name}}', equals: ok, interval: 1s, failAfter: 2, okAfter: 2}}"
    )
    scanner = make_scanner(rule, clock, replicas=2)
    assert scanner.interval == 5.0  # the host is not searched more often because of a check
    broken = {"card1::0": "Unhealthy", "card1::1": "Unhealthy"}
    well = {"card0::0": "Healthy", "card0::1": "Healthy"}
    all_broken = dict.fromkeys(well, "Unhealthy") | broken
    assert healths(scanner) == well | broken
    reasons = {each.reason for each in scanner.list_devices().devices("card").values()}
    assert reasons == {"", f"{tmp_path}/state-card1 says 'bad'"}
    state.write_text("bad")
    assert healths(scanner) == well | broken  # not due yet
    calls = 0

    def one_more_look() -> None:
        nonlocal calls
        calls += 1
        clock.now += 1
        scanner.list_devices()
        until_sync(lambda: not [t for t in threading.enumerate() if t.name.startswith("health of")])

    one_more_look()
    assert healths(scanner) == well | broken
    one_more_look()
    assert healths(scanner) == all_broken
    state.write_text("ok")
    one_more_look()
    assert healths(scanner) == all_broken
    one_more_look()
    assert healths(scanner) == well | broken
    log = [message for message in caplog.messages if message.startswith("card: ")]
    assert log == [
        f"card: card1 is Unhealthy: {tmp_path}/state-card1 says 'bad'",
        f"card: card0 is Unhealthy: {state} says 'bad'",
        "card: card0 is Healthy again",
    ]


def test_a_check_that_hangs_delays_nothing(
    tmp_path: Path,
    make_scanner: Callable[..., ExposeScanner],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its device is Unhealthy, others are checked, and its late answer still counts."""
    for name in ("card0", "card1"):
        (tmp_path / "dev" / name).touch()
    release = threading.Event()

    def hang(_: ExposedHealthRule, values: dict[str, str], __: object) -> str:
        if values["id"] == "card0":
            release.wait(10)
        return ""

    monkeypatch.setattr("kubedevices.rules.health_checks.look", hang)
    clock = Clock()
    scanner = make_scanner("{command: [x], okAfter: 1}", clock)
    monkeypatch.setattr(scanner._health, "_first_look", 0.01)
    settle(scanner, {"card0": "Unhealthy", "card1": "Healthy"})
    clock.now += 31
    settle(scanner, {"card0": "Unhealthy", "card1": "Healthy"})
    release.set()
    settle(scanner, {"card0": "Healthy", "card1": "Healthy"})


def test_a_device_that_comes_back_is_checked_from_the_start(
    tmp_path: Path, make_scanner: Callable[..., ExposeScanner]
) -> None:
    """A repaired card need not wait for okAfter looks."""
    card, state = tmp_path / "dev/card0", tmp_path / "state"
    card.touch()
    scanner = make_scanner(f"{{file: {state}}}", Clock())
    assert healths(scanner) == {"card0": "Unhealthy"}
    card.unlink()
    assert healths(scanner) == {}
    state.touch()
    card.touch()
    assert healths(scanner) == {"card0": "Healthy"}


def test_a_check_that_does_not_end_counts_once_per_interval(
    tmp_path: Path,
    make_scanner: Callable[..., ExposeScanner],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often devices are looked for meanwhile."""
    (tmp_path / "dev/card0").touch()
    hangs, release = threading.Event(), threading.Event()

    def look_or_hang(*_: object) -> str:
        if hangs.is_set():
            release.wait(10)
        return ""

    monkeypatch.setattr("kubedevices.rules.health_checks.look", look_or_hang)
    clock = Clock()
    scanner = make_scanner("{command: [x], interval: 30s, failAfter: 2}", clock)
    assert healths(scanner) == {"card0": "Healthy"}
    hangs.set()
    clock.now += 30
    assert healths(scanner) == {"card0": "Healthy"}
    clock.now += 30
    assert [healths(scanner) for _ in range(4)] == [{"card0": "Healthy"}] * 4
    clock.now += 30
    assert healths(scanner) == {"card0": "Unhealthy"}
    release.set()


def test_a_new_rule_is_applied_at_once(
    tmp_path: Path, make_scanner: Callable[..., ExposeScanner]
) -> None:
    """What the old one found says nothing about it."""
    (tmp_path / "dev/card0").touch()
    scanner = make_scanner("{file: /no/such/file}", Clock())
    assert healths(scanner) == {"card0": "Unhealthy"}
    changed = make_scanner(f"{{file: {tmp_path}}}", Clock()).config
    scanner.use(changed, SourceProblems("expose.yaml", yaml.ScalarNode("", "")))
    assert healths(scanner) == {"card0": "Healthy"}


def test_each_check_has_its_own_due_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check with a short interval neither runs the other checks nor delays them."""
    runs: list[str] = []

    def note(_: Check, values: dict[str, str], __: object) -> str:
        runs.append(values["id"])
        return ""

    monkeypatch.setattr("kubedevices.rules.health_checks.look", note)
    clock = Clock()
    checks = HealthChecks(lambda: None, clock=clock)
    assert checks.pause() is None
    checks.update(
        {
            ("gpu", name, "0"): DeviceCheck(Check(command=("x",), interval=interval), {"id": name})
            for name, interval in (("slow", 45.0), ("fast", 30.0))
        }
    )
    due = {30.0: ["fast"], 45.0: ["slow"], 60.0: ["fast"], 90.0: ["fast", "slow"]}
    for at, names in due.items():
        assert checks.pause() == pytest.approx(at + 100.0 - clock.now)
        runs.clear()
        clock.now += (checks.pause() or 0.0) - 1.0
        checks.run_due()
        assert runs == []
        clock.now += 1.0
        checks.run_due()
        until_sync(lambda: sorted(runs) == sorted(names) and not any(_jobs(checks)))  # noqa: B023


def _jobs(checks: HealthChecks) -> list[object]:
    return [each.job for each in checks._states.values()]


async def test_exposed_checks_run_without_a_look_at_the_host(
    tmp_path: Path,
    make_scanner: Callable[..., ExposeScanner],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A check every 100 ms does not search the host ten times a second; a changed health shows at
    once.
    """
    (tmp_path / "dev/card0").touch()
    state = tmp_path / "state"
    state.touch()
    runs: list[str] = []

    def counted(rule: Check, values: dict[str, str], here: Callable[[str], str]) -> str:
        runs.append(values["id"])
        return look(rule, values, here)

    monkeypatch.setattr("kubedevices.rules.health_checks.look", counted)
    scanner = make_scanner(f"{{file: {state}, interval: 100ms, failAfter: 1}}", time.monotonic)
    scanner.interval = 3600.0
    looks = 0
    look_once = scanner.list_devices

    def list_devices() -> kd.DeviceTree:
        nonlocal looks
        looks += 1
        return look_once()

    scanner.list_devices = list_devices  # type: ignore[method-assign]
    async with scanned(scanner) as served:
        # The first result is a change of the health, which asks for one more look.
        # So does a check that a busy machine delays: Unhealthy, and Healthy again.
        await until(lambda: len(runs) >= 12)
        assert looks <= 6
        state.unlink()
        while served.tree.devices("card")["card0"].is_healthy:
            await served.next_tree()


def test_a_check_that_ends_while_it_is_given_up_waits_for_its_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has just failed for being late: a run at once would be one too many."""
    release, runs = threading.Event(), list[str]()

    def look_or_hang(_: Check, values: dict[str, str], __: object) -> str:
        runs.append(values["id"])
        release.wait(60)
        return ""

    def end() -> None:
        release.set()
        until_sync(lambda: not any(_jobs(checks)))

    monkeypatch.setattr("kubedevices.rules.health_checks.look", look_or_hang)
    clock = Clock()
    checks = HealthChecks(end, clock=clock, first_look=0.0)
    rule = Check(command=("x",), interval=30.0, fail_after=1)
    checks.update({("gpu", "a", "0"): DeviceCheck(rule, {"id": "a"})})
    until_sync(lambda: runs == ["a"])
    clock.now += 30
    checks.run_due()
    until_sync(lambda: not any(_jobs(checks)))
    assert runs == ["a"]
    assert checks.pause() == pytest.approx(30.0)
    clock.now += 30
    checks.run_due()
    until_sync(lambda: runs == ["a", "a"] and not any(_jobs(checks)))
