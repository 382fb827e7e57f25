"""At most eight health checks run at once in a process."""

import logging
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from kubedevices.rules.check_threads import AT_ONCE, CheckThreads
from kubedevices.rules.health_checks import CheckId, DeviceCheck, HealthChecks, look
from kubedevices.rules.health_gate import SHORTEST_INTERVAL, Check
from kubedevices.values.device import Health
from tests.waiting import until_sync


def wait(release: threading.Event) -> None:
    release.wait(60)


def test_many_checks_have_few_threads_and_all_of_them_run() -> None:
    """Of 1,500 checks, eight run; the others wait in their order."""
    threads, release, running, ran = CheckThreads(), threading.Event(), [0], list[int]()
    lock = threading.Lock()
    most = 0

    def work(number: int) -> None:
        nonlocal most
        with lock:
            running[0] += 1
            most = max(most, running[0])
        release.wait(60)
        with lock:
            running[0] -= 1
            ran.append(number)

    before = threading.active_count()
    for number in range(1500):
        threads.start("check", partial(work, number))
    until_sync(lambda: running[0] == AT_ONCE)
    assert threading.active_count() - before == AT_ONCE
    release.set()
    until_sync(lambda: len(ran) == 1500)
    until_sync(lambda: threading.active_count() == before)
    assert most == AT_ONCE == 8
    assert sorted(ran) == [*range(1500)]


def test_a_check_with_a_mistake_of_ours_keeps_no_place(caplog: pytest.LogCaptureFixture) -> None:
    """The mistake is logged, and the next check runs."""
    threads, ran = CheckThreads(at_once=1), list[int]()

    def fail() -> None:
        raise RuntimeError("ours")

    threads.start("first", fail)
    threads.start("second", lambda: ran.append(2))
    until_sync(lambda: ran == [2])
    assert "first failed" in caplog.messages


def test_an_abandoned_check_gives_its_place_to_another() -> None:
    """Until too many hang; then the others wait for one of them."""
    threads, release, ran = CheckThreads(at_once=1, hanging_limit=1), threading.Event(), list[int]()
    first = threads.start("first", partial(wait, release))
    second = threads.start("second", partial(wait, release))
    threads.start("third", lambda: ran.append(3))
    until_sync(lambda: first.is_running)
    assert second.has_waited
    assert not second.is_running
    threads.abandon(first)
    until_sync(lambda: second.is_running)
    threads.abandon(second)
    assert not second.is_abandoned
    assert ran == []
    release.set()
    until_sync(lambda: ran == [3])
    until_sync(lambda: not [t for t in threading.enumerate() if t.name in ("first", "second")])


