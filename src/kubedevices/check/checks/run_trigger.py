"""Runs the trigger that changes devices, and undoes it, for the checks that need changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from kubedevices.check.check import Broken, NotTried
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.check.target import TriggerRun
from kubedevices.errors import WireError
from kubedevices.testing.kubelet.session import ListStream
from kubedevices.values.device import ReportedDevice

Content = frozenset[ReportedDevice]


def content_of(stream: ListStream | None) -> Content:
    """Return the devices of the last list of a stream, an empty set if there is no list."""
    return stream.latest.content if stream and stream.latest else frozenset()


def need_trigger(harness: Harness) -> None:
    """Raise `NotTried` if the user gave no trigger, or if the trigger has failed before."""
    if not harness.target.trigger.command:
        raise NotTried("needs --trigger, a command that makes the devices change")
    if problem := harness.shared.changes.problem:
        raise NotTried(problem)


def triggered(harness: Harness) -> tuple[str, ...]:
    """Return the resources that the trigger may change."""
    named = harness.target.trigger.resource
    return (named,) if named in harness.resources else harness.resources


def no_change(harness: Harness) -> str:
    """Return the reason for a skip if no list changed after the trigger."""
    return (
        f"no stream had a change within {harness.timing.change:g} s: the trigger changed nothing, "
        "or the plugin scans rarely (--change-timeout)"
    )


@contextmanager
def changing(harness: Harness) -> Iterator[None]:
    """Tell the other harnesses which devices change: until the plugin has noticed the change."""
    changes = harness.shared.changes
    before = {name: _list_of(harness, name) for name in harness.resources}
    with changes.under_way():
        try:
            yield
        finally:
            for name in harness.resources:
                session = harness.probe.plugins.get(name)
                lists = [each.content for each in session.lists] if session else []
                changes.concern({each.id for one, two in pairwise(lists) for each in one ^ two})
            if all(_list_of(harness, name) is old for name, old in before.items()):
                changes.is_known = False


def _list_of(harness: Harness, name: str) -> object:
    session = harness.probe.plugins.get(name)
    return session and session.latest


async def run_trigger(harness: Harness) -> None:
    """Run the trigger, which changes the plugin's devices; raises `NotTried` if it fails."""
    await _must_succeed(harness, harness.shared.changes.next(), "trigger")


async def change_devices(harness: Harness) -> None:
    """Undo the last run of the trigger, if that is possible; else run the trigger.

    Some triggers change the devices only once, and an undo is one more change.
    """
    changes = harness.shared.changes
    if changes.trigger.undo and (calls := changes.undoing()):
        for call in calls:
            await _must_succeed(harness, call, "undo")
    else:
        await run_trigger(harness)


async def undo(harness: Harness) -> None:
    """Undo all runs of the trigger that are not undone yet, if the user said how.

    A failure is only recorded: it must not hide what the check has found.
    """
    before = {name: _list_of(harness, name) for name in triggered(harness)}

    def noticed() -> bool:
        return any(_list_of(harness, name) is not old for name, old in before.items())

    changes = harness.shared.changes
    if calls := changes.undoing():
        with changes.under_way():
            for call in calls:
                await harness.run_in_shell(call, "undo", harness.timing.call)
            # Wait for the effect, so that the next check does not see it as its own change.
            await harness.until(noticed, harness.timing.change / 3)
            await harness.pause(harness.timing.hold)
    changes.is_known = True


async def _must_succeed(harness: Harness, call: TriggerRun, what: str) -> None:
    if problem := await harness.run_in_shell(call, what, harness.timing.call):
        raise NotTried(problem)


async def must_not_be_lost(harness: Harness, what: str) -> None:
    """Raise `Broken` if a new stream has other devices than the kubelet's stream: a lost change.

    `what` begins the text of the error.
    """
    for name in triggered(harness):
        plugin = Plugin.of(harness, name)
        try:
            async with plugin.another_stream() as stream:
                await plugin.first_of(stream, harness.timing.first_list)
                await harness.pause(harness.timing.hold)
                found = content_of(stream)
        except WireError:
            continue
        if found and content_of(plugin.session.stream) != found:
            raise Broken(
                f"{what} within {harness.timing.change:g} s, but a new stream of {name} has it"
            )
