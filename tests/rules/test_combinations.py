"""Middleware over middleware: each does its own, whatever stands before or behind it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError, StatusCode
from kubedevices.rules.cordon import Cordoned
from kubedevices.rules.cordon_file import CordonEntry, change_cordoned
from kubedevices.rules.device_facts import DeviceFacts
from kubedevices.rules.hold import Held
from kubedevices.rules.repair import Repaired
from tests.host.sysfs_trees import add_pci
from tests.middleware_rig import Scanned, scanned
from tests.reachable import reachable
from tests.rules.test_hold import LONG, Plugin
from tests.widgets import widgets


class Chain(NamedTuple):
    """Every middleware that was made for one plugin, nearest to it first."""

    plugin: Plugin
    filtered: kd.Filtered
    split: kd.Split
    renamed: kd.Renamed
    cordons: Cordoned
    shared: kd.Shared
    injected: kd.Injected
    held: Held
    cordon_file: Path


def make(directory: Path, *ids: str) -> Chain:
    """Leave out x, split b off, call it big, share it twice, add the plugin's ID to answers."""
    cordon_file = directory / "maintenance.json"
    plugin = Plugin(*ids)
    filtered = kd.Filtered(plugin, ids=["x"])
    split = kd.Split(
        filtered, {"widget": kd.SplitRule(rules=(kd.SplitPart(to="large", ids=("b*",)),))}
    )
    renamed = kd.Renamed(split, {"large": "big"})
    cordons = Cordoned(renamed, "example.com", cordon_file)
    shared = kd.Shared(cordons, {"big": kd.ShareRule(replicas=2, distinct=True)})
    injected = kd.Injected(shared, kd.InjectRule(env={"ID{index}": "{id}"}))
    held = Held(injected, LONG)
    return Chain(plugin, filtered, split, renamed, cordons, shared, injected, held, cordon_file)


def listed(served: Scanned) -> dict[str, str]:
    """Return `ID` and the first letter of the health of each device, by type."""
    return {
        name: " ".join(f"{each.id}{each.health[0]}" for each in served.tree.devices(name).values())
        for name in served.tree
    }


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return make(tmp_path, "a", "b0", "b1", "x")


def check_memory(scanner: kd.Middleware) -> None:
    """Show lists of three devices with new names; the scanner must not keep more and more."""
    kept = []
    for number in range(20):
        names = [f"n{number}-0000:3b:00.{each}" for each in range(3)]
        found = widgets(*names, unhealthy=(names[0],))
        scanner.change(kd.DeviceTree({"widget": found}), float(number))
        if number in (3, 19):
            kept.append(reachable(scanner))
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda plugin: kd.Filtered(plugin, ids=["x*"]),
        lambda plugin: kd.Split(
            plugin, {"widget": kd.SplitRule(rules=(kd.SplitPart(to="large", ids=("*0",)),))}
        ),
        lambda plugin: kd.Renamed(plugin, {"widget": "gpu"}),
        lambda plugin: Cordoned(plugin, "example.com", Path("/none")),
        lambda plugin: kd.Shared(plugin, replicas=2),
        lambda plugin: kd.Injected(plugin, kd.InjectRule(env={"N": "{numa}"})),
        lambda plugin: kd.Damped(plugin, kd.HealthRule(unhealthy_after=5, max_flaps=3)),
        lambda plugin: kd.Damped(plugin, kd.HealthRule(ignore=("*",))),
        lambda plugin: kd.Faulty(plugin, kd.FaultRule()),
        lambda plugin: Held(plugin, LONG),
        Repaired,
    ],
)
def test_devices_that_have_gone_are_forgotten(make: Callable[[Plugin], kd.Middleware]) -> None:
    """A plugin whose devices have new names after each restart would fill the memory."""
    check_memory(make(Plugin("a")))


def test_pci_functions_of_devices_that_have_gone_are_forgotten(tmp_path: Path) -> None:
    """By each rule that looks them up."""
    for number in range(3):
        add_pci(tmp_path, f"0000:3b:00.{number}", driver="vfio-pci")
    part = kd.SplitPart(to="vm", pci=kd.PciRule(driver="vfio-pci"))
    check = kd.Check(file="/sys/bus/pci/devices/{address}")
    facts = DeviceFacts(tmp_path, tmp_path)
    check_memory(kd.Split(Plugin("a"), kd.SplitRule(rules=(part,)), facts=facts))
    check_memory(kd.Damped(Plugin("a"), kd.HealthRule(checks=(check,)), facts=facts))


