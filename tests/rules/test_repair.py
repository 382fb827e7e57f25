"""What a plugin gets wrong is made good, and what it gets right is not touched."""

from typing import Any, NamedTuple

import pytest

import kubedevices as kd
from kubedevices.errors import PluginAway, RpcError, StatusCode
from kubedevices.rules.repair import EMPTY_FOR, Repaired, repair_container
from tests.middleware_rig import scanned
from tests.widgets import Widgets, widgets


class Oddities(NamedTuple):
    doubled: int = 0
    odd_words: int = 0
    negative_nodes: int = 0


class Plugin(Widgets, kd.Allocator, kd.PreferredAllocator):
    """Speaks for another plugin, whose list and answers a test sets."""

    def __init__(self, **types: list[kd.Device]) -> None:
        super().__init__(**types)
        self.list: Any = None
        self.answer = kd.ContainerAllocateResponse()
        self.preferred: Any = None

    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        return kd.AllocateResponse([self.answer])

    def get_preferred_allocation(
        self, request: kd.PreferredAllocationRequest
    ) -> kd.PreferredAllocationResponse:
        if isinstance(self.preferred, Exception):
            raise self.preferred
        return kd.PreferredAllocationResponse(self.preferred)


class Listed(NamedTuple):
    oddities: Oddities


def sent_tree(*ids: str) -> kd.DeviceTree:
    tree = kd.DeviceTree()
    tree.put_list("widget", {each.id: each for each in widgets(*ids)}, b"as it came")
    return tree


def test_a_correct_list_stays_the_same_object() -> None:
    """With the bytes of the plugin."""
    repaired, tree = Repaired(Plugin()), sent_tree("a")
    assert repaired.change(tree, 0.0) is tree
    repaired.scanner.list = Listed(Oddities())  # type: ignore[attr-defined]
    assert repaired.change(tree, 0.0) is tree
    assert not repaired.counts


