"""Other names for resources."""

import logging

import pytest

import kubedevices as kd
from kubedevices.errors import UsageError
from tests.middleware_rig import scanned
from tests.rules.test_middleware import Able
from tests.widgets import Widgets, widgets


async def test_devices_keep_everything_but_the_name_of_their_type() -> None:
    """The list as the plugin sent it, and the plugin's own name in its calls."""
    plugin = Able(gpu=widgets("g0"), nic=widgets("n0"))
    plugin.tree.put_list("gpu", dict(plugin.tree.devices("gpu")), b"as sent")
    async with scanned(scanner := kd.Renamed(plugin, {"gpu": "card"})) as served:
        assert [*served.tree] == ["card", "nic"]
        assert served.tree.sent("card") == b"as sent"
        await served.allocate("g0", device_type="card")
        relay = scanner.abilities_of("card")
        assert isinstance(relay, kd.Relay)
        await relay.on_type_added("card")
        assert plugin.told[-1] == "gpu"
        plugin.show(gpu=widgets("g0", "g1"), nic=widgets("n0"))
        await served.next_tree()
        assert scanner.counts == {("card", "renamed"): 1}  # once, not for each list
        scanner.use("old-{name}")
        assert [*await served.next_tree()] == ["old-gpu", "old-nic"]
        assert scanner.inner_type("old-gpu") == "gpu"
    new = ("card", "old-gpu", "old-nic")
    assert scanner.counts == {(device_type, "renamed"): 1 for device_type in new}


async def test_a_type_that_is_away_keeps_its_name() -> None:
    """Somebody outside may hold its list meanwhile, and make its abilities anew."""
    plugin = Widgets(gpu=widgets("g0"))
    async with scanned(scanner := kd.Renamed(plugin, {"gpu": "card"})) as served:
        plugin.show()
        assert not await served.next_tree()
        assert scanner.inner_type("card") == "gpu"


async def test_of_two_types_with_one_name_the_first_is_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And the log says once what became of the other."""
    plugin = Widgets(card=widgets("c0"), gpu=widgets("g0"))
    with caplog.at_level(logging.ERROR):
        async with scanned(kd.Renamed(plugin, {"gpu": "card"})) as served:
            plugin.show(card=widgets("c0", "c1"), gpu=widgets("g0"))
            await served.next_tree()
            assert served.ids("card") == ["c0", "c1"]
    assert caplog.text.count("card and gpu would both be card: gpu is not listed") == 1


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("card", r"needs \{name\}, 'card' has none"),
        ({"gpu": "example.com/card"}, "only the part after the slash"),
        ({"gpu": "a card"}, "rename gpu to 'a card'"),
        ({"gpu": "card", "xpu": "card"}, "gpu and xpu would both be card"),
    ],
)
def test_a_name_that_cannot_be_is_an_error(names: str | dict[str, str], text: str) -> None:
    """When it is given, the first time or later; the names before stay."""
    scanner = kd.Renamed(Widgets(), {"gpu": "card"})
    for give in (scanner.use, lambda names: kd.Renamed(Widgets(), names)):
        with pytest.raises(UsageError, match=text):
            give(names)
    assert scanner.line() == "calls gpu card"
    scanner = kd.Renamed(Widgets(), {"gpu": "card"}, domain="b.com")
    assert scanner.line() == "calls gpu b.com/card"


async def test_a_name_is_free_when_its_type_has_left_the_list() -> None:
    """Another type may have it then: its devices would be missing for ever."""
    plugin = Widgets(gpu=widgets("g0"))
    async with scanned(scanner := kd.Renamed(plugin, {"gpu": "card"})) as served:
        assert [*served.tree] == ["card"]
        plugin.show(card=widgets("c0"))
        await served.next_tree()
        assert served.ids("card") == ["c0"]
        assert scanner.inner_type("card") == "card"
