"""Health that is damped, checked and overruled. What counts when is in `test_damping`."""

import time
from functools import partial
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import UsageError
from kubedevices.rules.cordon import Cordoned
from kubedevices.rules.cordon_file import add_cordoned, change_cordoned, read_cordoned
from kubedevices.rules.device_facts import DeviceFacts
from kubedevices.rules.health import Damped
from kubedevices.rules.health_gate import Check
from kubedevices.rules.health_rule import HealthRule
from tests.middleware_rig import Scanned, scanned
from tests.waiting import until
from tests.widgets import Widgets, widgets

QUICK = {"interval": 0.1, "fail_after": 1, "ok_after": 1}


def tree(unhealthy: str = "", ids: str = "a b") -> kd.DeviceTree:
    return kd.DeviceTree({"widget": widgets(*ids.split(), unhealthy=tuple(unhealthy.split()))})


def sick(reported: kd.DeviceTree) -> str:
    return " ".join(each.id for each in reported.devices("widget").values() if not each.is_healthy)


async def turns(served: Scanned, unhealthy: str) -> None:
    """Wait for a list with just these unhealthy devices."""
    while sick(served.tree) != unhealthy:
        await served.next_tree()


def test_a_health_change_is_reported_after_the_damping_time() -> None:
    """Each device by itself, in the order of the plugin; nothing to change is the same tree."""
    damped = Damped(Widgets(), HealthRule(unhealthy_after=5, healthy_after=30))
    well = tree()
    assert damped.change(well, 0.0) is well
    assert sick(damped.change(tree("b"), 10.0)) == ""
    changed = damped.change(tree("a b"), 15.0)
    assert sick(changed) == "b"
    assert [*changed.devices("widget")] == ["a", "b"]
    assert sick(damped.change(well, 16.0)) == "b"
    assert damped.change(well, 46.0) is well
    assert damped.counts == {("widget", "turned_unhealthy"): 1, ("widget", "turned_healthy"): 1}


async def test_a_health_report_takes_effect_by_a_timer() -> None:
    """The report needs no other report after it."""
    plugin = Widgets(widget=widgets("a", "b"))
    async with scanned(Damped(plugin, HealthRule(unhealthy_after=0.05))) as served:
        plugin.show(widget=widgets("a", "b", unhealthy=("a",)))
        assert sick(await served.next_tree()) == "a"


def test_a_rule_concerns_its_type_and_can_change() -> None:
    """Devices of other types pass; a new rule knows what was before."""
    damped = Damped(Widgets(), {"gadget": HealthRule(healthy_after=1e7)})
    for unhealthy in ("a", ""):
        assert sick(damped.change(tree(unhealthy), 0.0)) == unhealthy
    damped.use({"widget": HealthRule(unhealthy_after=60)})
    assert sick(damped.change(tree("a"), 10.0)) == "a"  # the first word decides
    damped.use({"widget": HealthRule(healthy_after=60)})
    assert sick(damped.change(tree(), 20.0)) == "a"
    damped.use({"widget": HealthRule(healthy_after=5)})
    assert sick(damped.change(tree(), 25.0)) == ""


