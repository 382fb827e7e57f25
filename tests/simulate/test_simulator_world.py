"""Several simulated resources, and what happens to them."""

import asyncio
import logging
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubedevices.cli import main
from kubedevices.errors import CannotAsk, ConfigError, UsageError
from kubedevices.plugin.capabilities import PreferredAllocator
from kubedevices.plugin.notifier import Notifier
from kubedevices.rules.faults import FaultRule, PreStart
from kubedevices.rules.step_control import list_simulated, tell
from kubedevices.simulate.answers import answers_for
from kubedevices.simulate.config import SimulatorConfig
from kubedevices.simulate.devices import SimulatedDevices, with_cdi
from kubedevices.simulate.files import StandInFiles, make_device_file
from kubedevices.simulate.settings import Timeline, check_timeline, merge_resources
from kubedevices.simulate.simulation_file import preset_file, preset_names, read_simulator_file
from kubedevices.simulate.simulator import Simulator
from kubedevices.simulate.step_keys import TimedStep, step_of
from kubedevices.values.allocation import (
    ContainerPreferredRequest,
    PreferredAllocationRequest,
)
from kubedevices.values.cdi import ContainerEdits, DeviceNode
from kubedevices.values.device import Device, DeviceSpec, Mount
from tests.host_needs import needs
from tests.waiting import until

GPU = SimulatorConfig(
    resource_name="example.com/gpu", number_devices=3, device_id_prefix="g", node_name="n"
)
NIC = replace(GPU, resource_name="example.com/nic", number_devices=1, device_id_prefix="e")


def health(devices: SimulatedDevices, name: str = "gpu") -> dict[str, str]:
    return {each.id: str(each.health)[0] for each in devices.of(name).values()}


def step(**request: Any) -> Any:
    return step_of(request)


# ---------------------------------------------------------------- steps


def test_each_kind_of_step_changes_the_devices() -> None:
    """To the devices that a glob names, of one resource or of all."""
    devices = SimulatedDevices([GPU, NIC])
    assert devices.apply(step(set={"id": "*-2", "health": "Unhealthy"})) == 1
    assert health(devices) == {"g-n-0": "H", "g-n-1": "H", "g-n-2": "U"}
    assert devices.apply(step(resource="gpu", count=4)) == 1
    assert health(devices) == {"g-n-0": "H", "g-n-1": "H", "g-n-2": "U", "g-n-3": "H"}
    assert devices.apply(step(resource="gpu", count=3)) == 1
    assert devices.apply(step(remove="g-n-[01]")) == 2
    assert str(step(remove="😀")) == "😀 removed"
    assert health(devices) == {"g-n-2": "U"}
    assert devices.apply(step(resource="gpu", add=["spare", "other"])) == 2
    assert health(devices) == {"g-n-2": "U", "spare": "H", "other": "H"}
    assert devices.apply(step(set={"health": "Unhealthy"})) == 4
    assert health(devices, "nic") == {"e-n-0": "U"}
    devices.start_again()
    assert health(devices) == {"g-n-0": "H", "g-n-1": "H", "g-n-2": "H"}
    with pytest.raises(UsageError, match="unknown resource 'x', known: gpu, nic"):
        devices.apply(step(resource="x", count=0))


def test_a_device_gets_the_lowest_index_that_is_free() -> None:
    """No two have the same, so no two share a path, and a NUMA node is that of the index."""
    config = replace(GPU, env_prefix="E", numa_nodes={0: 7})
    devices = SimulatedDevices([config])

    def paths() -> dict[str, str]:
        return {each.id: each.env[f"E_{each.id}"] for each in devices.of("gpu").values()}

    devices.apply(step(remove="*-0"))
    assert devices.apply(step(add=["spare", "other"])) == 2
    assert paths() == {
        "g-n-1": "/dev/1", "g-n-2": "/dev/2", "spare": "/dev/0", "other": "/dev/3",
    }  # fmt: skip
    assert devices.of("gpu")["spare"].numa_nodes == (7,)
    devices.apply(step(set={"health": "Unhealthy"}))
    devices.apply(step(add=["other"]))  # which is there: it is healthy again, and no other device
    assert paths()["other"] == "/dev/3"
    assert health(devices) == {"g-n-1": "U", "g-n-2": "U", "spare": "U", "other": "H"}


