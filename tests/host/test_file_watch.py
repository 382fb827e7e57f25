"""File events, and the slow look behind them."""

import asyncio
import contextlib
import gc
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubedevices.host.file_watch import FileWatch, Subscription
from kubedevices.host.inotify import Inotify
from tests.waiting import until

NEVER = 3600.0
"""An interval at which no slow look happens within a test."""


def write(path: Path) -> None:
    path.write_text("x")


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("x")
    other.rename(path)


def replace_at_once(path: Path) -> None:
    path.unlink()
    path.write_text("x")


def rename_away(path: Path) -> None:
    path.rename(path.with_name("old"))


def open_files() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


async def heard(subscription: Subscription, timeout: float = 5) -> None:
    await asyncio.wait_for(subscription.changed(), timeout)


@contextlib.contextmanager
def watching(path: Path, *, names_only: bool = False) -> Iterator[Subscription]:
    """Watch a path by events alone."""
    with (
        FileWatch(interval=NEVER, names_only=names_only) as watch,
        watch.subscribe(path) as subscription,
    ):
        yield subscription


CHANGES: dict[str, tuple[bool, Callable[[Path], None]]] = {
    "created": (False, write),
    "renamed into place": (False, replace),
    "deleted": (True, Path.unlink),
    "renamed away": (True, rename_away),
    "replaced by rename": (True, replace),
    "deleted and created": (True, replace_at_once),
    "rewritten": (True, write),
}


NAMES_ONLY = pytest.mark.parametrize("names_only", [False, True], ids=["contents", "names"])


@pytest.mark.parametrize(
    ("there_before", "change", "names_only"),
    [
        pytest.param(*change, names_only, id=f"{name}, {'names' if names_only else 'contents'}")
        for name, change in CHANGES.items()
        for names_only in (False, True)
        if name != "rewritten" or not names_only
    ],
)
@pytest.mark.parametrize("use_events", [True, False], ids=["events", "looks"])
async def test_a_change_of_a_file_is_heard(
    short_dir: Path,
    there_before: bool,
    change: Callable[[Path], None],
    use_events: bool,
    names_only: bool,
) -> None:
    """Each kind of change is found by events alone and by the timer alone."""
    path = short_dir / "file"
    if there_before:
        path.write_text("before")
    interval = NEVER if use_events else 0.01
    with FileWatch(interval=interval, use_events=use_events, names_only=names_only) as watch:
        assert watch.has_events is use_events
        with watch.subscribe(path) as subscription:
            assert not subscription.has_news
            change(path)
            await heard(subscription)


@NAMES_ONLY
async def test_other_files_of_the_directory_are_not_heard(
    short_dir: Path, names_only: bool
) -> None:
    """Only the paths of a subscription wake it, not their neighbours."""
    with (
        FileWatch(interval=NEVER, names_only=names_only) as watch,
        watch.subscribe(short_dir / "mine") as mine,
        watch.subscribe(short_dir / "theirs") as theirs,
    ):
        write(short_dir / "theirs")
        await heard(theirs)
        assert not mine.has_news


