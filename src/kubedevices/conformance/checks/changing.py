"""Making devices change, by the trigger, and undoing it: for the checks of what becomes of that."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from kubedevices.conformance.check import Broken, NotTried
from kubedevices.conformance.plugin import Plugin
from kubedevices.conformance.stage import Stage
from kubedevices.conformance.trigger import TriggerRun
from kubedevices.device import ReportedDevice
from kubedevices.errors import WireError
from kubedevices.probe.session import ListStream

Content = frozenset[ReportedDevice]


def content_of(stream: ListStream | None) -> Content:
    """Return what a stream said last, nothing if it said nothing."""
    return stream.latest.content if stream and stream.latest else frozenset()


def need_trigger(stage: Stage) -> None:
    """Skip the check unless we know how to make devices change."""
    if not stage.target.trigger.command:
        raise NotTried("needs --trigger, a command that makes the devices change")


def triggered(stage: Stage) -> tuple[str, ...]:
    """Return the resources that the trigger may change."""
    named = stage.target.trigger.resource
    return (named,) if named in stage.resources else stage.resources


def no_change(stage: Stage) -> str:
    """Say why a trigger without effect proves nothing."""
    return (
        f"no stream saw a change within {stage.timing.change:g} s: the trigger did nothing, "
        "or the plugin looks rarely (--change-timeout)"
    )


@contextmanager
def changing(stage: Stage) -> Iterator[None]:
    """Tell the other stages which devices change, from the trigger until it was noticed."""
    changes = stage.notes.changes
    before = {name: _list_of(stage, name) for name in stage.resources}
    with changes.under_way():
        try:
            yield
        finally:
            for name in stage.resources:
                session = stage.probe.plugins.get(name)
                lists = [each.content for each in session.lists] if session else []
                changes.concern({each.id for one, two in pairwise(lists) for each in one ^ two})
            if all(_list_of(stage, name) is old for name, old in before.items()):
                changes.is_known = False


def _list_of(stage: Stage, name: str) -> object:
    session = stage.probe.plugins.get(name)
    return session and session.latest


async def run_trigger(stage: Stage) -> None:
    """Make the plugin's devices change, in the way its author told us."""
    await _run_in_shell(stage, stage.notes.changes.next(), "trigger")


async def change_devices(stage: Stage) -> None:
    """Run the trigger, or undo its last run: many a trigger changes the devices only once."""
    changes = stage.notes.changes
    if changes.trigger.undo and (calls := changes.undoing()):
        for call in calls:
            await _run_in_shell(stage, call, "undo")
    else:
        await run_trigger(stage)


async def undo(stage: Stage) -> None:
    """Bring the devices back to where they were before the triggers, as far as we know how."""
    before = {name: _list_of(stage, name) for name in triggered(stage)}

    def noticed() -> bool:
        return any(_list_of(stage, name) is not old for name, old in before.items())

    changes = stage.notes.changes
    if calls := changes.undoing():
        with changes.under_way():
            for call in calls:
                await _run_in_shell(stage, call, "undo")
            # What comes of it must not be taken for the next change.
            await stage.wait_for(noticed, stage.timing.change / 3)
            await stage.pause(stage.timing.hold)
    changes.is_known = True


async def _run_in_shell(stage: Stage, call: TriggerRun, what: str) -> None:
    log = stage.place.root / f"{what}-output"
    process = await stage.supervisor.start(call.argv(), env=call.environment(), log=log)
    if not await stage.until_ended(process, stage.timing.call) or process.code != 0:
        raise NotTried(f"the {what} failed: {process.end_text()} {process.last_words(1)}")


async def must_not_be_lost(stage: Stage, what: str) -> None:
    """Ask a new stream: what it knows and the kubelet's does not is lost, or else nothing is."""
    for name in triggered(stage):
        plugin = Plugin.of(stage, name)
        try:
            async with plugin.another_stream() as stream:
                await plugin.first_of(stream, stage.timing.first_list)
                await stage.pause(stage.timing.hold)
                found = content_of(stream)
        except WireError:
            continue
        if found and content_of(plugin.session.stream) != found:
            raise Broken(
                f"{what} within {stage.timing.change:g} s, but a new stream of {name} shows it"
            )
