"""What a container is given: device files, links, permissions, labels, CDI names, and inside it."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.explain.finding import Finding, Outcome, Step
from kubedevices.explain.on_node.facts import (
    SANDBOX,
    Allocation,
    ContainerFile,
    FileFacts,
    ProcessFacts,
    Selinux,
)
from kubedevices.explain.on_node.judge_files import (
    judge_answers,
    judge_cdi,
    judge_host_file,
    judge_inside,
)
from kubedevices.host.cdi_specs import read_registry
from kubedevices.values.allocation import ContainerAllocateResponse
from kubedevices.values.device import DeviceSpec, Mount

NAME = "example.com/widget"
FILE = FileFacts("/dev/host0", "c", 195, 0, 0o666, 0, 0, "/dev/char/195:0")
CALM, ENFORCED = Selinux(), Selinux(is_enforcing=True)
GIVEN = ContainerAllocateResponse(devices=[DeviceSpec("/dev/host0", "/dev/w0")])
HELD = Allocation("uid-1", "main", NAME, ("w0",), GIVEN)
THERE = ContainerFile(
    ProcessFacts(40, "train"), "/dev/w0", "c", 195, 0, 0o660, 0, 44, 1000, (44,), "c 195:* rwm"
)


def only(findings: list[Finding], step: Step) -> Finding:
    (finding,) = [each for each in findings if each.step is step]
    return finding


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("response", "result", "says"),
    [
        (ContainerAllocateResponse(), Outcome.OK, "a hook of the runtime"),
        (ContainerAllocateResponse(mounts=[Mount("/a", "/b")]), Outcome.OK, "but mounts"),
    ],
)
def test_answers_without_devices(
    response: ContainerAllocateResponse, result: Outcome, says: str
) -> None:
    """A plugin may hand out variables only; then nothing else can be wrong."""
    (finding,) = judge_answers([replace(HELD, response=response)], "checkpoint")
    assert (finding.result, says in finding.found) == (result, True)


def test_without_an_allocation_nothing_is_known_of_the_files() -> None:
    """And with one, the files speak for themselves."""
    (finding,) = judge_answers([], "checkpoint")
    assert "run this again when a container holds" in finding.found
    assert judge_answers([HELD], "checkpoint") == []


# ---------------------------------------------------------------- host


@pytest.mark.parametrize(
    ("file", "result", "says"),
    [
        (FILE, Outcome.OK, "c 195:0, mode 0666"),
        (FileFacts("/dev/w0"), Outcome.PROBLEM, "no such file"),
        (FileFacts("/dev/w0", problem="permission denied"), Outcome.UNKNOWN, "permission denied"),
        (FileFacts("/dev/w", "directory"), Outcome.PROBLEM, "a directory, not a device file"),
        (FileFacts("/dev/w", "file"), Outcome.PROBLEM, "a file, not a device file"),
    ],
)
def test_the_host_has_the_device_file(file: FileFacts, result: Outcome, says: str) -> None:
    """It exists and is a device node."""
    finding = only(judge_host_file(file, CALM), Step.DEVICE_FILE)
    assert (finding.result, says in finding.found) == (result, True)


@pytest.mark.parametrize(
    ("file", "result", "command"),
    [
        (FILE, Outcome.OK, ""),
        (replace(FILE, link=""), Outcome.WARNING, "ln -sf /dev/host0 /dev/char/195:0"),
        (replace(FILE, kind="b", link=""), Outcome.WARNING, "ln -sf /dev/host0 /dev/block/195:0"),
    ],
)
def test_the_link_that_survives_a_daemon_reload(
    file: FileFacts, result: Outcome, command: str
) -> None:
    """Missing, it is named together with the command that makes it."""
    finding = only(judge_host_file(file, CALM), Step.LINK)
    assert finding.result is result
    assert command in finding.command


def test_a_fifo_needs_no_link() -> None:
    """Only character and block devices have numbers."""
    steps = {each.step for each in judge_host_file(replace(FILE, kind="p"), CALM)}
    assert Step.LINK not in steps


@pytest.mark.parametrize(
    ("mode", "gid", "result", "says"),
    [
        (0o666, 0, Outcome.OK, ""),
        (0o660, 44, Outcome.WARNING, "supplementalGroups: [44]"),
        (0o660, 0, Outcome.WARNING, "supplementalGroups: [0]"),
        (0o600, 44, Outcome.WARNING, "a udev rule"),
    ],
)
def test_which_users_may_open_a_device_file(
    mode: int, gid: int, result: Outcome, says: str
) -> None:
    """A container of another user needs the group, if the group may."""
    file = replace(FILE, mode=mode, gid=gid)
    finding = only(judge_host_file(file, CALM), Step.PERMISSIONS)
    assert (finding.result, says in finding.advice) == (result, True)


@pytest.mark.parametrize(
    ("selinux", "label", "result"),
    [
        (CALM, "system_u:object_r:device_t:s0", Outcome.OK),
        (ENFORCED, "system_u:object_r:device_t:s0", Outcome.WARNING),
        (ENFORCED, "", Outcome.WARNING),
        (ENFORCED, "system_u:object_r:container_file_t:s0", Outcome.OK),
        (replace(ENFORCED, use_devices=True), "system_u:object_r:device_t:s0", Outcome.OK),
        (replace(ENFORCED, use_devices=False), "system_u:object_r:device_t:s0", Outcome.WARNING),
    ],
)
def test_selinux(selinux: Selinux, label: str, result: Outcome) -> None:
    """Enforced, with a label that containers may not use and no boolean that lets them."""
    finding = only(judge_host_file(replace(FILE, label=label), selinux), Step.SELINUX)
    assert finding.result is result
    assert ("container_use_devices 1" in finding.command) == (result is Outcome.WARNING)
    if result is Outcome.WARNING:
        assert ("labelled device_t" if label else "its label cannot be read") in finding.found


# ---------------------------------------------------------------- CDI


def test_cdi_names(tmp_path: Path) -> None:
    """One that resolves, one that does not with the reason, one that an engine may not see."""
    spec = '{"cdiVersion": "%s", "kind": "example.com/%s", "devices": [{"name": "w0", '
    spec += '"containerEdits": {"env": ["A=1"]}}]}'
    (tmp_path / "widget.json").write_text(spec % ("0.5.0", "widget"))
    (tmp_path / "new.json").write_text(spec % ("1.0.0", "new"))
    names = ["example.com/widget=w0", "example.com/widget=w9", "example.com/new=w0"]
    good, bad, new, *warnings = judge_cdi([*names, names[0]], read_registry([tmp_path]))
    assert [good.result, bad.result, new.result] == [Outcome.OK, Outcome.PROBLEM, Outcome.OK]
    assert "no such device of example.com/widget" in bad.found
    assert bad.command == "kubedevices cdi resolve example.com/widget=w9"
    assert {each.result for each in warnings} == {Outcome.WARNING}
    assert all("does not see the device" in each.found for each in warnings)


# ---------------------------------------------------------------- inside


def inside(*seen: ContainerFile, host: FileFacts = FILE) -> list[Finding]:
    return judge_inside(HELD, seen, {host.path: host})


def test_a_container_that_has_its_device() -> None:
    """The file is there, the process may open it, the cgroup permits it."""
    findings = inside(THERE)
    assert [(each.step, each.result) for each in findings] == [
        (Step.CONTAINER, Outcome.OK),
        (Step.CGROUP, Outcome.OK),
    ]


def test_a_container_without_its_device() -> None:
    """Started before, or by a runtime that leaves it out."""
    finding = only(inside(replace(THERE, kind="")), Step.CONTAINER)
    assert finding.result is Outcome.PROBLEM
    assert "/dev/w0 is not in it" in finding.found


def test_a_container_that_was_not_found() -> None:
    """Nothing is claimed of it; one that got no device file has nothing to look for."""
    (finding,) = judge_inside(HELD, None, {})
    assert finding.result is Outcome.UNKNOWN
    assert judge_inside(replace(HELD, response=ContainerAllocateResponse()), None, {}) == []


def test_a_device_that_came_back_as_another() -> None:
    """The number on the host is not the one that the container has."""
    finding = only(inside(THERE, host=replace(FILE, minor=3)), Step.CONTAINER)
    assert finding.result is Outcome.PROBLEM
    assert "195:0, on the host it is now 195:3" in finding.found


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"groups": (44,)}, Outcome.OK),
        ({"groups": (100,)}, Outcome.PROBLEM),
        ({"groups": ()}, Outcome.PROBLEM),
        ({"groups": (), "mode": 0o666}, Outcome.OK),
        ({"groups": (), "runs_as": 0}, Outcome.OK),
        ({"groups": (), "runs_as": 0, "mode": 0, "is_above_modes": True}, Outcome.OK),
        ({"groups": (), "runs_as": 0, "mode": 0}, Outcome.PROBLEM),
        ({"groups": (), "runs_as": 0, "uid": 7, "mode": 0o600}, Outcome.PROBLEM),
        ({"groups": (44,), "uid": 1000, "mode": 0o060}, Outcome.PROBLEM),
        ({"groups": (), "uid": 1000, "mode": 0o600}, Outcome.OK),
        ({"groups": (44,), "mode": 0o640}, Outcome.PROBLEM),
    ],
)
def test_permission_denied_inside(changes: dict[str, object], result: Outcome) -> None:
    """By user, groups, mode and CAP_DAC_OVERRIDE: root without that is a user like others."""
    there = replace(THERE, **changes)  # type: ignore[arg-type]
    finding = only(inside(there), Step.CONTAINER)
    assert finding.result is result
    if result is Outcome.PROBLEM:
        groups = ", ".join(map(str, there.groups)) or "none"
        assert f"(user {there.runs_as}, groups {groups}) may not open it" in finding.found


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        (0o660, "supplementalGroups: [44]"),
        (0o600, "device_ownership_from_security_context"),
        (0o640, "device_ownership_from_security_context"),
        (0o400, "a udev rule"),
    ],
)
def test_advice_names_only_groups_that_help(mode: int, says: str) -> None:
    """A group that may not open the file either is not named; nor an owner who may not."""
    for finding in (
        only(inside(replace(THERE, groups=(), mode=mode)), Step.CONTAINER),
        only(judge_host_file(replace(FILE, gid=44, mode=mode), CALM), Step.PERMISSIONS),
    ):
        assert says in finding.advice
        assert ("supplementalGroups" in finding.advice) == (mode == 0o660)
        assert ("device_ownership" in finding.advice) == (mode & 0o600 == 0o600)


@pytest.mark.parametrize(("permissions", "result"), [("r", Outcome.OK), ("rw", Outcome.PROBLEM)])
def test_a_read_only_device_needs_only_read_permission(permissions: str, result: Outcome) -> None:
    """What the plugin permits is what the user has to be permitted."""
    spec = DeviceSpec("/dev/host0", "/dev/w0", permissions)
    held = replace(HELD, response=ContainerAllocateResponse(devices=[spec]))
    finding = only(judge_inside(held, [replace(THERE, mode=0o640)], {}), Step.CONTAINER)
    assert finding.result is result


# ---------------------------------------------------------------- whose process it is

POD = "default/train"
MAIN = ProcessFacts(40, "train", POD, "main")


def test_the_containers_of_a_pod_are_distinguished() -> None:
    """Root in another container of the pod opens nothing for the user of this one."""
    mine = replace(THERE, process=MAIN, groups=())
    root = replace(
        mine, process=ProcessFacts(30, "sh", POD, "sidecar"), runs_as=0, is_above_modes=True
    )
    finding = only(inside(root, mine), Step.CONTAINER)
    assert finding.looked_at == f"container main of pod {POD}"
    assert "train (user 1000, groups none) may not open it" in finding.found


@pytest.mark.parametrize(
    "sandbox", [ProcessFacts(20, "anything", POD, SANDBOX), ProcessFacts(20, "catatonit", POD)]
)
@pytest.mark.parametrize("others", [(), (replace(THERE, process=replace(MAIN, container="x")),)])
def test_a_sandbox_is_not_a_container(
    sandbox: ProcessFacts, others: tuple[ContainerFile, ...]
) -> None:
    """It never has the device; the container has not started, which its pod's events explain."""
    (finding,) = inside(replace(THERE, process=sandbox, kind=""), *others)
    assert (finding.step, finding.result) == (Step.CONTAINER, Outcome.UNKNOWN)
    assert finding.command == "kubectl describe pod --namespace default train"