@pytest.mark.parametrize("event", Oddities._fields)
def test_a_faulty_list_does_not_pass_unchanged(
    event: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its devices pass; each list is counted, and the kind of fault is logged once."""
    plugin = Plugin()
    repaired = Repaired(plugin)
    plugin.list = Listed(Oddities()._replace(**{event: 3}))
    for tree in (sent_tree("a", "b"), sent_tree("c")):
        repaired.change(tree, 0.0)
        changed = repaired.change(tree, 1.0)  # a second look is no second list
        assert changed.devices("widget") == tree.devices("widget")
        assert changed.sent("widget") == b""
    assert repaired.counts == {("widget", event): 2}
    assert len(caplog.messages) == 1
    repaired.use(False)
    assert repaired.change(tree, 0.0) is tree


def test_a_list_without_devices_is_held_back_for_a_second() -> None:
    """At the start nothing is served yet, later the devices stay; after a second it counts."""
    repaired, empty, full = Repaired(Plugin()), sent_tree(), sent_tree("a")
    assert "widget" not in repaired.change(empty, 0.0)
    assert repaired.change(full, 0.9) is full
    assert repaired.counts == {("widget", "empty_first"): 1}
    assert [*repaired.change(empty, 10.0).devices("widget")] == ["a"]
    assert [*repaired.change(empty, 10.0 + EMPTY_FOR - 0.1).devices("widget")] == ["a"]
    assert repaired.change(empty, 10.0 + EMPTY_FOR) is empty
    assert repaired.change(empty, 20.0) is empty


async def test_a_plugin_without_devices_is_served() -> None:
    """By itself, without another list."""
    async with scanned(Repaired(Plugin(widget=[]))) as served:
        assert "widget" not in served.tree
        assert "widget" in await served.next_tree()


@pytest.mark.parametrize(
    "preferred",
    [
        (("x",),),
        (("a", "b"),),
        (("b",), ("a",)),
        (),
        RpcError(StatusCode.INTERNAL, "no idea"),
        ValueError("a bug"),
    ],
)
async def test_an_invalid_preference_is_ignored(preferred: object) -> None:
    """Foreign or too many devices, too many containers, none, an error: the pod is admitted."""
    plugin = Plugin(widget=widgets("a", "b"))
    async with scanned(repaired := Repaired(plugin)) as served:
        plugin.preferred = (("b",),)
        assert await served.prefer("a b", 1) == ["b"]
        assert not repaired.counts
        plugin.preferred = preferred
        assert await served.prefer("a b", 1) == []
        assert sum(repaired.counts.values()) == 1
        repaired.use(False)
        if isinstance(preferred, Exception):
            with pytest.raises(RpcError):
                await served.prefer("a b", 1)


async def test_a_plugin_that_is_away_gives_no_wrong_answer() -> None:
    """That is for `hold`."""
    plugin = Plugin(widget=widgets("a"))
    async with scanned(repaired := Repaired(plugin)) as served:
        plugin.preferred = PluginAway("example.com/widget", "GetPreferredAllocation")
        with pytest.raises(RpcError, match="is away"):
            await served.prefer("a", 1)
        assert not repaired.counts


def test_missing_options_are_logged() -> None:
    """The scanner has seen to them."""
    plugin = Plugin()
    repaired = Repaired(plugin)
    repaired.abilities_of("widget")
    assert not repaired.counts
    plugin.has_options = False  # type: ignore[attr-defined]
    repaired.abilities_of("widget")
    assert repaired.counts == {("widget", "missing_options"): 1}


def test_a_correct_answer_is_not_changed() -> None:
    """Not even the lists in it are other objects."""
    container = kd.ContainerAllocateResponse(
        devices=[kd.DeviceSpec("/dev/a")], mounts=[kd.Mount("/a", "/b")], env={"A_1": "x"}
    )
    parts = container.devices, container.mounts
    assert [*repair_container(container)] == []
    assert (container.devices, container.mounts) == parts


def test_an_entry_that_is_repeated_passes_unchanged() -> None:
    """Many plugins repeat a common device file for each device, and a node takes it once."""
    control, lib = kd.DeviceSpec("/dev/ctl"), kd.Mount("/lib", "/lib", True)
    container = kd.ContainerAllocateResponse(
        devices=[control, kd.DeviceSpec("/dev/a"), control], mounts=[lib, lib]
    )
    parts = container.devices, container.mounts
    assert [*repair_container(container)] == []
    assert (container.devices, container.mounts) == parts
    container.devices.append(control._replace(permissions="r"))
    assert [event for event, _ in repair_container(container)] == ["doubled_paths"]
    assert container.devices == [control, kd.DeviceSpec("/dev/a"), control]


async def test_faulty_answers_are_corrected(caplog: pytest.LogCaptureFixture) -> None:
    """Relative paths of a container, and paths at which two different things belong. A variable
    that no shell can use is kept, and the log says so.
    """
    plugin = Plugin(widget=widgets("a"))
    plugin.answer = kd.ContainerAllocateResponse(
        devices=[
            kd.DeviceSpec("/dev/a", "dev/a", "r"),
            kd.DeviceSpec("/dev/b", "/dev/a"),
            kd.DeviceSpec("/dev/c", ""),
        ],
        mounts=[kd.Mount("/x", "lib"), kd.Mount("/x", "/lib"), kd.Mount("/y", "/y")],
        env={"GPU-1": "x", "GPU": "y"},
    )
    async with scanned(repaired := Repaired(plugin)) as served:
        answer = await served.allocate("a")
    assert answer.devices == [
        kd.DeviceSpec("/dev/a", "/dev/a", "r"),
        kd.DeviceSpec("/dev/c", "/dev/c"),
    ]
    assert answer.mounts == [kd.Mount("/x", "/lib"), kd.Mount("/x", "/lib"), kd.Mount("/y", "/y")]
    assert answer.env == {"GPU-1": "x", "GPU": "y"}
    assert repaired.counts == {
        ("widget", "relative_paths"): 3,
        ("widget", "doubled_paths"): 1,
        ("widget", "odd_variables"): 1,
    }
    told = [each for each in caplog.messages if "GPU-1" in each or "for /dev/a" in each]
    assert [each.split(": ")[1] for each in told] == ["repaired", "passed on unchanged"]
