"""One resource as several."""

from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import UsageError
from kubedevices.plugin.hooks import Hooks
from kubedevices.rules.device_facts import DeviceFacts
from tests.host.sysfs_trees import add_pci
from tests.middleware_rig import Scanned, scanned
from tests.rules.test_middleware import Able
from tests.widgets import Widgets, widgets

SMALL, LARGE = kd.SplitPart(to="small", ids=("a*", "b*")), kd.SplitPart(to="large", ids=("b*",))


def listed(served: Scanned) -> dict[str, str]:
    return {name: " ".join(served.ids(name)) for name in served.tree}


async def test_the_first_rule_that_fits_counts() -> None:
    """A device is in one type only, whatever the rest does; a type may be empty."""
    plugin = Widgets(gpu=widgets("b0", "a0", "c0"), nic=widgets("n0"))
    rules = (LARGE, SMALL, kd.SplitPart(to="none", ids=("x",)))
    async with scanned(scanner := kd.Split(plugin, {"gpu": kd.SplitRule(rules=rules)})) as served:
        kept = {"large": "b0", "small": "a0", "none": "", "gpu": "c0", "nic": "n0"}
        assert listed(served) == kept
        assert scanner.counts == {("large", "moved"): 1, ("small", "moved"): 1}
        scanner.use({"gpu": kd.SplitRule(rules=(SMALL,), rest="drop")})
        await served.next_tree()
        assert listed(served) == {"small": "b0 a0", "nic": "n0"}
        assert scanner.counts["gpu", "dropped"] == 1
        plugin.show(nic=widgets("n0"))
        await served.next_tree()
        assert listed(served) == {"nic": "n0"}


async def test_by_numa_node_and_by_pci_function(tmp_path: Path) -> None:
    """Where an ID or a device file leads to it."""
    add_pci(tmp_path, "0000:3b:00.0", driver="vfio-pci")
    devices = [kd.Device("gpu-3b:00.0", numa_nodes=[0]), kd.Device("g1", numa_nodes=[1])]
    rule = kd.SplitRule(
        rules=(
            kd.SplitPart(to="vm", pci=kd.PciRule(driver="vfio-pci")),
            kd.SplitPart(to="far", numa=(1,)),
        )
    )
    scanner = kd.Split(Widgets(gpu=devices), rule, facts=DeviceFacts(tmp_path, tmp_path))
    async with scanned(scanner) as served:
        assert listed(served) == {"vm": "gpu-3b:00.0", "far": "g1", "gpu": ""}


class Stopping(Able, kd.TypeStopper):
    def on_type_removed(self, device_type: str) -> None:
        self.told.append(f"no {device_type}")


async def test_the_plugin_gets_only_its_own_type() -> None:
    """It is started with the first part, stopped with the last, and asked by each of them."""
    plugin = Stopping(gpu=widgets("a0", "b0", "c0"))
    async with scanned(scanner := kd.Split(plugin, kd.SplitRule(rules=(LARGE, SMALL)))) as served:
        parts = {name: Hooks(scanner.abilities_of(name)) for name in served.tree}
        for _ in range(2):
            for name, hooks in parts.items():
                await hooks.on_type_added(name)
            assert plugin.told == ["gpu"]
            for name, hooks in parts.items():
                assert plugin.told == ["gpu"]
                await hooks.on_type_removed(name, 30)
            assert plugin.told == ["gpu", "no gpu"]
            plugin.told.clear()
        await served.allocate("b0", device_type="large")
        assert await served.prefer("a0", 1, device_type="small") == ["a0"]


async def test_a_name_that_another_type_has_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so."""
    plugin = Widgets(small=widgets("s0"), gpu=widgets("a0", "c0"))
    async with scanned(kd.Split(plugin, {"gpu": kd.SplitRule(rules=(SMALL,))})) as served:
        assert listed(served) == {"small": "s0", "gpu": "c0"}
    assert "small and gpu would both be small" in caplog.text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: kd.SplitRule(rules=()), "rules: this list is empty"),
        (lambda: kd.SplitRule(rules=(SMALL,), rest="x"), "'x' is not known, must be keep or"),  # type: ignore[arg-type]
        (lambda: kd.SplitPart(to="a.b/c", ids=("a",)), "only the part after the slash"),
        (lambda: kd.SplitPart(to="", ids=("a",)), "SplitPart.to: there must be something"),
        (lambda: kd.SplitPart(to="x"), "one of ids, numa, pci is needed"),
    ],
)
def test_a_rule_that_cannot_be_is_an_error(make: Any, text: str) -> None:
    """When it is made."""
    with pytest.raises(UsageError, match=text):
        make()


def test_the_line_of_the_start_shows_the_rules() -> None:
    """Part by part."""
    scanner = kd.Split(
        Widgets(), {"gpu": kd.SplitRule(rules=(LARGE, kd.SplitPart(to="all", ids=("*",))))}
    )
    assert scanner.line() == "splits gpu into large (b*), all (*), the rest stays"
