"""Polling: intervals, triggers, failures."""

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import NotADeviceTree, ScanFailed, UsageError
from kubedevices.plugin import hook_threads
from kubedevices.plugin.scan_task import TreeUpdates
from tests.waiting import until
from tests.widgets import tree_of


class Scripted(kd.PolledScanner):
    """Returns or raises one thing after the other, the last one for ever."""

    def __init__(self, script: Iterable[object], interval: float = 0.001) -> None:
        self.script = list(script)
        self.interval = interval
        self.scans = 0

    def list_devices(self) -> kd.DeviceTree:
        step: Any = self.script[min(self.scans, len(self.script) - 1)]
        self.scans += 1
        if isinstance(step, BaseException):
            raise step
        return step  # type: ignore[no-any-return]


@asynccontextmanager
async def scanning(scanner: kd.Scanner) -> AsyncIterator[TreeUpdates]:
    """Run `scanner` for as long as the block lasts."""
    updates = TreeUpdates()
    task = asyncio.create_task(scanner.scan(updates.notifier), name="scan")
    try:
        yield updates
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert await hook_threads.settle(10) == ()


async def test_every_scan_is_reported() -> None:
    """What `list_devices` returns reaches the consumer, again and again."""
    async with scanning(Scripted([tree_of("a"), tree_of("a", "b")])) as updates:
        first, change = await asyncio.wait_for(updates.next(), 10)
        if first == tree_of("a"):
            assert change.added == ("widget",)
            first, change = await asyncio.wait_for(updates.next(), 10)
        assert first == tree_of("a", "b")


async def test_a_def_runs_in_a_thread() -> None:
    """A blocking `list_devices` never runs on the loop."""
    seen = []

    class Widgets(kd.PolledScanner):
        def list_devices(self) -> kd.DeviceTree:
            seen.append(threading.get_ident())
            return tree_of("w")

    async with scanning(Widgets()) as updates:
        await asyncio.wait_for(updates.next(), 10)
    assert seen == [seen[0]]
    assert seen[0] != threading.get_ident()


async def test_an_async_def_runs_on_the_loop() -> None:
    """`async def list_devices` is awaited."""

    class Widgets(kd.PolledScanner):
        async def list_devices(self) -> kd.DeviceTree:
            await asyncio.sleep(0)
            return tree_of(str(threading.get_ident()))

    async with scanning(Widgets()) as updates:
        tree, _ = await asyncio.wait_for(updates.next(), 10)
    assert tree == tree_of(str(threading.get_ident()))


