"""Several plugins in one process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import ScanFailed
from kubedevices.plugin import side_by_side
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.side_by_side import SideBySide
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, widgets


class Failing(kd.Scanner):
    """Fails when the test says so."""

    def __init__(self) -> None:
        self.fails = asyncio.Event()

    async def scan(self, notifier: kd.Notifier) -> None:
        notifier.notify(kd.DeviceTree({"widget": widgets("a")}))
        await self.fails.wait()
        raise RuntimeError("no more")


class Nodes:
    """Directories and their plugins; `find` returns each plugin once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.new: list[PluginRunner] = []

    def add(self, name: str, scanner: kd.Scanner) -> Path:
        place = self._directory / name
        place.mkdir()
        self.new.append(PluginRunner(scanner, domain=DOMAIN, socket_dir=place, timing=QUICK))
        return place

    def find(self) -> Iterable[PluginRunner]:
        new, self.new = self.new, []
        return new


@pytest.fixture
def nodes(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    monkeypatch.setattr(side_by_side, "LOOK_INTERVAL", 0.01)
    return Nodes(short_dir)


@contextlib.asynccontextmanager
async def running(plugins: SideBySide) -> AsyncIterator["asyncio.Task[None]"]:
    """Run until the end of the context."""
    task = asyncio.create_task(plugins.run())
    try:
        yield task
    finally:
        plugins.stop()
        await asyncio.wait_for(asyncio.wait({task}), 20)


async def test_plugins_that_come_later_are_served_too(nodes: Nodes) -> None:
    """Each registers in its own directory; a stop removes all sockets."""
    places = [nodes.add("one", Widgets(widget=widgets("a")))]
    plugins = SideBySide(nodes.find)
    assert not plugins.has_started
    async with FakeKubelet(places[0]) as first, running(plugins) as task:
        await first.wait_for(RESOURCE, {"a": "Healthy"})
        await until(lambda: plugins.has_started)
        places.append(nodes.add("two", Widgets(widget=widgets("b"))))
        async with FakeKubelet(places[1]) as second:
            await second.wait_for(RESOURCE, {"b": "Healthy"})
            plugins.stop()
            await asyncio.wait_for(task, 20)
            left = {each.name for place in places for each in place.iterdir()}
            assert left == {"kubelet.sock"}


async def test_an_error_of_one_ends_all(nodes: Nodes) -> None:
    """It is raised as it is, and the other plugin leaves no socket."""
    failing = Failing()
    good = nodes.add("one", Widgets(widget=widgets("a")))
    nodes.add("two", failing)
    plugins = SideBySide(nodes.find)
    async with running(plugins) as task:
        await until(lambda: plugins.has_started)
        assert [*good.iterdir()]
        failing.fails.set()
        with pytest.raises(ScanFailed, match="no more"):
            await asyncio.wait_for(asyncio.shield(task), 20)
        assert not [*good.iterdir()]


async def test_a_stop_before_the_start_ends_it_at_once(nodes: Nodes) -> None:
    """A signal may come early."""
    nodes.add("one", Widgets(widget=widgets("a")))
    plugins = SideBySide(nodes.find)
    plugins.stop()
    await asyncio.wait_for(plugins.run(), 20)
    assert nodes.new


async def test_sockets_can_be_removed_without_the_loop(nodes: Nodes) -> None:
    """For an exit that cannot wait."""
    place = nodes.add("one", Widgets(widget=widgets("a")))
    plugins = SideBySide(nodes.find)
    async with running(plugins):
        await until(lambda: plugins.has_started)
        assert [*place.iterdir()]
        plugins.unlink_sockets()
        assert not [*place.iterdir()]