async def test_each_middleware_does_its_part(chain: Chain) -> None:
    """The plugin hears its own IDs, a container gets what every rule says."""
    async with scanned(chain.held) as served:
        assert listed(served) == {"big": "b0::0H b0::1H b1::0H b1::1H", "widget": "aH"}
        answer = await served.allocate("b1::1", "b0::0", device_type="big")
        assert answer.env == {"IDS": "b1 b0", "ID0": "b0", "ID1": "b1"}
        assert (await served.allocate("a")).env == {"IDS": "a", "ID0": "a"}
        with pytest.raises(RpcError, match="shares of one device"):
            await served.allocate("b0::0", "b0::1", device_type="big")
        # b0::0 and b1::1 are given: the plugin prefers the first of equally used devices
        assert await served.prefer("b0::1 b1::0", 1, device_type="big") == ["b0::1"]
        assert await served.prefer("b1::0", 1, device_type="big") == ["b1::0"]


async def test_a_device_out_of_service_takes_all_its_shares_with_it(chain: Chain) -> None:
    """By the name and the ID that an administrator sees; the other part goes on."""
    async with scanned(chain.held) as served:
        change_cordoned(chain.cordon_file, lambda _: [CordonEntry("example.com/big", "b0", "hot")])
        await served.next_tree()
        assert listed(served) == {"big": "b0::0U b0::1U b1::0H b1::1H", "widget": "aH"}
        with pytest.raises(RpcError, match="device b0 is cordoned: hot") as caught:
            await served.allocate("b0::1", device_type="big")
        assert caught.value.code is StatusCode.FAILED_PRECONDITION
        await served.allocate("b1::1", device_type="big")
        chain.shared.use({"big": kd.ShareRule(replicas=1)})
        await served.next_tree()
        assert served.ids("big") == ["b0::0", "b1::1"]  # what was refused, nobody holds


async def test_rules_and_cordons_change_while_the_plugin_is_away(chain: Chain) -> None:
    """Its list is held, and everything outside of it goes on."""
    async with scanned(chain.held) as served:
        before = listed(served)
        chain.plugin.leave()
        chain.shared.use({"big": kd.ShareRule(replicas=1)})
        await served.next_tree()
        assert listed(served) == {"big": "b0::0H b1::0H", "widget": "aH"}
        call = asyncio.ensure_future(served.allocate("b0::0", device_type="big"))
        assert chain.plugin.asked == 0
        chain.shared.use({"big": kd.ShareRule(replicas=2)})
        await served.next_tree()
        assert listed(served) == before
        chain.plugin.come("a", "b0", "b1", "b2", "x")
        assert (await call).env == {"IDS": "b0", "ID0": "b0"}
        await served.next_tree()
        assert served.ids("big") == ["b0::0", "b0::1", "b1::0", "b1::1", "b2::0", "b2::1"]


async def test_a_health_change_arrives_at_once_through_all(chain: Chain) -> None:
    """In the list that follows, of every share; and a new split rule reaches the shares."""
    async with scanned(chain.held) as served:
        chain.plugin.show(widget=widgets("a", "b0", "b1", "x", unhealthy=("a", "b1")))
        await served.next_tree()
        assert listed(served) == {"big": "b0::0H b0::1H b1::0U b1::1U", "widget": "aU"}
        parts = (kd.SplitPart(to="large", ids=("b0",)),)
        chain.split.use({"widget": kd.SplitRule(rules=parts)})
        await served.next_tree()
        assert listed(served) == {"big": "b0::0H b0::1H", "widget": "aU b1U"}


async def test_one_device_is_split_off_and_shared_more_than_once(tmp_path: Path) -> None:
    """What one share makes another may share: IDs are taken apart in the same order."""
    plugin = Plugin("a")
    outer = kd.Shared(kd.Shared(plugin, replicas=2), replicas=2)
    injected = kd.Injected(outer, kd.InjectRule(env={"ID{index}": "{id}"}))
    async with scanned(injected) as served:
        assert served.ids() == ["a::0::0", "a::0::1", "a::1::0", "a::1::1"]
        assert (await served.allocate("a::1::0", "a::0::1")).env == {"IDS": "a", "ID0": "a"}