def test_a_count_leaves_the_first_and_adds_what_is_missing() -> None:
    """Whatever they are called; an ID that is taken is passed over."""
    devices = SimulatedDevices([replace(GPU, number_devices=2)])
    devices.apply(step(add=["spare"]))
    assert devices.apply(step(count=3)) == 0
    assert [*devices.of("gpu")] == ["g-n-0", "g-n-1", "spare"]
    devices.apply(step(remove="*-0"))
    devices.apply(step(add=["g-n-4"]))
    assert devices.apply(step(count=5)) == 2
    assert [*devices.of("gpu")] == ["g-n-1", "spare", "g-n-4", "g-n-3", "g-n-5"]
    assert devices.apply(step(count=2)) == 3
    assert [*devices.of("gpu")] == ["g-n-1", "spare"]
    assert devices.apply(step(count=0)) == 2


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({}, "one of set, count, remove, add, faults is needed"),
        ({"count": 1, "remove": "x"}, "use only one of count and remove"),
        ({"count": -1}, "count: -1 is negative"),
        ({"count": 3_000_000}, "count: 3000000 is more than any list holds"),
        ({"count": None}, "one of set, count"),
        ({"remove": 5}, "remove: must be text, not a number"),
        ({"remove": ""}, "remove: this text is empty"),
        ({"resource": 5, "count": 1}, "resource: must be text, not a number"),
        ({"set": None}, "one of set, count"),
        ({"add": []}, "add: this list is empty .a list of IDs."),
        ({"add": ["a\0b"]}, r"'a\\x00b' cannot be the ID of a device"),
        ({"count": True}, "count: must be a whole number, not true or false"),
        ({"set": "x"}, "write 'set:"),
        (
            {"set": {"health": "Sick"}},
            "'Sick' is not known, must be Healthy or",
        ),
        ({"add": "x"}, "add: must be a list, not text .a list of IDs."),
        ({"at": "3s", "count": 1}, "at: unknown key"),
        ({"remove": "\ud800"}, "this is not UTF-8 text"),
        ({"count": "x", "remove": 5}, "the step: count: .*; the step: remove: "),
        ({"faults": 5}, "must be keys and values, not a number"),
        ({"faults": {"failAllocate": 2}}, "failAllocate: unknown key .did you mean 'failAlloc"),
        ({"faults": {"failAllocateEvery": 0}}, "must be 1 or more, not 0"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(request_: dict[str, Any], problem: str) -> None:
    """Before anything happens."""
    with pytest.raises(UsageError, match=problem):
        step_of(request_)


# ---------------------------------------------------------------- the file

FILE = """\
deviceIDPrefix: d
numaNodes: [0, 1]
faults: {allocateDelay: 10ms, failAllocateEvery: 3, dropStreamEvery: 30s, neverList: true}
resources:
- {resourceName: example.com/gpu, numberDevicesOnNode: 8, preferred: packed}
- resourceName: example.com/nic
  numaNodes: {0: 1}
  preStart: {delay: 1s, failEvery: 2}
  faults: {wrongIDs: true}
  createDeviceFiles: /tmp/x
timeline:
- {at: 2s, set: {id: "*-3", health: Unhealthy}}
- {at: 1s, resource: gpu, count: 4}
timelineLoop: true
"""


def read(tmp_path: Path, text: str) -> tuple[tuple[SimulatorConfig, ...], Timeline]:
    file = tmp_path / "simulate.yaml"
    file.write_text(text)
    settings = read_simulator_file(file)
    assert settings.warnings == ()
    return merge_resources(settings, {"NODE_NAME": "n"}, {}), settings.timeline


def test_resources_override_the_keys_of_the_file(tmp_path: Path) -> None:
    """Everything else is that of the file; steps are in the order of time."""
    (gpu, nic), timeline = read(tmp_path, FILE)
    assert (gpu.device_type, gpu.number_devices, gpu.numa_nodes) == ("gpu", 8, (0, 1))
    assert gpu.faults == FaultRule(
        allocate_delay=0.01, fail_allocate_every=3, drop_stream_every=30.0, never_list=True
    )
    assert (gpu.preferred, gpu.pre_start, gpu.create_device_files) == ("packed", None, "")
    assert (nic.device_type, nic.number_devices, nic.numa_nodes) == ("nic", 2, {0: 1})
    assert (nic.faults, nic.pre_start) == (
        FaultRule(wrong_ids=True),
        PreStart(delay=1, fail_every=2),
    )
    assert (nic.create_device_files, nic.device_id_prefix) == ("/tmp/x", "d")
    assert [(each.at, each.count) for each in timeline.steps] == [(1.0, 4), (2.0, None)]
    assert timeline.loop


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("example.com/nic", "example.org/nic", ":6:17: resources[1].resourceName: all resources "),
        ("example.com/nic", "example.com/gpu", "resourceName: 'example.com/gpu' appears twice"),
        ("example.com/nic", "nic", "resources[1].resourceName: 'nic' is not a resource name"),
        ("{0: 1}", "{7: 1}", ":7:14: resources[1].numaNodes: there is no device 7, only 2"),
        ("OnNode: 8", "OnNode: -8", "resources[0].numberDevicesOnNode: -8 is negative"),
        ("packed", "pack", "resources[0].preferred: 'pack' is not known, did you mean 'packed'?"),
        ("failEvery: 2", "failEvery: 0", "preStart.failEvery: must be 1 or more, not 0"),
        ("/tmp/x", "tmp", "createDeviceFiles: 'tmp' must be an absolute path"),
        ("at: 1s", "at: 1", "timeline[1].at: '1' is not a duration"),
        ("Unhealthy", "Broken", "timeline[0].set.health: 'Broken' is not known"),
        ("count: 4", "count: 3000000", "timeline[1].count: 3000000 is more than any list holds"),
        ("count: 4", "add: ['a\\tb', \"\\0\"]", "timeline[1].add[1]: '\\x00' cannot be the ID of"),
        (
            "numaNodes: [0, 1]",
            "numaNodes: [0, 2147483648]",
            "numaNodes: 2147483648 is not a NUMA",
        ),
        ("count: 4", "count: 4, remove: x", "timeline[1]: use only one of count and remove"),
        ("OnNode: 8", "OnNode: x", "resources[0].numberDevicesOnNode: must be a whole number"),
        (
            "com/nic\n",
            "com/3d\n  cdi: true\n",
            ":7:8: resources[1].cdi: no CDI device can",
        ),
        ("OnNode: 8", "OnNode: 8, cdi: maybe", "resources[0].cdi: must be true or false, not text"),
    ],
)
def test_a_mistake_names_its_place(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """Line and key, also within a list."""
    file = tmp_path / "simulate.yaml"
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        merge_resources(read_simulator_file(file), {}, {})
    assert problem in str(caught.value)


def test_shared_settings_are_checked_for_each_resource(tmp_path: Path) -> None:
    """The rest of the file alone is served by nobody."""
    text = (
        "resourceName: nonsense\n"
        "cdi: true\n"
        "numaNodes: {0: 0, 1: 0, 2: 1, 3: 1}\n"
        "resources:\n"
        "- {resourceName: example.com/gpu, numberDevicesOnNode: 4}\n"
        "- {resourceName: example.com/nic, numberDevicesOnNode: 4}\n"
    )
    configs, _ = read(tmp_path, text)
    assert [(each.device_type, each.number_devices, each.cdi) for each in configs] == [
        ("gpu", 4, True), ("nic", 4, True),
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text.replace("nic, numberDevicesOnNode: 4", "3d, numberDevicesOnNode: 2"))
    nodes, cdi = map(str, caught.value.problems)
    assert ":3:12: numaNodes: there is no device 2, only 2 devices of example.com/3d" in nodes
    assert ":2:6: cdi: no CDI device can have the name example.com/3d=...: the class" in cdi


def test_a_mistake_that_resources_share_is_reported_once(tmp_path: Path) -> None:
    """Not for each of them."""
    text = "pluginName: a/b\nresources: [{resourceName: x.y/a}, {resourceName: x.y/b}]\n"
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (1, "pluginName")


def test_the_preset_is_eight_gpus_on_two_nodes() -> None:
    """Whose health changes, over and over."""
    settings = read_simulator_file(preset_file("eight-gpus"))
    (config,) = merge_resources(settings, {"NODE_NAME": "n"}, {})
    devices = SimulatedDevices([config])
    nodes = [each.numa_nodes for each in devices.of("gpu").values()]
    assert nodes == [(0,)] * 4 + [(1,)] * 4
    assert settings.timeline.loop
    concerned = [devices.apply(each) for each in settings.timeline.steps]
    assert concerned == [1, 1, 4, 8, 1, 7]


def test_a_preset_works_with_fewer_devices() -> None:
    """A step for devices that do not exist changes no other device."""
    settings = read_simulator_file(preset_file("eight-gpus"))
    (config,) = merge_resources(settings, {"NODE_NAME": "n", "NUMBER_DEVICES": "4"}, {})
    devices = SimulatedDevices([config])
    there = [*devices.of("gpu")]
    assert len(there) == 4
    for each in settings.timeline.steps:
        devices.apply(each)
        assert [*devices.of("gpu")] == there


@pytest.mark.parametrize("name", preset_names())
async def test_a_preset_warns_of_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It has no variables, whose names would be none for a shell; each step changes something."""
    settings = read_simulator_file(preset_file(name))
    configs = merge_resources(settings, {"NODE_NAME": "n"}, {})
    check_timeline(settings.timeline, configs)
    await Simulator(*configs).scan(Notifier())
    assert caplog.messages == []
    assert settings.warnings == ()
    devices = SimulatedDevices(configs)
    assert all(devices.apply(each) for each in settings.timeline.steps)


def test_the_presets_are_named_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, so that a user can choose."""
    assert main(["simulate", "--help"]) == 0
    text = "".join(capsys.readouterr().out.split())  # argparse cuts words at their hyphens
    assert [each for each in preset_names() if each not in text] == []


# ---------------------------------------------------------------- answers


async def test_abilities_are_only_those_asked_for() -> None:
    """A kubelet asks for what a plugin says it can."""
    for preferred in (None, "none"):
        config = replace(GPU, preferred=preferred)
        answers = answers_for(config, SimulatedDevices([config]))
        assert isinstance(answers, PreferredAllocator) is (preferred is not None)


async def test_policies_see_numa_nodes_as_physical_devices() -> None:
    """So that two containers share no node if they need not."""

    async def preferred(config: SimulatorConfig) -> Any:
        answers: Any = answers_for(config, SimulatedDevices([config]))
        container = ContainerPreferredRequest(tuple(f"g-n-{i}" for i in range(4)), (), 2)
        response = await answers.get_preferred_allocation(PreferredAllocationRequest((container,)))
        return response.containers

    config = replace(GPU, number_devices=4, numa_nodes={0: 0, 1: 0, 2: 1, 3: 1})
    assert await preferred(replace(config, preferred="none")) == (["g-n-0", "g-n-2"],)
    assert await preferred(replace(config, preferred="packed")) == (["g-n-0", "g-n-1"],)


# ---------------------------------------------------------------- running


@asynccontextmanager
async def simulating(simulator: Simulator) -> AsyncIterator[Notifier]:
    stopped = asyncio.Event()
    notifier = Notifier(wait_stopped=stopped.wait)
    task = asyncio.create_task(simulator.scan(notifier))
    try:
        yield notifier
    finally:
        stopped.set()
        await asyncio.wait_for(task, 10)


def seen(notifier: Notifier) -> dict[str, str]:
    devices = notifier.take()[0].devices("gpu").values()
    return {each.id: str(each.health)[0] for each in devices}


async def test_a_timeline_is_played() -> None:
    """Once: what it leaves stays."""
    timeline = Timeline(
        (TimedStep(at=0.02, count=1), TimedStep(at=0.04, add=("spare",))), loop=False
    )
    async with simulating(Simulator(GPU, timeline=timeline)) as notifier:
        await until(lambda: seen(notifier) == {"g-n-0": "H", "spare": "H"})


def test_a_step_of_an_unknown_resource_is_an_error(tmp_path: Path) -> None:
    """Told before it is due, with its place; in the order of the file's lines or not."""
    configs, timeline = read(tmp_path, FILE.replace("resource: gpu", "resource: gpus"))
    with pytest.raises(ConfigError, match="unknown resource 'gpus', known: gpu, nic") as caught:
        check_timeline(timeline, configs)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (13, "timeline[1].resource")
    configs, timeline = read(tmp_path, FILE)
    check_timeline(timeline, configs)


async def test_the_error_of_a_step_ends_the_scan(tmp_path: Path) -> None:
    """A device file that cannot be made ends the simulator, as it would at its start."""
    made = tmp_path / "dev"
    config = replace(GPU, device_file_prefix="gpu", create_device_files=str(made))
    simulator = Simulator(config, timeline=Timeline((TimedStep(at=0.1, count=4),)))
    notifier = Notifier(wait_stopped=asyncio.Event().wait)
    scan = asyncio.create_task(simulator.scan(notifier))
    await until(lambda: notifier.has_tree)
    shutil.rmtree(made)
    made.touch()
    with pytest.raises(CannotAsk, match="cannot create"):
        await asyncio.wait_for(scan, 10)


async def test_a_timeline_in_a_loop_begins_again() -> None:
    """With everything as it was."""
    timeline = Timeline((TimedStep(at=0.05, count=1),), loop=True)
    async with simulating(Simulator(GPU, timeline=timeline)) as notifier:
        for _ in range(3):
            await until(lambda: len(seen(notifier)) == 3)
            await until(lambda: len(seen(notifier)) == 1)


async def test_faults_are_switched_by_the_timeline() -> None:
    """For one resource, until the next step; a loop begins with those of the configuration."""
    delay = FaultRule(allocate_delay=1.0)
    told: list[dict[str, FaultRule]] = []
    timeline = Timeline(
        (
            TimedStep(at=0.02, resource="gpu", faults=FaultRule(fail_allocate_every=2)),
            TimedStep(at=0.04, faults=FaultRule()),
        ),
        loop=True,
    )
    simulator = Simulator(replace(GPU, faults=delay), NIC, timeline=timeline)
    simulator.on_faults = lambda rules: told.append(dict(rules))
    async with simulating(simulator):
        await until(lambda: len(told) >= 3)
    none = FaultRule()
    assert told[:3] == [
        {"gpu": FaultRule(fail_allocate_every=2), "nic": none},
        {"gpu": none, "nic": none},
        {"gpu": delay, "nic": none},
    ]


async def test_steps_come_through_the_control_socket(short_dir: Path) -> None:
    """In the words of a timeline; a wrong one is told so."""
    socket = short_dir / "sim.sock"
    async with simulating(Simulator(GPU, NIC, control=socket)) as notifier:
        await until(socket.exists)
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert await tell(socket, {"set": {"id": "g-n-1", "health": "Unhealthy"}}) == 1
        assert seen(notifier) == {"g-n-0": "H", "g-n-1": "U", "g-n-2": "H"}
        assert await list_simulated(socket) == {
            "gpu": {"g-n-0": "Healthy", "g-n-1": "Unhealthy", "g-n-2": "Healthy"},
            "nic": {"e-n-0": "Healthy"},
        }
        assert await tell(socket, {"resource": "gpu", "faults": {"allocateDelay": "1s"}}) == 3
        with pytest.raises(UsageError, match="one of set, count"):
            await tell(socket, {})
        with pytest.raises(UsageError, match="unknown resource 'x'"):
            await tell(socket, {"resource": "x", "count": 1})
    assert not socket.exists()


async def test_nothing_is_reported_while_the_hold_file_exists(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleting the file is the word to go."""
    caplog.set_level(logging.INFO)
    file = tmp_path / "hold"
    file.touch()
    async with simulating(Simulator(GPU, hold_file=file)) as notifier:
        await until(lambda: f"not registering before {file} is deleted" in caplog.messages)
        assert not notifier.has_tree
        file.unlink()
        await until(lambda: len(seen(notifier)) == 3)


async def test_steps_can_be_taken_while_nothing_is_reported(
    tmp_path: Path, short_dir: Path
) -> None:
    """They are in the first report."""
    hold, socket = tmp_path / "hold", short_dir / "sim.sock"
    hold.touch()
    async with simulating(Simulator(GPU, hold_file=hold, control=socket)) as notifier:
        await until(socket.exists)
        assert await tell(socket, {"count": 1}) == 2
        assert not notifier.has_tree
        hold.unlink()
        await until(lambda: seen(notifier) == {"g-n-0": "H"})


@needs("mknod")
async def test_device_files_are_made_and_removed(tmp_path: Path) -> None:
    """Where they are asked for; the container sees them in /dev. Others' files stay."""
    (tmp_path / "dev").mkdir()
    for name in ("gpu-2", "mine"):
        (tmp_path / "dev" / name).touch()
    config = replace(GPU, device_file_prefix="gpu", create_device_files=str(tmp_path / "dev"))
    async with simulating(Simulator(config)) as notifier:
        await until(lambda: notifier.has_tree)
        (spec,) = notifier.take()[0].devices("gpu")["g-n-1"].specs
        assert (spec.host_path, spec.container_path) == (f"{tmp_path}/dev/gpu-1", "/dev/gpu-1")
        made = sorted(each.name for each in (tmp_path / "dev").iterdir())
        assert made == ["gpu-0", "gpu-1", "gpu-2", "mine"]
    assert sorted(each.name for each in (tmp_path / "dev").iterdir()) == ["gpu-2", "mine"]


def test_a_device_file_is_a_plain_one_where_no_other_is_permitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there stays; what cannot be made is told."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", refuse)
    make_device_file(tmp_path / "a/gpu-0")
    assert (tmp_path / "a/gpu-0").is_file()
    (tmp_path / "a/gpu-0").write_text("mine")
    make_device_file(tmp_path / "a/gpu-0")
    assert (tmp_path / "a/gpu-0").read_text() == "mine"
    with pytest.raises(CannotAsk, match=r"cannot create .*: File exists"):
        make_device_file(tmp_path / "a/gpu-0/below")


def test_a_device_file_is_for_every_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like /dev/null: a container need not be root to write to it. No umask takes that away."""

    def make(path: Path, mode: int, device: int) -> None:  # which not every test may
        assert (stat.S_ISCHR(mode), device) == (True, os.makedev(1, 3))
        path.touch(stat.S_IMODE(mode))

    monkeypatch.setattr(os, "mknod", make)
    before = os.umask(0o027)
    try:
        make_device_file(tmp_path / "gpu-0")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "gpu-0").stat().st_mode) == 0o666


def test_files_of_a_killed_simulator_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed at the next clean end. A file, a link, or another device is not."""
    null, zero = os.lstat("/dev/null"), os.lstat("/dev/zero")
    left = {"gpu-0": null, "gpu-1": zero, "gpu-2": None, "gpu-3": None}
    for name in ("gpu-0", "gpu-1", "gpu-2"):
        (tmp_path / name).touch()
    (tmp_path / "gpu-3").symlink_to("/dev/null")
    lstat = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: left.get(path.name) or lstat(path))
    files = StandInFiles()
    files.give(Device("g", specs=[DeviceSpec(f"{tmp_path}/{name}") for name in left]))
    files.remove()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["gpu-1", "gpu-2", "gpu-3"]


