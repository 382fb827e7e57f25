"""Devices that are never listed."""

from collections.abc import Callable

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError, StatusCode
from tests.middleware_rig import scanned
from tests.rules.test_share import Vendor
from tests.widgets import Widgets, widgets


async def test_devices_that_fit_are_not_listed() -> None:
    """By ID, or by NUMA nodes, which the framework looks up where a plugin leaves that to it."""
    devices = [kd.Device("a", numa_nodes=[0]), kd.Device("b1", numa_nodes=[1]), kd.Device("b2")]
    scanner = kd.Filtered(Widgets(widget=devices), ids=["b2"], numa=[1])
    async with scanned(scanner) as served:
        assert served.ids() == ["a"]
        assert scanner.counts["widget", "left_out"] == 2
        scanner.use(kd.FilterRule(ids=("a",)))
        await served.next_tree()
        assert served.ids() == ["b1", "b2"]


async def test_a_type_without_a_rule_and_a_list_without_a_match_pass_untouched() -> None:
    """As the plugin sent them."""
    plugin = Widgets(widget=widgets("w0"), gadget=widgets("w0"))
    plugin.tree.put_list("widget", dict(plugin.tree.devices("widget")), b"as sent")
    scanner = kd.Filtered(plugin, {"gadget": kd.FilterRule(ids=("w*",))})
    async with scanned(scanner) as served:
        assert (served.ids(), served.ids("gadget")) == (["w0"], [])
        assert served.tree.sent("widget") == b"as sent"
        assert [*served.tree] == ["widget", "gadget"]


async def test_an_allocate_for_a_device_that_just_left_is_refused() -> None:
    """The plugin knows the device, so it would not refuse."""
    plugin = Vendor(widget=widgets("w0", "w1"))
    async with scanned(scanner := kd.Filtered(plugin, ids=["w1"])) as served:
        with pytest.raises(RpcError, match="non-existing device w1") as caught:
            await served.allocate("w1")
        await served.allocate("w0")
    assert caught.value.code is StatusCode.NOT_FOUND
    assert plugin.heard == [("w0",)]
    assert scanner.counts["widget", "refused"] == 1


def test_the_line_of_the_start_says_what_is_left_out() -> None:
    """For everything, or for each type."""
    assert kd.Filtered(Widgets(), ids=["a*"], numa=[1]).line() == (
        "leaves out devices a*, NUMA node 1"
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda plugin: kd.Filtered(plugin, ids=["x*"]),
        lambda plugin: kd.Split(
            plugin, kd.SplitRule(rules=(kd.SplitPart(to="part", ids=("x*",)),))
        ),
        lambda plugin: kd.Shared(plugin, kd.ShareRule(rules=(kd.ShareOf("x*", 2),))),
    ],
    ids=["filter", "split", "share"],
)
def test_a_glob_that_fits_nothing_is_logged(
    make: Callable[[kd.Scanner], kd.Middleware], caplog: pytest.LogCaptureFixture
) -> None:
    """It is most likely misspelt."""
    plugin = Widgets(widget=widgets("w0"))
    scanner = make(plugin)
    for now in (1000.0, 1060.0, 1061.0):
        scanner.change(plugin.tree, now)
    assert caplog.text.count("'x*' has fitted the ID of no device of widget for a minute") == 1
    assert scanner.counts["widget", "unused_globs"] == 1