def test_ignored_devices_are_healthy_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By glob."""
    damped = Damped(Widgets(), HealthRule(ignore=("a*", "x")))
    for _ in range(2):
        assert sick(damped.change(tree("a b"), 0.0)) == "b"
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("widget: a is always reported Healthy")


async def test_a_failed_check_makes_a_device_unhealthy(tmp_path: Path) -> None:
    """All checks must succeed; the placeholder is replaced by the ID."""
    (tmp_path / "a").write_text("ok")
    (tmp_path / "b").write_text("ok")
    checks = (
        Check(file=f"{tmp_path}/{{id}}", equals="ok", **QUICK),  # type: ignore[arg-type]
        Check(command=("test", "!", "-e", f"{tmp_path}/{{id}}.bad"), **QUICK),  # type: ignore[arg-type]
    )
    plugin = Widgets(widget=widgets("a", "b", "c", unhealthy=("c",)))
    async with scanned(Damped(plugin, HealthRule(checks=checks))) as served:
        await turns(served, "c")
        (tmp_path / "a.bad").touch()
        await turns(served, "a c")
        (tmp_path / "b").write_text("broken")
        await turns(served, "a b c")
        (tmp_path / "a.bad").unlink()
        await turns(served, "b c")


async def test_a_broken_device_is_never_healthy_before_its_first_check(tmp_path: Path) -> None:
    """Not in the first list, not as a new device, not when it returns: a pod would get it."""
    for each in "ac":
        (tmp_path / each).touch()
    rule = HealthRule(checks=(Check(command=("test", "-e", f"{tmp_path}/{{id}}"), interval=60),))
    plugin = Widgets(widget=widgets("a", "b"))
    async with scanned(Damped(plugin, rule)) as served:
        assert sick(served.tree) == "b"
        plugin.show(widget=widgets("a", "b", "c", "d"))
        assert sick(await served.next_tree()) == "b c d"
        assert reason(served.tree, "d") == "its first health check has not ended yet"
        await turns(served, "b d")
        plugin.show(widget=widgets("a"))
        await turns(served, "")
        plugin.show(widget=widgets("a", "b"))
        assert sick(await served.next_tree()) == "b"


def test_a_device_that_returns_waits_again_for_its_first_result() -> None:
    """For two seconds of its own, whether it was reported before or not."""
    damped = Damped(Widgets(), HealthRule(checks=(Check(command=("true",)),)))
    for now, ids, unhealthy in (
        (0.0, "a", "a"),
        (1.0, "b", "b"),
        (2.5, "a b", "a b"),
        (3.0, "a b", "a"),
        (4.5, "a b", ""),
        (5.0, "b", ""),
        (6.0, "a b", "a"),
        (8.0, "a b", ""),
    ):
        assert sick(damped.change(tree(ids=ids), now)) == unhealthy


async def test_the_checks_of_a_device_end_with_the_device(tmp_path: Path) -> None:
    """A tool must not be asked about a device that is gone."""
    check = Check(command=("touch", f"{tmp_path}/{{id}}"), interval=0.1)
    plugin = Widgets(widget=widgets("a", "b"))
    async with scanned(Damped(plugin, HealthRule(checks=(check,)))) as served:
        await until((tmp_path / "a").exists)
        plugin.show(widget=widgets("b"))
        while "a" in served.tree.devices("widget"):
            await served.next_tree()
        for _ in range(3):
            for each in tmp_path.iterdir():
                each.unlink()
            await until((tmp_path / "b").exists)
        assert not (tmp_path / "a").exists()


async def test_a_changed_check_is_the_next_that_runs(tmp_path: Path) -> None:
    """Of the same device, long before the check that it replaces is due again."""
    ran = tmp_path / "ran"
    rules = [
        HealthRule(checks=(Check(command=command, interval=3600),))
        for command in (("true",), ("touch", str(ran)))
    ]
    damped = Damped(Widgets(widget=widgets("a")), rules[0])
    async with scanned(damped) as served:
        await turns(served, "")
        damped.use({"widget": rules[1]})
        damped.look_again(0.0)
        await until(ran.exists)


async def test_a_list_waits_two_seconds_for_a_check_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the health by the plugin counts; the check itself fails later, at its own limit."""
    monkeypatch.setattr("kubedevices.rules.health.FIRST_LOOK", 0.05)
    rule = HealthRule(checks=(Check(command=("sleep", "60"), interval=60),))
    async with scanned(Damped(Widgets(widget=widgets("a")), rule)) as served:
        assert sick(served.tree) == ""


def reason(reported: kd.DeviceTree, device_id: str) -> str:
    return reported.devices("widget")[device_id].reason


async def test_a_failed_check_is_the_reason(tmp_path: Path) -> None:
    """Of the first check that fails; a changed reason is passed on, a repaired device has none."""
    (tmp_path / "a").write_text("ok")
    checks = (Check(file=f"{tmp_path}/{{id}}", equals="ok", **QUICK),)  # type: ignore[arg-type]
    plugin = Widgets(widget=widgets("a"))
    async with scanned(Damped(plugin, HealthRule(checks=checks))) as served:
        for text in ("hot", "fan"):
            (tmp_path / "a").write_text(text)
            while reason(served.tree, "a") != f"{tmp_path}/a says '{text}'":
                await served.next_tree()
            assert sick(served.tree) == "a"
        (tmp_path / "a").write_text("ok")
        await turns(served, "")
        assert reason(served.tree, "a") == ""


