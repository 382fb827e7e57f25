"""Scanners made of functions and of other scanners."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kubedevices.errors import ScanFailed, UsageError
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.polled_scanner import PolledScanner
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.scanners import merge, periodic, static
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree
from tests.waiting import until


def tree(*ids: str, name: str = "card") -> DeviceTree:
    return DeviceTree({name: [Device(each) for each in ids]})


@asynccontextmanager
async def scanning(scanner: Scanner) -> AsyncIterator[Callable[[], DeviceTree]]:
    """Run `scanner`; give a function that returns its latest tree."""
    notifier = Notifier(wait_stopped=asyncio.Event().wait)
    task = asyncio.create_task(scanner.scan(notifier))
    try:
        await until(lambda: notifier.has_tree or task.done())
        yield lambda: notifier.take()[0]
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_function_becomes_a_scanner() -> None:
    """Called again at once when triggered; it may be `async def`."""
    calls = 0

    async def find() -> DeviceTree:
        nonlocal calls
        calls += 1
        return tree(f"card{calls}")

    scanner = periodic(3600, find, jitter=1)
    async with scanning(scanner) as latest:
        assert latest() == tree("card1")
        scanner.trigger()
        await until(lambda: latest() == tree("card2"))


@pytest.mark.parametrize(
    ("on_error", "left"), [("keep", tree("card0")), ("empty", tree()), ("raise", None)]
)
async def test_effects_of_a_failed_scan(on_error: str, left: DeviceTree | None) -> None:
    """The devices stay, or the type stays without any, or the plugin ends."""
    answers = iter([tree("card0")])
    scanner = periodic(3600, lambda: next(answers), on_error=on_error)  # type: ignore[arg-type]
    notifier = Notifier()
    task = asyncio.create_task(scanner.scan(notifier))
    await until(lambda: notifier.has_tree)
    scanner.trigger()
    if left is None:
        with pytest.raises(ScanFailed):
            await asyncio.wait_for(task, 10)
        return
    await until(lambda: scanner.failed_scans == 1 and notifier.take()[0] == left)
    task.cancel()
    await asyncio.wait({task})


async def test_an_unknown_on_error_is_refused() -> None:
    """When the scan begins."""
    scanner = periodic(1, tree, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="on_error must be keep, empty or raise, not 'ignore'"):
        await scanner.scan(Notifier())


async def test_a_fixed_tree_is_reported_once() -> None:
    """Later changes of the tree that was given do not count."""
    given = tree("a")
    scanner = static(given)
    given.add("card", Device("b"))
    async with scanning(scanner) as latest:
        assert latest() == tree("a")


class Told(Scanner):
    """Reports what a test puts into it."""

    def __init__(self) -> None:
        self.notifier: Notifier | None = None
        self.end = asyncio.Event()
        self.error: Exception | None = None

    async def scan(self, notifier: Notifier) -> None:
        self.notifier = notifier
        await self.end.wait()
        if self.error:
            raise self.error


async def test_several_scanners_report_as_one(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing before all have reported, so that no list is ever half of one."""
    caplog.set_level(logging.WARNING)
    first, second = Told(), Told()
    whole = Notifier()
    merged = merge(first, second)
    task = asyncio.create_task(merged.scan(whole))
    await until(lambda: first.notifier and second.notifier)
    assert first.notifier is not None
    assert second.notifier is not None
    first.notifier.notify(tree("a"))
    assert not whole.has_tree
    second.notifier.notify(tree("x", name="disk"))
    both = DeviceTree({"card": [Device("a")], "disk": [Device("x")]})
    assert whole.take()[0] == both
    assert merged.abilities_of("disk") is second
    assert merged.abilities_of("card") is first
    better = Device("a", env={"A": "1"})
    second.notifier.notify(DeviceTree({"card": [better, Device("b")]}))
    second.notifier.notify(DeviceTree({"card": [better, Device("b")], "disk": []}))
    assert whole.take()[0] == DeviceTree({"card": [better, Device("b")], "disk": []})
    assert caplog.messages == [
        "card: a is reported by two scanners, the device of the later scanner counts"
    ]
    first.end.set()
    second.error = RuntimeError("broken")
    second.end.set()
    with pytest.raises(RuntimeError, match="broken"):
        await asyncio.wait_for(task, 10)


async def test_merging_plain_functions_works_in_threads() -> None:
    """As a plugin does it."""

    class Slow(PolledScanner):
        def list_devices(self) -> DeviceTree:
            return tree("slow")

    async with scanning(merge(static(tree("a")), Slow())) as latest:
        assert latest() == tree("a", "slow")


def test_merging_no_scanners_is_refused() -> None:
    """It would never report anything."""
    with pytest.raises(UsageError, match="at least one scanner"):
        merge()