async def test_the_interval_is_kept() -> None:
    """Between two scans there is a pause of `interval` seconds."""
    scanner = Scripted([tree_of()], interval=3600)
    async with scanning(scanner) as updates:
        await asyncio.wait_for(updates.next(), 10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(updates.next(), 0.05)
    assert scanner.scans == 1


async def test_a_trigger_ends_the_pause() -> None:
    """From any thread, `trigger` makes the next scan happen now."""
    asyncio.get_running_loop().set_debug(True)  # refuses what is not thread-safe
    scanner = Scripted([tree_of("a"), tree_of("b")], interval=3600)
    async with scanning(scanner) as updates:
        await asyncio.wait_for(updates.next(), 10)
        await until(lambda: scanner._wake and scanner._wake._waiters, what="the pause")
        await asyncio.to_thread(scanner.trigger)
        tree, _ = await asyncio.wait_for(updates.next(), 10)
        assert tree == tree_of("b")


async def test_a_trigger_during_a_scan_is_not_lost() -> None:
    """News that come while a scan is under way lead to another one."""
    scanner = Scripted([], interval=3600)

    class Widgets(kd.PolledScanner):
        interval = 3600
        scans = 0

        def list_devices(self) -> kd.DeviceTree:
            self.scans += 1
            if self.scans == 1:
                self.trigger()
            return tree_of(f"w{self.scans}")

    scanner_with_news = Widgets()
    async with scanning(scanner_with_news):
        await until(lambda: scanner_with_news.scans == 2, what="a second scan")
    assert scanner.scans == 0


async def test_triggers_in_a_row_are_one() -> None:
    """A hundred triggers do not make a hundred scans."""
    scanner = Scripted([tree_of("a"), tree_of("b"), tree_of("c")], interval=3600)
    async with scanning(scanner) as updates:
        await asyncio.wait_for(updates.next(), 10)
        for _ in range(100):
            scanner.trigger()
        await asyncio.wait_for(updates.next(), 10)
    assert scanner.scans <= 3


def test_a_trigger_without_a_scan_does_nothing() -> None:
    """Before a run and after it `trigger` is harmless."""
    scanner = Scripted([tree_of("w")], interval=3600)
    scanner.trigger()

    async def run() -> None:
        async with scanning(scanner) as updates:
            await asyncio.wait_for(updates.next(), 10)

    asyncio.run(run())
    scanner.trigger()
    assert scanner.scans == 1


async def test_jitter_lengthens_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `jitter` a random part is added to every pause."""
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    scanner = Scripted([tree_of("a"), tree_of("b")], interval=0.001)
    scanner.jitter = 3600
    async with scanning(scanner) as updates:
        await asyncio.wait_for(updates.next(), 10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(updates.next(), 0.05)


async def test_a_first_failure_ends_the_scan() -> None:
    """Before anything was found an error is an error, with its cause."""
    cause = PermissionError(13, "Permission denied", "/dev/widgets")
    notifier = kd.Notifier()
    text = "scanner Scripted failed: PermissionError: [Errno 13] Permission denied: '/dev/widgets'"
    with pytest.raises(ScanFailed, match=re.escape(text)) as caught:
        await Scripted([cause]).scan(notifier)
    assert caught.value.__cause__ is cause
    assert caught.value.exit_code == 1
    assert not notifier.has_tree


async def test_later_failures_keep_the_last_tree(caplog: pytest.LogCaptureFixture) -> None:
    """A scanner that fails later is counted, its devices stay, and it recovers."""
    caplog.set_level(logging.INFO, "kubedevices")
    failures = [OSError("bus reset")] * 9
    scanner = Scripted([tree_of("a"), *failures, tree_of("b")])
    async with scanning(scanner) as updates:
        seen = [(await asyncio.wait_for(updates.next(), 10))[0]]
        while seen[-1] != tree_of("b"):
            seen.append((await asyncio.wait_for(updates.next(), 10))[0])
        await until(lambda: scanner.scans > 11, what="one more scan")
    assert [tree.count("widget") for tree in seen] == [1] * len(seen)
    assert scanner.failed_scans == 9
    *failed, works = caplog.messages
    place = r"\(test_polled_scanner\.py:\d+\)"
    for number, told in zip((1, 2, 4, 8), failed, strict=True):
        text = f"Scripted failed ({number} in a row), the devices found before stay: "
        assert re.fullmatch(re.escape(text) + f"OSError: bus reset {place}", told)
    assert works == "Scripted works again (9 had failed)"


async def test_a_forgotten_return_is_named() -> None:
    """A `list_devices` without result says so instead of failing somewhere else."""
    text = "scanner Scripted failed: Scripted.list_devices() must return a DeviceTree, not None"
    with pytest.raises(ScanFailed, match=re.escape(text)) as caught:
        await Scripted([None]).scan(kd.Notifier())
    assert isinstance(caught.value.__cause__, NotADeviceTree)


async def test_a_later_wrong_answer_keeps_the_last_tree() -> None:
    """Something else than a tree counts as a failed scan."""
    scanner = Scripted([tree_of("a"), None])
    async with scanning(scanner) as updates:
        await until(lambda: scanner.failed_scans > 0, what="a failed scan")
        assert (await asyncio.wait_for(updates.next(), 10))[0] == tree_of("a")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("interval", 0, "Scripted.interval must be more than 0 seconds, not 0"),
        ("interval", -1.5, "Scripted.interval must be more than 0 seconds, not -1.5"),
        ("interval", float("nan"), "Scripted.interval must be more than 0 seconds, not nan"),
        ("interval", "5s", "Scripted.interval must be more than 0 seconds, not '5s'"),
        ("interval", None, "Scripted.interval must be more than 0 seconds, not None"),
        ("jitter", -1, "Scripted.jitter must be 0 seconds or more, not -1"),
    ],
)
async def test_a_wrong_interval_is_named(name: str, value: object, text: str) -> None:
    """A mistake in the class gives one clear error before the first scan."""
    scanner = Scripted([tree_of()])
    setattr(scanner, name, value)
    with pytest.raises(UsageError, match=re.escape(text)):
        await scanner.scan(kd.Notifier())
    assert scanner.scans == 0


async def test_a_scan_that_blocks_does_not_stop_the_loop() -> None:
    """While `list_devices` sleeps, the loop and other hooks go on, and cancelling is at once."""
    entered, leave = threading.Event(), threading.Event()

    class Widgets(kd.PolledScanner):
        def list_devices(self) -> kd.DeviceTree:
            entered.set()
            leave.wait(30)
            return tree_of("w")

    updates = TreeUpdates()
    task = asyncio.create_task(Widgets().scan(updates.notifier))
    await until(entered.is_set, what="the scan sleeps")
    assert await asyncio.wait_for(hook_threads.call(str, 1), 10) == "1"
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()
    leave.set()
    assert await hook_threads.settle(10) == ()


async def test_a_scan_that_does_not_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Once for each, and what it means for the devices."""
    goes_on = asyncio.Event()

    class Widgets(kd.PolledScanner):
        interval = slow_scan = 0.01
        scans = 0

        async def list_devices(self) -> kd.DeviceTree:
            self.scans += 1
            await goes_on.wait()
            goes_on.clear()
            return tree_of("w")

    def warnings() -> list[str]:
        return [each.getMessage() for each in caplog.records if "has been running" in each.msg]

    scanner = Widgets()
    async with scanning(scanner):
        await until(lambda: len(warnings()) == 1, what="a warning of the first scan")
        assert "Widgets.list_devices() has been running for 0.01 s" in warnings()[0]
        assert warnings()[0].endswith("nothing is served until it returns")
        goes_on.set()
        await until(lambda: len(warnings()) == 2, what="a warning of the second scan")
        assert warnings()[1].endswith("the devices found before stay")
    assert scanner.scans == len(warnings()) == 2


async def test_a_scanner_with_its_own_loop() -> None:
    """A `Scanner` notifies once, waits for the end and returns."""

    class Widgets(kd.Scanner):
        async def scan(self, notifier: kd.Notifier) -> None:
            notifier.notify(tree_of("w"))
            await notifier.wait_stopped()

    updates = TreeUpdates()
    task = asyncio.create_task(Widgets().scan(updates.notifier))
    assert (await asyncio.wait_for(updates.next(), 10))[0] == tree_of("w")
    updates.stop()
    await asyncio.wait_for(task, 10)
