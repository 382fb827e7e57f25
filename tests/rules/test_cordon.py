"""Devices that a file cordons."""

import logging
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError, StatusCode
from kubedevices.plugin.scanners import static
from kubedevices.rules.cordon import Cordoned, CordonList
from kubedevices.rules.cordon_file import CordonEntry, change_cordoned
from tests.middleware_rig import Scanned, scanned
from tests.widgets import Widgets, widgets

RESOURCE = "example.com/widget"


def say(path: Path, **reasons: str) -> None:
    """Let the file have these devices, and no others."""
    change_cordoned(path, lambda _: [CordonEntry(RESOURCE, *each) for each in reasons.items()])


def unhealthy(tree: kd.DeviceTree) -> list[str]:
    return [each.id for each in tree.devices("widget").values() if not each.is_healthy]


async def refused(plugin: Scanned, *ids: str) -> str:
    with pytest.raises(RpcError) as caught:
        await plugin.allocate(*ids)
    assert caught.value.code is StatusCode.FAILED_PRECONDITION
    return caught.value.message


async def test_a_device_is_out_as_long_as_the_file_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unhealthy, refused with the reason; the others go on, and later the device itself."""
    caplog.set_level(logging.INFO)
    path = tmp_path / "state/maintenance.json"
    plugin = Cordoned(Widgets(widget=widgets("a", "b")), "example.com", path)
    async with scanned(plugin) as served:
        assert unhealthy(served.tree) == []
        say(path, a="fan is loud")
        assert unhealthy(await served.next_tree()) == ["a"]
        assert await refused(served, "b", "a") == "device a is cordoned: fan is loud"
        assert (await served.allocate("b")).env == {"WIDGET": "b"}
        say(path)
        assert unhealthy(await served.next_tree()) == []
        assert (await served.allocate("a")).env == {"WIDGET": "a"}
    assert plugin.counts == {
        ("widget", "cordoned"): 1,
        ("widget", "refused"): 1,
        ("widget", "uncordoned"): 1,
    }
    assert "example.com/widget: a is cordoned: fan is loud" in caplog.messages
    assert "example.com/widget: a is uncordoned" in caplog.messages


async def test_a_cordoned_device_is_out_from_the_first_list_on(tmp_path: Path) -> None:
    """A restart does not give a device away for a moment."""
    path = tmp_path / "maintenance.json"
    say(path, b="broken")
    async with scanned(
        Cordoned(static(kd.DeviceTree({"widget": widgets("a", "b")})), "example.com", path)
    ) as served:
        assert unhealthy(served.tree) == ["b"]


async def test_a_damaged_file_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was out stays out, until the file says something again; the next damage is news."""
    path = tmp_path / "maintenance.json"
    say(path, a="broken")
    plugin = Cordoned(Widgets(widget=widgets("a", "b")), "example.com", path)
    async with scanned(plugin) as served:
        path.write_text("{")
        await plugin.read_now()
        await plugin.read_now()
        assert unhealthy(served.tree) == ["a"]
        assert "is cordoned" in await refused(served, "a")
        told = [text for text in caplog.messages if "what was cordoned" in text]
        assert len(told) == 1
        path.unlink()
        assert unhealthy(await served.next_tree()) == []
        path.write_text("{")
        await plugin.read_now()
    assert plugin.counts["", "failed_readings"] == 2


async def test_an_unreadable_directory_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator who cordons there would believe that the device is out."""
    (tmp_path / "loop").symlink_to("loop")
    plugin = Cordoned(
        Widgets(widget=widgets("a")), "example.com", tmp_path / "loop/maintenance.json"
    )
    async with scanned(plugin) as served:
        assert unhealthy(served.tree) == []
    assert "cannot read" in caplog.text
    assert plugin.counts == {("", "failed_readings"): 1}


async def test_without_its_directory_the_file_cordons_nothing(tmp_path: Path) -> None:
    """A file in place of the directory has no file in it either."""
    (tmp_path / "state").touch()
    plugin = Cordoned(
        Widgets(widget=widgets("a")), "example.com", tmp_path / "state/maintenance.json"
    )
    async with scanned(plugin) as served:
        assert unhealthy(served.tree) == []
    assert not plugin.counts


def test_the_reason_for_a_replica_comes_before_that_for_its_device() -> None:
    """Both may be in the file."""
    both = [(RESOURCE, "b", "fan"), (RESOURCE, "b::1", "reserved")]
    for cordoned in (both, both[::-1]):
        assert CordonList("example.com", cordoned).reason("widget", "b::1") == "reserved"
        assert CordonList("example.com", cordoned).reason("widget", "b::0") == "fan"


TREE = kd.DeviceTree({"widget": widgets("a", "b::0", "b::1", "c"), "other": widgets("a")})


@pytest.mark.parametrize(
    ("cordoned", "out"),
    [
        ("example.com/widget a", "a"),
        ("example.com/widget b", "b::0 b::1"),
        ("example.com/widget b::1", "b::1"),
        ("example.com/widget c::3", "c"),
        ("example.org/widget a", ""),
        ("example.com/widget x", ""),
    ],
)
def test_a_replica_and_its_device_mean_each_other(cordoned: str, out: str) -> None:
    """Where only one of the two is listed."""
    resource, device_id = cordoned.split()
    decision = CordonList("example.com", [(resource, device_id, "why")])
    changed = decision.applied(TREE)
    assert unhealthy(changed) == out.split()
    reasons = {changed.devices("widget")[each].reason for each in out.split()}
    assert reasons <= {"cordoned: why"}
    assert len(reasons) == bool(out)
    assert changed.devices("other") == TREE.devices("other")
    assert (changed is TREE) is (out == "")
    assert [*changed.devices("widget")] == [*TREE.devices("widget")]