def test_damping_is_the_reason() -> None:
    """While the plugin calls the device healthy; the plugin's own reason stays otherwise."""
    damped = Damped(Widgets(), HealthRule(healthy_after=30, max_flaps=1))
    told = kd.DeviceTree({"widget": [kd.Device("a", health=kd.Health.UNHEALTHY, reason="fan")]})
    assert damped.change(told, 0.0) is told
    assert reason(damped.change(tree(ids="a"), 1.0), "a") == "healthy again for less than 30 s"
    assert reason(damped.change(tree(ids="a"), 40.0), "a") == ""
    quick = Damped(Widgets(), HealthRule(max_flaps=1))
    for now, unhealthy in enumerate(("", "a", "", "a", "")):
        last = quick.change(tree(unhealthy, ids="a"), float(now))
    assert sick(last) == "a"
    assert reason(last, "a") == "its health changed more than 1 times within an hour"


def test_a_damped_device_that_counts_as_healthy_has_no_reason() -> None:
    """The plugin's reason would contradict the health."""
    damped = Damped(Widgets(), HealthRule(unhealthy_after=30))
    damped.change(tree(ids="a"), 0.0)
    told = kd.DeviceTree({"widget": [kd.Device("a", health=kd.Health.UNHEALTHY, reason="fan")]})
    changed = damped.change(told, 1.0)
    assert (sick(changed), reason(changed, "a")) == ("", "")


async def test_a_command_decides_on_recovery(tmp_path: Path) -> None:
    """Of what the plugin calls Unhealthy and never Healthy again; of nothing else."""
    rule = HealthRule(recover=Check(command=("test", "-e", f"{tmp_path}/{{id}}"), **QUICK))  # type: ignore[arg-type]
    plugin = Widgets(widget=widgets("a", "b"))
    async with scanned(Damped(plugin, rule)) as served:
        plugin.show(widget=widgets("a", "b", unhealthy=("a",)))
        await turns(served, "a")
        (tmp_path / "a").touch()
        await turns(served, "")
        (tmp_path / "a").unlink()
        await turns(served, "a")
        plugin.show(widget=widgets("a", "b"))
        await turns(served, "")


def cordoning(file: Path, rule: HealthRule, plugin: kd.Scanner) -> Damped:
    return Damped(Cordoned(plugin, "example.com", file), rule)


async def test_a_flapping_device_is_cordoned_until_uncordon(tmp_path: Path) -> None:
    """It stays out over a restart; then it begins anew."""
    file = tmp_path / "maintenance.json"
    made = partial(cordoning, file, HealthRule(max_flaps=0))
    plugin = Widgets(widget=widgets("a", "b"))
    async with scanned(damped := made(plugin)) as served:
        plugin.show(widget=widgets("a", "b", unhealthy=("a",)))
        await turns(served, "a")
        await until(lambda: damped._is_cordoned("widget", "a"))
        (cordoned,) = read_cordoned(file)
        assert cordoned[:2] == ("example.com/widget", "a")
        assert "too often" in cordoned.reason
        plugin.show(widget=widgets("a", "b"))
    async with scanned(made(Widgets(widget=widgets("a", "b")))) as served:
        assert sick(served.tree) == "a"
    async with scanned(damped) as served:
        assert sick(served.tree) == "a"
        change_cordoned(file, lambda _: [])
        await turns(served, "")
    assert damped.counts["widget", "went_out"] == 1


async def test_a_device_that_recovers_later_is_cordoned_until_then(tmp_path: Path) -> None:
    """It is in the list of `kubedevices cordon` with the time of its return, over a restart too;
    `uncordon` ends it earlier.
    """
    file = tmp_path / "maintenance.json"
    made = partial(cordoning, file, HealthRule(max_flaps=0, recover_after=3600.0))
    plugin = Widgets(widget=widgets("a", "b"))
    async with scanned(damped := made(plugin)) as served:
        plugin.show(widget=widgets("a", "b", unhealthy=("a",)))
        await turns(served, "a")
        plugin.show(widget=widgets("a", "b"))
        await until(lambda: damped._is_cordoned("widget", "a"))
        (cordoned,) = read_cordoned(file)
        assert 3590 < cordoned.seconds_left(time.time()) <= 3601
    async with scanned(made(Widgets(widget=widgets("a", "b")))) as served:
        assert sick(served.tree) == "a"
        change_cordoned(file, lambda _: [])
        await turns(served, "")


