"""Additions to every answer, and answers as CDI devices."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError, UsageError
from kubedevices.host.cdi_inventory import CdiInventory
from kubedevices.rules.answer_cdi import AnswerCdi
from tests.middleware_rig import scanned
from tests.rules.test_share import Vendor
from tests.widgets import Widgets, widgets


@pytest.mark.parametrize("plugin", [Vendor, Widgets])
async def test_every_answer_is_added_to(plugin: type[Widgets]) -> None:
    """The plugin's own and the framework's alike; the rule changes without a restart."""
    rule = kd.InjectRule(env={"IDS": "{id}"}, annotations={"numa": "{numa}"})
    devices = [kd.Device("w0", numa_nodes=[0]), kd.Device("w1", numa_nodes=[1])]
    async with scanned(scanner := kd.Injected(plugin(widget=devices), rule)) as served:
        answer = await served.allocate("w1", "w0")
        assert answer.env["IDS"] == "w0,w1"
        assert answer.annotations == {"numa": "0,1"}
        scanner.use({"widget": kd.InjectRule(env={"OTHER": "1"})})
        answer = await served.allocate("w1")
        assert ("IDS" in answer.env, answer.env["OTHER"]) == (False, "1")
        scanner.use({})
        assert "OTHER" not in (await served.allocate("w1")).env
    assert scanner.counts["widget", "injected"] == 2


async def test_a_shared_device_has_the_id_that_its_plugin_knows() -> None:
    """And one number, however many of its replicas a container has."""
    shared = kd.Shared(Vendor(widget=widgets("w::0")), replicas=2)
    rule = kd.InjectRule(env={"W{index}": "{id}"})
    async with scanned(kd.Injected(shared, rule)) as served:
        answer = await served.allocate("w::0::0", "w::0::1")
    assert answer.env == {"VISIBLE": "w::0", "W0": "w::0"}


async def test_a_replaced_value_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """And counted each time."""
    scanner = kd.Injected(Vendor(widget=widgets("w0")), kd.InjectRule(env={"VISIBLE": "none"}))
    with caplog.at_level(logging.WARNING):
        async with scanned(scanner) as served:
            for _ in range(2):
                assert (await served.allocate("w0")).env == {"VISIBLE": "none"}
    assert scanner.counts["widget", "replaced"] == 2
    assert caplog.text.count("inject replaces VISIBLE of the plugin") == 1


async def test_two_devices_in_one_place_refuse_the_container() -> None:
    """With the device, not with a message about the plugin."""
    rule = kd.InjectRule(devices=(kd.DeviceSpec("/dev/{id}", "/dev/card"),))
    async with scanned(kd.Injected(Vendor(widget=widgets("w0", "w1")), rule)) as served:
        with pytest.raises(RpcError, match="device w1 puts /dev/w1 at /dev/card"):
            await served.allocate("w0", "w1")


def edits_in(directory: Path) -> dict[str, Any]:
    """Return the edits of each CDI device by its qualified name."""
    return {
        f"{spec['kind']}={device['name']}": device["containerEdits"]
        for file in directory.iterdir()
        if (spec := json.loads(file.read_text()))
        for device in spec["devices"]
    }


async def test_device_files_and_mounts_move_into_cdi(tmp_path: Path) -> None:
    """The plugin's and the rule's; equal answers have one name, which outlives us."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/card").symlink_to("card0")
    device = kd.Device("w0", paths=["/dev/card"], env={"W": "0"}, mounts=[kd.Mount("/x", "/x")])
    rule = kd.InjectRule(devices=(kd.DeviceSpec("/dev/ctl"),), cdi=True)
    options: Any = {
        "domain": "example.com",
        "cdi_dir": tmp_path / "cdi",
        "dev_root": tmp_path / "dev",
    }
    names: list[str] = []
    for _ in range(2):
        async with scanned(kd.Injected(Widgets(widget=[device]), rule, **options)) as served:
            assert len(edits_in(tmp_path / "cdi") if names else ()) == len(names)
            answer = await served.allocate("w0")
            assert await served.allocate("w0") == answer
        assert answer == kd.ContainerAllocateResponse(
            env={"W": "0"}, cdi_devices=answer.cdi_devices
        )
        names += answer.cdi_devices
    assert names[0] == names[1]
    ((name, edits),) = edits_in(tmp_path / "cdi").items()
    assert name == names[0]
    assert name.startswith("example.com/widget-answer=")
    assert [each.get("hostPath", each["path"]) for each in edits["deviceNodes"]] == [
        "/dev/card0",
        "/dev/ctl",
    ]
    assert [each["containerPath"] for each in edits["mounts"]] == ["/x"]