async def test_a_plain_file_comes_as_a_mount(tmp_path: Path) -> None:
    """No engine takes it for a device, neither in an answer nor in CDI."""
    (tmp_path / "gpu-0").touch()
    config = replace(GPU, number_devices=1, device_file_prefix="gpu", cdi=True)
    config = replace(config, create_device_files=str(tmp_path))
    async with simulating(Simulator(config)) as notifier:
        await until(lambda: notifier.has_tree)
        device = notifier.take()[0].devices("gpu")["g-n-0"]
        assert (device.specs, device.mounts) == ((), (Mount(f"{tmp_path}/gpu-0", "/dev/gpu-0"),))
        assert device.cdi.device_nodes == ()
        assert [each.container_path for each in device.cdi.mounts] == ["/dev/gpu-0"]


def test_a_simulated_cdi_device_has_all_that_the_device_gives() -> None:
    """One that gives nothing sets a variable, since in CDI every device must do something."""
    spec = DeviceSpec("/made/gpu-0", "/dev/gpu-0")
    assert with_cdi(Device("g-0", specs=[spec], env={"GPU_g-0": "/dev/0"})).cdi == ContainerEdits(
        env=("GPU_g-0=/dev/0",),
        device_nodes=(DeviceNode("/dev/gpu-0", "/made/gpu-0", permissions="rw"),),
    )
    device = with_cdi(Device("g-n:0"))
    assert (device.cdi, dict(device.env)) == (ContainerEdits(env=("SIMULATED_g_n_0=g-n:0",)), {})


def test_several_resources_have_sockets_of_their_own() -> None:
    """Named after plugin and resource."""
    simulator = Simulator(GPU, NIC)
    assert simulator.socket_name("nic") == "simple-device-plugin-nic.sock"
    assert Simulator(GPU).socket_name("gpu") == "simple-device-plugin.sock"


def test_a_resource_may_name_its_plugin(tmp_path: Path) -> None:
    """The others keep the name that all share."""
    text = (
        "pluginName: top\n"
        "resources:\n"
        "- {resourceName: example.com/gpu, pluginName: one}\n"
        "- {resourceName: example.com/nic, pluginName: two}\n"
        "- {resourceName: example.com/fpga}\n"
    )
    simulator = Simulator(*read(tmp_path, text)[0])
    names = [simulator.socket_name(each) for each in ("gpu", "nic", "fpga")]
    assert names == ["one-gpu.sock", "two-nic.sock", "top-fpga.sock"]


def test_a_simulator_without_a_file_loads_no_yaml() -> None:
    """Its process is one of many on a node, and stays small."""
    code = "import sys, kubedevices.simulate.simulator; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