@pytest.mark.parametrize("is_there", [True, False], ids=["all there", "one missing"])
async def test_changes_of_other_files_cost_nothing(
    short_dir: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only names count, nothing is looked at for a neighbour; the loop does not even wake up
    while all names are there. What happens to them is heard as before.
    """
    reads: list[int] = []
    looks: list[int] = []
    read = FileWatch._read_events

    def count_and_read(watch: FileWatch) -> None:
        reads.append(1)
        read(watch)

    monkeypatch.setattr(FileWatch, "_read_events", count_and_read)
    path, other, neighbour = (short_dir / name for name in ("file", "other", "neighbour"))
    write(path)
    if is_there:
        write(other)
    with (
        FileWatch(interval=NEVER, names_only=True) as watch,
        watch.subscribe(path, other) as subscription,
    ):
        monkeypatch.setattr(subscription, "look", lambda: looks.append(1))
        for _ in range(20):
            write(neighbour)
            neighbour.rename(short_dir / "checkpoint")
            await asyncio.sleep(0)  # a turn of the loop, in which it may read events
        assert not looks
        assert not (reads and is_there)
        for change in (Path.unlink, write, replace_at_once, rename_away, replace):
            change(path)
            await heard(subscription)
        assert reads
        assert looks


async def test_a_directory_and_a_name_in_it_may_both_be_waited_for(short_dir: Path) -> None:
    """Each removal and creation of either is reported."""
    directory = short_dir / "dir"
    with (
        FileWatch(interval=NEVER, names_only=True) as watch,
        watch.subscribe(directory) as outer,
        watch.subscribe(directory / "file") as inner,
    ):
        for _ in range(3):
            directory.mkdir()
            write(directory / "file")
            await heard(outer)
            await heard(inner)
            shutil.rmtree(directory)
            await heard(outer)
            await heard(inner)


@NAMES_ONLY
async def test_a_change_before_anybody_waits_is_kept(short_dir: Path, names_only: bool) -> None:
    """A change that happens while the consumer does something else is heard at the next call."""
    with watching(short_dir / "file", names_only=names_only) as subscription:
        write(short_dir / "file")
        await heard(subscription)
        (short_dir / "file").unlink()
        write(short_dir / "file")
        await heard(subscription)
        assert not subscription.has_news


@NAMES_ONLY
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("use_events", [True, False], ids=["events", "looks"])
async def test_the_directory_may_come_later(
    short_dir: Path, depth: int, use_events: bool, names_only: bool
) -> None:
    """A path whose directories do not exist yet is heard of when they and it appear."""
    path = short_dir.joinpath(*["dir"] * depth, "file")
    interval = NEVER if use_events else 0.01
    with (
        FileWatch(interval=interval, use_events=use_events, names_only=names_only) as watch,
        watch.subscribe(path) as subscription,
    ):
        path.parent.mkdir(parents=True)
        write(path)
        await heard(subscription)


@NAMES_ONLY
@pytest.mark.parametrize("how", ["removed", "moved"])
async def test_the_directory_may_be_replaced(short_dir: Path, how: str, names_only: bool) -> None:
    """After the directory was removed or moved and made again, events come from the new one."""
    directory = short_dir / "dir"
    path = directory / "file"
    directory.mkdir()
    write(path)
    with watching(path, names_only=names_only) as subscription:
        for _ in range(3):  # more than once: the inode of the directory may be the old one again
            if how == "removed":
                shutil.rmtree(directory)
            else:
                directory.rename(short_dir / "old")
                shutil.rmtree(short_dir / "old")
            await heard(subscription)
            directory.mkdir()
            write(path)
            await heard(subscription)


@NAMES_ONLY
async def test_the_directory_may_be_replaced_at_once(short_dir: Path, names_only: bool) -> None:
    """If another directory takes its place before the next check, its events are reported."""
    directory = short_dir / "dir"
    directory.mkdir()
    with watching(directory / "file", names_only=names_only) as subscription:
        directory.rename(short_dir / "old")
        directory.mkdir()
        await asyncio.sleep(0.05)
        write(directory / "file")
        await heard(subscription)


@NAMES_ONLY
async def test_a_directory_made_again_with_the_old_inode(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, names_only: bool
) -> None:
    """A file system may reuse the inode number, but the old watch has ended."""
    monkeypatch.setattr(
        "kubedevices.host.file_watch._identity", lambda path: (1, 1) if path.exists() else None
    )
    directory = short_dir / "dir"
    directory.mkdir()
    with watching(directory / "file", names_only=names_only) as subscription:
        directory.rmdir()
        directory.mkdir()
        await asyncio.sleep(0.05)
        write(directory / "file")
        await heard(subscription)


@NAMES_ONLY
async def test_a_file_made_again_with_the_old_inode(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, names_only: bool
) -> None:
    """A recreated file with the same signature is reported: its event names it."""
    monkeypatch.setattr("kubedevices.host.file_watch._Signature.of", lambda _: None)
    with watching(short_dir / "file", names_only=names_only) as subscription:
        write(short_dir / "file")
        await heard(subscription)


@NAMES_ONLY
async def test_a_change_just_before_the_watch_is_added(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, names_only: bool
) -> None:
    """A change between the first signature and the watch is found by a second comparison."""
    add = Inotify.add

    def write_and_add(inotify: Inotify, path: Path, mask: int) -> int:
        write(short_dir / "file")
        return add(inotify, path, mask)

    monkeypatch.setattr(Inotify, "add", write_and_add)
    with watching(short_dir / "file", names_only=names_only) as subscription:
        await heard(subscription)


async def test_a_replaced_target_of_a_link_is_heard(short_dir: Path) -> None:
    """A path behind a swapped symbolic link (a mounted ConfigMap) is heard of."""
    for version in ("v1", "v2"):
        (short_dir / version).mkdir()
        (short_dir / version / "config").write_text(version)
    (short_dir / "data").symlink_to("v1")
    (short_dir / "config").symlink_to("data/config")
    with watching(short_dir / "config") as subscription:
        (short_dir / "next").symlink_to("v2")
        (short_dir / "next").rename(short_dir / "data")
        await heard(subscription)


def broken_inotify(*_: object, **__: object) -> None:
    raise OSError(24, "Too many open files")


async def test_without_inotify_the_timer_finds_changes(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a free inotify instance the timer works; this is logged once; events return."""
    caplog.set_level(logging.INFO)
    with monkeypatch.context() as patch:
        patch.setattr("kubedevices.host.inotify.Inotify", broken_inotify)
        watch = FileWatch(interval=0.01)
        watch.start()
        assert not watch.has_events
        with watch.subscribe(short_dir / "file") as subscription:
            for change in (write, Path.unlink, write):
                change(short_dir / "file")
                await heard(subscription)
    (record,) = caplog.records
    assert record.getMessage() == (
        "file events are not available ([Errno 24] Too many open files): "
        "checking every 0.01 s instead"
    )
    with watch.subscribe(short_dir / "file"):
        await until(lambda: watch.has_events)
    assert "file events work again" in caplog.text
    watch.close()


async def test_a_process_takes_few_inotify_instances(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Above the limit the timer finds changes, without a warning; a free instance is used."""
    monkeypatch.setattr(
        "kubedevices.host.file_watch.INSTANCES_LIMIT", len(FileWatch.with_events) + 1
    )
    first, second = FileWatch(interval=NEVER), FileWatch(interval=0.01)
    with first, second, second.subscribe(short_dir / "file") as subscription:
        assert [first.has_events, second.has_events] == [True, False]
        write(short_dir / "file")
        await heard(subscription)
        first.close()
        await until(lambda: second.has_events)
    assert not caplog.records


async def test_a_directory_that_cannot_be_watched_is_checked_by_the_timer(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the limit of watches (ENOSPC) the timer works and the reason is logged once."""

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kubedevices.host.inotify.Inotify.add", refuse)
    with (
        FileWatch(interval=0.01) as watch,
        watch.subscribe(short_dir / "file") as subscription,
    ):
        for change in (write, Path.unlink, write):
            change(short_dir / "file")
            await heard(subscription)
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot watch {short_dir} (No space left on device): checking every 0.01 s instead"
    ]


async def test_a_failing_event_queue_falls_back(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When reading events fails, the timer takes over and a new queue is opened."""

    def fail(_: object) -> object:
        raise OSError(5, "Input/output error")

    with (
        FileWatch(interval=0.05) as watch,
        watch.subscribe(short_dir / "file") as subscription,
    ):
        with monkeypatch.context() as patch:
            patch.setattr("kubedevices.host.inotify.Inotify.read", fail)
            write(short_dir / "file")
            await heard(subscription)
        await until(lambda: watch.has_events)
        (short_dir / "file").unlink()
        await heard(subscription)


async def test_an_idle_watch_wakes_up_only_for_its_timer(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without changes the loop wakes up once per timer interval."""
    loop = asyncio.get_running_loop()
    enough = loop.create_future()
    looks = turns = 0
    look, turn = FileWatch._poll, loop._run_once  # type: ignore[attr-defined]

    def count_look(watch: FileWatch) -> None:
        nonlocal looks
        looks += 1
        look(watch)
        if looks == 5:
            enough.set_result(None)

    def count_turn() -> None:
        nonlocal turns
        turns += 1
        turn()

    monkeypatch.setattr(FileWatch, "_poll", count_look)
    monkeypatch.setattr(loop, "_run_once", count_turn)
    with FileWatch(interval=0.05) as watch, watch.subscribe(short_dir / "file"):
        await enough
    assert looks <= turns <= 2 * looks + 3


async def test_close_leaves_nothing_behind(short_dir: Path) -> None:
    """After close no file descriptor is left and no timer runs."""
    with FileWatch() as first, first.subscribe(short_dir / "file"):
        pass  # the first one imports what it needs
    gc.collect()  # else files of an earlier test may be closed meanwhile
    before = open_files()
    for _ in range(10):
        with FileWatch() as watch, watch.subscribe(short_dir / "file"):
            pass
        assert watch._timer is None
    assert open_files() == before