async def test_a_device_returns_at_its_time(tmp_path: Path) -> None:
    """Nobody has to write the file; then the device may go out again."""
    file = tmp_path / "maintenance.json"
    plugin = Widgets(widget=widgets("a", "b"))
    cordons = Cordoned(plugin, "example.com", file)
    damped = Damped(cordons, HealthRule(max_flaps=0, recover_after=0.5))
    async with scanned(damped) as served:
        for times in (1, 2):
            plugin.show(widget=widgets("a", "b", unhealthy=("a",)))
            await turns(served, "a")
            plugin.show(widget=widgets("a", "b"))
            await until(lambda: cordons.counts["widget", "cordoned"] == times)  # noqa: B023
            await turns(served, "")
            assert read_cordoned(file) == ()
    assert damped.counts["widget", "went_out"] == 2


async def test_a_cordoned_device_is_out_at_once(tmp_path: Path) -> None:
    """Nothing that the rule says delays or overrules it; put back, it is Healthy at once."""
    file = tmp_path / "maintenance.json"
    rule = HealthRule(unhealthy_after=1000, healthy_after=1000, ignore=("a",))
    damped = Damped(Cordoned(Widgets(widget=widgets("a", "b")), "example.com", file), rule)
    async with scanned(damped) as served:
        add_cordoned(file, [("example.com/widget", "a"), ("example.com/widget", "b")], "fan")
        await turns(served, "a b")
        change_cordoned(file, lambda _: [])
        await turns(served, "")


def test_without_the_rule_cordon_a_device_is_out_until_its_time_or_a_restart() -> None:
    """As the rule says."""
    for recover_after, later in ((None, "a"), (100.0, "")):
        damped = Damped(Widgets(), HealthRule(max_flaps=0, recover_after=recover_after))
        damped.change(tree(), 0.0)
        assert sick(damped.change(tree("a"), 1.0)) == "a"
        assert sick(damped.change(tree(), 100.0)) == "a"
        assert sick(damped.change(tree(), 101.0)) == later


def test_a_check_has_placeholders_of_its_device_only() -> None:
    """Another would be found out by a thread, later."""
    with pytest.raises(UsageError, match=r"unknown placeholder \{name\}, known: \{id\}"):
        HealthRule(recover=Check(command=("test", "{name}")))


def test_the_address_is_that_of_the_pci_function(tmp_path: Path) -> None:
    """As the ID says; where nothing says it, the text is empty."""
    address = "0000:3b:00.0"
    function = tmp_path / "bus/pci/devices" / address
    function.mkdir(parents=True)
    for name, text in (("vendor", "0x10de"), ("device", "0x20b0"), ("class", "0x030200")):
        (function / name).write_text(text)
    damped = Damped(
        Widgets(),
        HealthRule(checks=(Check(file="/x/{address}"),)),
        facts=DeviceFacts(sysfs_root=tmp_path, dev_root=tmp_path),
    )
    damped.change(kd.DeviceTree({"widget": widgets(f"gpu-{address}", "b")}), 0.0)
    said = {key[1]: each.values["address"] for key, each in damped._planned.items()}
    assert said == {f"gpu-{address}": address, "b": ""}


async def test_a_device_without_an_address_is_not_checked_with_an_empty_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A tool without its argument might act on all devices: Unhealthy, with one warning."""
    ran = tmp_path / "ran"
    check = Check(command=("touch", str(ran), "{address}"), interval=0.1)
    damped = Damped(Widgets(widget=widgets("a")), HealthRule(checks=(check,)))
    async with scanned(damped) as served:
        while served.tree.devices("widget")["a"].is_healthy:
            await served.next_tree()
        (device,) = served.tree.devices("widget").values()
        assert "not checked" in device.reason
        assert caplog.text.count("not checked") == 1
    assert not ran.exists()