def test_all_devices_of_a_process_share_the_limit(tmp_path: Path) -> None:
    """Commands of many devices in several scanners: at most eight processes at once."""
    (tmp_path / "running").mkdir()
    script = tmp_path / "check.py"
    script.write_text(
        "import os, sys, time; d, n = sys.argv[1:]; p = f'{d}/running/{n}'; open(p, 'x').close();"
        "found = len(os.listdir(f'{d}/running')); open(f'{d}/log', 'a').write(f'{found}\\n');"
        "time.sleep(0.05); os.unlink(p)"
    )
    check = Check(command=(sys.executable, "-IS", str(script), str(tmp_path), "{id}"))
    scanners = [HealthChecks(lambda: None, first_look=60) for _ in range(2)]
    checks: list[dict[CheckId, DeviceCheck]] = [
        {("r", f"{n}-{i}", "0"): DeviceCheck(check, {"id": f"{n}-{i}"}) for i in range(20)}
        for n in range(2)
    ]
    both = [
        threading.Thread(target=each.update, args=(asked,))
        for each, asked in zip(scanners, checks, strict=True)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(60)
    for each, asked in zip(scanners, checks, strict=True):
        assert {each.health(key) for key in asked} == {Health.HEALTHY}
    counts = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert len(counts) == 40
    assert max(counts) <= AT_ONCE


def test_a_check_that_waits_for_a_thread_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the time since it began counts."""
    slow, release = CheckThreads(at_once=1), threading.Event()
    monkeypatch.setattr("kubedevices.rules.health_checks.CHECKS", slow)
    now = [0.0]
    blocker = slow.start("blocker", partial(wait, release))
    until_sync(lambda: blocker.is_running)
    checks = HealthChecks(lambda: None, clock=lambda: now[0], first_look=0)
    asked: dict[CheckId, DeviceCheck] = {
        ("r", "a", "0"): DeviceCheck(Check(file="/etc", fail_after=1), {})
    }
    checks.update(asked)
    now[0] += 1000
    checks.update(asked)
    assert checks.health(("r", "a", "0")) is None
    release.set()
    until_sync(lambda: checks.health(("r", "a", "0")) is Health.HEALTHY)


def of_devices(*ids: str) -> dict[CheckId, DeviceCheck]:
    rule = Check(file="/etc", interval=30, fail_after=1)
    return {("r", each, "0"): DeviceCheck(rule, {"id": each}) for each in ids}


def settle() -> None:
    until_sync(lambda: not [t for t in threading.enumerate() if t.name.startswith("health of")])


def test_a_check_that_waited_for_a_thread_is_due_an_interval_after_its_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device that went meanwhile is not checked."""
    slow, release, looked, now = CheckThreads(at_once=1), threading.Event(), list[str](), [0.0]
    monkeypatch.setattr("kubedevices.rules.health_checks.CHECKS", slow)

    def note(_: Check, values: dict[str, str], __: object) -> str:
        looked.append(values["id"])
        return ""

    monkeypatch.setattr("kubedevices.rules.health_checks.look", note)
    blocker = slow.start("blocker", partial(wait, release))
    until_sync(lambda: blocker.is_running)
    checks = HealthChecks(lambda: None, clock=lambda: now[0], first_look=0)
    checks.update(of_devices("a", "gone"))
    now[0] += 20
    checks.update(of_devices("a"))
    release.set()
    until_sync(lambda: checks.health(("r", "a", "0")))
    settle()
    assert looked == ["a"]
    assert checks.pause() == 30


def test_a_check_that_hangs_gives_its_thread_to_the_next_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At its end its device is gone: nobody asks for another look at the devices."""
    slow, release, begun = CheckThreads(at_once=1), threading.Event(), threading.Event()
    monkeypatch.setattr("kubedevices.rules.health_checks.CHECKS", slow)

    def look_or_hang(_: Check, values: dict[str, str], __: object) -> str:
        if values["id"] == "b":
            return ""
        begun.set()
        release.wait(60)
        return "broken"

    monkeypatch.setattr("kubedevices.rules.health_checks.look", look_or_hang)
    now, changes = [0.0], list[int]()
    checks = HealthChecks(lambda: changes.append(1), clock=lambda: now[0], first_look=0)
    checks.update(of_devices("a", "b"))
    assert begun.wait(60)
    now[0] += 30
    checks.run_due()
    until_sync(lambda: len(changes) == 2)
    assert checks.health(("r", "a", "0")) is Health.UNHEALTHY
    assert checks.health(("r", "b", "0")) is Health.HEALTHY
    checks.update(of_devices("b"))
    release.set()
    settle()
    assert len(changes) == 2


# ---------------------------------------------------------------- the ID of a stranger


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Give a directory `state` with links of every kind, and a secret beside it."""
    (tmp_path / "root-only").write_text("secret")
    state = tmp_path / "state"
    state.mkdir()
    (state / "good").write_text("ok")
    (state / "out").symlink_to(tmp_path / "root-only")
    (state / "inside").symlink_to("good")
    (state / "zero").symlink_to("/dev/zero")
    (state / "long").write_bytes(b"x" * (64 * 1024 + 1))
    (state / "directory").mkdir()
    os.mkfifo(state / "pipe")
    return state


@pytest.mark.parametrize(
    ("device_id", "reason"),
    [
        ("../root-only", "is not the name of one file"),
        ("../../../../../dev/zero", "is not the name of one file"),
        ("..", "is not the name of one file"),
        ("", "this device has no {id}"),
        ("out", "a link leads out of"),
        ("zero", "a link leads out of"),
        ("pipe", "a named pipe, not a regular file"),
        ("directory", "a directory, not a regular file"),
        ("long", "more than 65536 bytes"),
        ("missing", "No such file or directory"),
    ],
)
def test_an_id_reads_no_other_file(places: Path, device_id: str, reason: str) -> None:
    """Nothing is read, nothing waits; the reason has no content of another file."""
    problem = look(Check(file=f"{places}/{{id}}", equals="ok"), {"id": device_id})
    assert reason in problem
    assert "secret" not in problem
    assert look(Check(file=f"{places}/{{id}}", equals="ok"), {"id": "inside"}) == ""
    if device_id not in ("pipe", "directory", "long"):  # these exist
        assert look(Check(file=f"{places}/{{id}}"), {"id": device_id})


def test_a_class_of_sysfs_is_a_directory_of_links(tmp_path: Path) -> None:
    """`/sys/class/net/eth0` leads to the device, which is below /sys as well."""
    (tmp_path / "devices/card").mkdir(parents=True)
    (tmp_path / "devices/card/state").write_text("up\n")
    (tmp_path / "class").mkdir()
    (tmp_path / "class/card").symlink_to("../devices/card")
    (tmp_path / "class/out").symlink_to("/")

    def here(path: str) -> str:
        return path.replace("/sys", str(tmp_path), 1)

    rule = Check(file="/sys/class/{id}/state", equals="up")
    assert look(rule, {"id": "card"}, here) == ""
    assert "leads out" in look(Check(file="/sys/class/{id}/etc/passwd"), {"id": "out"}, here)


@pytest.mark.parametrize("device_id", ["--delete-all", "-x", ""])
def test_an_id_becomes_no_option_of_a_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, device_id: str
) -> None:
    """The command does not run; the device is Unhealthy with the reason and one warning."""
    caplog.set_level(logging.INFO)
    ran = tmp_path / "ran"
    rule = Check(command=("touch", str(ran), "{id}"), interval=SHORTEST_INTERVAL)
    checks = HealthChecks(lambda: None, first_look=60)
    key = ("r", device_id, "0")
    for _ in range(5):
        checks.update({key: DeviceCheck(rule, {"id": device_id})})
        until_sync(lambda: checks._states[key].job is None)
    assert checks.health(key) is Health.UNHEALTHY
    assert not ran.exists()
    until_sync(lambda: caplog.messages)
    (warning,) = caplog.messages
    assert "is Unhealthy: not checked: " in warning


def test_a_hanging_check_that_ends_makes_room_for_another() -> None:
    """Otherwise, after some of them, no check that hangs would ever give its place away again."""
    threads = CheckThreads(at_once=1, hanging_limit=1)
    for _ in range(3):
        release, ran = threading.Event(), list[int]()
        hanging = threads.start("hanging", partial(wait, release))
        until_sync(lambda: hanging.is_running)  # noqa: B023
        threads.abandon(hanging)
        assert hanging.is_abandoned
        threads.start("next", lambda: ran.append(1))  # noqa: B023
        until_sync(lambda: ran == [1])  # noqa: B023
        release.set()
        until_sync(lambda: not [t for t in threading.enumerate() if t.name == "hanging"])


def test_a_process_ends_while_a_check_hangs() -> None:
    """A plugin that is told to stop must not wait for a broken card."""
    code = (
        "import threading; from kubedevices.rules.check_threads import CHECKS; "
        "begun = threading.Event(); "
        "CHECKS.start('c', lambda: (begun.set(), threading.Event().wait())); begun.wait(60)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
