"""The notifier: snapshots, changes, and never waiting for anybody."""

import logging
import re
import threading
import time

import pytest

from kubedevices.errors import NotADeviceTree
from kubedevices.plugin.notifier import Notifier
from kubedevices.values.device import Device, Health
from kubedevices.values.device_tree import DeviceTree, TreeChange
from tests.widgets import tree_of


class Counter:
    """Counts how often there was something new."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def announced() -> Counter:
    return Counter()


@pytest.fixture
def notifier(announced: Counter) -> Notifier:
    return Notifier(announced)


def test_the_first_tree_is_compared_with_an_empty_one(notifier: Notifier) -> None:
    """Everything in the first tree is added."""
    notifier.notify(tree_of("w"))
    assert notifier.take() == (tree_of("w"), TreeChange(added=("widget",)))


def test_a_change_is_taken_once(notifier: Notifier) -> None:
    """Without news there is no change."""
    notifier.notify(tree_of("w"))
    notifier.take()
    assert notifier.take() == (tree_of("w"), TreeChange())


def test_taking_before_anything_was_reported(notifier: Notifier) -> None:
    """Before the first report there is an empty tree and no change."""
    assert notifier.take() == (DeviceTree(), TreeChange())
    assert not notifier.has_tree


def test_every_kind_of_change_is_announced(announced: Counter, notifier: Notifier) -> None:
    """Added, updated and removed types are announced one by one."""
    for count, (tree, change) in enumerate(
        [
            (tree_of("w"), TreeChange(added=("widget",))),
            (tree_of("w", health=Health.UNHEALTHY), TreeChange(updated=("widget",))),
            (tree_of(), TreeChange(updated=("widget",))),
            (DeviceTree(), TreeChange(removed=("widget",))),
        ],
        start=1,
    ):
        notifier.notify(tree)
        assert announced.count == count
        assert notifier.take() == (tree, change)


def test_an_equal_tree_is_not_announced(announced: Counter, notifier: Notifier) -> None:
    """An equal tree announces nothing."""
    notifier.notify(tree_of("a", "b"))
    notifier.take()
    notifier.notify(tree_of("b", "a"))
    assert announced.count == 1
    assert notifier.take()[1].is_empty


def test_an_empty_first_tree_is_a_report(announced: Counter, notifier: Notifier) -> None:
    """A scanner that finds nothing has reported all the same, without any change."""
    notifier.notify(DeviceTree())
    assert notifier.has_tree
    assert announced.count == 1
    assert notifier.take()[1].is_empty


def test_one_tree_object_may_be_notified_three_times(notifier: Notifier) -> None:
    """The caller goes on with its tree, and every state of it counts as it was."""
    tree = tree_of("a")
    notifier.notify(tree)
    tree.add("widget", Device("b"))
    assert notifier.take() == (tree_of("a"), TreeChange(added=("widget",)))
    notifier.notify(tree)
    tree.declare("gadget")
    assert notifier.take() == (tree_of("a", "b"), TreeChange(updated=("widget",)))
    notifier.notify(tree)
    assert notifier.take()[1] == TreeChange(added=("gadget",))
    assert tree.count("widget") == 2


def test_trees_in_between_are_skipped(announced: Counter, notifier: Notifier) -> None:
    """The latest tree wins, and going there and back is no change."""
    notifier.notify(tree_of("a"))
    notifier.take()
    notifier.notify(tree_of("a", "b"))
    notifier.notify(tree_of("a"))
    assert announced.count == 2
    assert notifier.take()[1].is_empty


def test_a_slow_consumer_is_woken_once(announced: Counter, notifier: Notifier) -> None:
    """A slow consumer is woken once, however much happens meanwhile."""
    for number in range(10):
        notifier.notify(tree_of(f"w{number}"))
    assert announced.count == 1
    assert notifier.take()[0] == tree_of("w9")


def test_a_thousand_notifications_without_a_consumer(notifier: Notifier) -> None:
    """Nobody takes anything and notifying stays quick."""
    trees = [tree_of(*(f"w{n}" for n in range(16)), f"x{turn}") for turn in range(1000)]
    started = time.thread_time()
    for tree in trees:
        notifier.notify(tree)
    assert time.thread_time() - started < 1
    assert notifier.take()[0] == trees[-1]


def test_unchanged_devices_stay_the_same_objects(notifier: Notifier) -> None:
    """A scan that makes every device anew gives the objects of the scan before."""
    notifier.notify(tree_of("a"))
    first, _ = notifier.take()
    notifier.notify(tree_of("a", "b"))
    second, _ = notifier.take()
    assert second.devices("widget")["a"] is first.devices("widget")["a"]


def test_notifying_from_many_threads(notifier: Notifier) -> None:
    """Whatever threads do at once, the last state is taken and nothing is torn."""

    def report(name: str) -> None:
        for number in range(200):
            notifier.notify(DeviceTree({name: [Device(f"{name}{number}")]}))

    threads = [threading.Thread(target=report, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    seen = []
    while any(thread.is_alive() for thread in threads):
        seen.append(notifier.take()[0])
    notifier.notify(tree_of("last"))
    assert notifier.take()[0] == tree_of("last")
    assert all(len(tree) <= 1 for tree in seen)


def test_a_report_during_a_take_is_announced_again() -> None:
    """A tree that comes while the consumer is looking is never missed."""
    taken = []

    def take_at_once() -> None:
        taken.append(watched.take()[0])

    watched = Notifier(take_at_once)
    watched.notify(tree_of("a"))
    watched.notify(tree_of("b"))
    assert taken == [tree_of("a"), tree_of("b")]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (None, "notify() takes a DeviceTree, not None"),
        ({"widget": []}, "notify() takes a DeviceTree, not dict {'widget': []}"),
        ([Device("w")], "notify() takes a DeviceTree, not list [Device(id='w', health="),
    ],
)
def test_a_value_that_is_no_tree_is_refused(wrong: object, text: str) -> None:
    """A forgotten `return` or a dictionary gives a clear error."""
    with pytest.raises(NotADeviceTree, match=re.escape(text)):
        Notifier().notify(wrong)  # type: ignore[arg-type]


def test_long_ids_are_mentioned_once(notifier: Notifier, caplog: pytest.LogCaptureFixture) -> None:
    """An ID of 64 characters is warned of when it appears, one of 63 never."""
    too_long, fits = "x" * 64, "y" * 63
    notifier.notify(tree_of(too_long, fits))
    notifier.notify(tree_of(too_long, fits, "more"))
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        f"widget: the ID {too_long!r} has 64 characters; the device plugin API says at most 63"
    ]


async def test_a_notifier_that_nobody_runs_is_stopped() -> None:
    """In a test of a scanner, waiting for the end is over at once."""
    await Notifier().wait_stopped()


def test_only_the_first_of_two_notifiers_warns(caplog: pytest.LogCaptureFixture) -> None:
    """What a middleware passes on unchanged was looked through below it; a change was not."""
    below, above = Notifier(), Notifier()
    below.notify(tree_of("x" * 64))
    taken = below.take()[0]
    above.notify(taken)
    assert above.take()[0] == taken
    assert len(caplog.records) == 1
    changed = taken.snapshot()
    changed.add("widget", Device("z" * 64))
    above.notify(changed)
    assert [*above.take()[0].devices("widget")] == ["x" * 64, "z" * 64]
    assert "z" * 64 in caplog.text