async def test_a_cdi_file_that_cannot_be_written_refuses_the_container(tmp_path: Path) -> None:
    """It would start without its devices."""
    (tmp_path / "cdi").write_text("no directory")
    scanner = kd.Injected(
        Widgets(widget=[kd.Device("w0", paths=["/dev/w0"])]),
        kd.InjectRule(cdi=True),
        domain="example.com",
        cdi_dir=tmp_path / "cdi",
    )
    async with scanned(scanner) as served:
        with pytest.raises(RpcError, match="cdi"):
            await served.allocate("w0")


def test_the_cdi_devices_of_a_kind_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest go first."""
    monkeypatch.setattr("kubedevices.rules.answer_cdi.DEVICES_LIMIT", 2)
    cdi = AnswerCdi("example.com", tmp_path)
    names = [cdi.name_for("w", [kd.DeviceSpec(f"/dev/{i}")], []) for i in range(3)]
    assert sorted(edits_in(tmp_path)) == sorted(names[1:])


def test_the_cdi_devices_of_an_earlier_process_stay(tmp_path: Path) -> None:
    """A container that was given one is started again by its name."""
    names = []
    for path in ("/dev/a", "/dev/b"):
        cdi = AnswerCdi("example.com", tmp_path)
        names.append(cdi.name_for("w", [kd.DeviceSpec(path)], []))
        cdi.close()
    assert sorted(edits_in(tmp_path)) == sorted(names)


def test_cdi_needs_a_domain(tmp_path: Path) -> None:
    """Of which CDI can make a vendor."""
    rule = kd.InjectRule(cdi=True)
    with pytest.raises(UsageError, match="give Injected the domain"):
        kd.Injected(Widgets(), rule)
    with pytest.raises(UsageError, match="give Injected the domain"):
        kd.Injected(Widgets(), kd.InjectRule()).use(rule)
    with pytest.raises(UsageError, match=r"vendor 'Example\.com' must be .* in lower case"):
        AnswerCdi("Example.com", tmp_path)


def test_the_line_of_the_start_says_what_is_added() -> None:
    """By name or place."""
    rule = kd.InjectRule(env={"A": "1"}, mounts=(kd.Mount("/x", "/y"),), cdi=True)
    scanner = kd.Injected(Widgets(), {"gpu": rule}, domain="example.com")
    assert scanner.line() == "adds to answers for gpu A, /y, as CDI devices"


def names_after_removal(directory: Path) -> list[str]:
    """Return the CDI devices that are left after another process has removed files of the dead."""
    CdiInventory(directory, read_also=()).remove_dead({"example.com"})
    return sorted(edits_in(directory))


async def test_cdi_files_of_an_earlier_process_are_ours_from_the_first_list_on(
    tmp_path: Path,
) -> None:
    """Before any answer: another process removes files that nobody holds."""
    cdi = AnswerCdi("example.com", tmp_path)
    name = cdi.name_for("widget", [kd.DeviceSpec("/dev/a")], [])
    cdi.close()
    plugin = Widgets(widget=widgets("w0"), other=widgets("o0"))
    rules = {"widget": kd.InjectRule(cdi=True)}
    scanner = kd.Injected(plugin, rules, domain="example.com", cdi_dir=tmp_path)
    for _ in range(2):
        async with scanned(scanner):
            assert names_after_removal(tmp_path) == [name]
    assert names_after_removal(tmp_path) == []