def test_the_first_process_of_a_container_decides() -> None:
    """Workers of other users are told, and are no problem: it may open the device for them."""
    first = replace(THERE, process=replace(MAIN, pid=90), is_main=True)
    worker = replace(first, process=MAIN, is_main=False, runs_as=33, groups=(33,))
    finding = only(inside(worker, first), Step.CONTAINER)
    assert finding.result is Outcome.OK
    assert finding.found == (
        "/dev/w0 is in it, train (user 1000) may open it; other processes in it, of user 33, "
        "may not"
    )
    finding = only(inside(replace(first, groups=()), replace(worker, groups=(44,))), Step.CONTAINER)
    assert finding.result is Outcome.PROBLEM


@pytest.mark.parametrize(
    ("cgroup", "result"),
    [
        ("a *:* rwm", Outcome.OK),
        ("c 1:3 rwm\nc 195:0 rw", Outcome.OK),
        ("c 195:0 r", Outcome.PROBLEM),
        ("b 195:0 rw", Outcome.PROBLEM),
        ("c 195:* m", Outcome.PROBLEM),
        ("", Outcome.PROBLEM),
        (None, Outcome.UNKNOWN),
    ],
)
def test_permissions_of_a_version_1_cgroup(cgroup: str | None, result: Outcome) -> None:
    """Version 1 tells; of version 2 nothing can be read, and a command tries it."""
    finding = only(inside(replace(THERE, cgroup=cgroup)), Step.CGROUP)
    assert finding.result is result
    if cgroup is None:
        assert finding.command == ""  # without a name of its pod nobody can enter its cgroup
        named = replace(THERE, process=MAIN, cgroup=None)
        assert only(inside(named), Step.CGROUP).command == (
            "kubectl exec --namespace default train --container main -- head -c 0 /dev/w0"
        )
