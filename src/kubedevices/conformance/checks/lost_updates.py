"""Changes after restarts of the kubelet: what the streams of former kubelets must not take away.

The first restart needs no change of devices, so it is made while other checks still compare lists.
"""

import asyncio

from kubedevices.conformance.check import Broken, NotTried, Phase, Severity, Theme
from kubedevices.conformance.checks.changes import TRACK
from kubedevices.conformance.checks.changing import (
    change_devices,
    changing,
    must_not_be_lost,
    need_trigger,
    no_change,
    triggered,
    undo,
)
from kubedevices.conformance.checks.restarts import list_of, restart_once
from kubedevices.conformance.checks.restarts import theme as restarts
from kubedevices.conformance.plugin import Plugin
from kubedevices.conformance.stage import Stage
from kubedevices.words import counted

theme = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=(*restarts.needs, "life.sockets-wiped", "life.dies"),
    track=TRACK,
    slow=True,
)


FEWEST = 2
"""Changes that prove something: the first may be the only one that a trigger makes."""


@theme.check(
    "lost-updates",
    Severity.FAIL,
    alone=True,
    suffers="Until the next change, the node offers devices that are gone, and no new devices.",
    source="the most common defect of the field; squat/generic-device-plugin#37",
    mend="End the loop of a stream with its connection; let each stream compare with what it "
    "sent itself.",
    seen="generic-device-plugin (2 of 4 changes lost), Intel (panics at the second change)",
)
async def lost_updates(stage: Stage) -> str:
    """Kubelet restarts, each followed by a change: every change arrives."""
    need_trigger(stage)
    slowest, spent = 0.0, 0.0
    names = triggered(stage)
    number = 0
    try:
        while number < stage.timing.changes and _has_time(stage, number, spent):
            began = asyncio.get_running_loop().time()
            await restart_once(stage, number + 1)
            if not number:
                spent = stage.spent(began)
                _has_time(stage, 1, spent)
                await _until_allowed(stage)
                began = asyncio.get_running_loop().time()
            arrived, took = await _change_arrives(stage, names, is_first=not number)
            spent += stage.spent(began)
            if arrived != names:
                late = ", ".join(name for name in names if name not in arrived)
                await _must_be_idle(stage, f"the change after restart {number + 1} of {late}")
                if number or not arrived:
                    break
                names = arrived  # the trigger does not change the others
            number += 1
            slowest = max(slowest, took)
    finally:
        await undo(stage)
    if number < FEWEST:
        raise NotTried("the trigger changes the devices only once" if number else no_change(stage))
    return f"{counted(number, 'change')} after as many restarts, the slowest in {slowest:.2f} s"


async def _until_allowed(stage: Stage) -> None:
    """Wait until no other check compares lists of devices; the plugin must live till then."""
    process, allowed = stage.process, stage.notes.changes.may_go_on
    while not allowed.is_set() and (process is None or process.running):
        await stage.pause(stage.timing.hold)
    if process and not process.running:
        raise NotTried(f"its process ended ({process.end_text()}) before devices changed")


def _has_time(stage: Stage, done: int, took: float) -> bool:
    """Whether one more restart fits into the time of all; skips where not even two do."""
    fits = not done or took / done * (done + 1) <= stage.timing.often
    if done == 1 and not fits:
        raise NotTried(f"a restart and a change take {took:.1f} s: too long for several")
    return fits


async def _must_be_idle(stage: Stage, what: str) -> None:
    """Tell a change that was lost from one that never happened."""
    if stage.is_connected():
        await must_not_be_lost(stage, f"{what} did not arrive")
        return
    # It withdrew the resource, or stopped to serve it.
    stage.notes.changes.withdrew = True
    await undo(stage)
    if await stage.wait_for(stage.is_connected, stage.timing.registered_at_all):
        raise NotTried(f"{what} withdrew the resource")
    if stage.process and not stage.process.running:
        raise Broken(f"{what}: its process ended", stage.last_words())
    raise Broken(f"{what} ended its connection, and it did not come back")


async def _change_arrives(
    stage: Stage, names: tuple[str, ...], *, is_first: bool
) -> tuple[tuple[str, ...], float]:
    """Change the devices; return the resources that it reached, and how long it took.

    The first change shows which resources the trigger changes: at about the same time.
    """
    before = {name: (await list_of(stage, name)).content for name in names}
    began = asyncio.get_running_loop().time()

    def reached() -> tuple[str, ...]:
        latest = {name: Plugin.of(stage, name).session.latest for name in names}
        return tuple(
            name for name in names if (now := latest[name]) and now.content != before[name]
        )

    with changing(stage):
        await change_devices(stage)
        await stage.wait_for(reached, stage.timing.change)
        if reached() and len(reached()) < len(names):
            rest = stage.timing.hold if is_first else stage.timing.change
            await stage.wait_for(lambda: reached() == names, rest)
    return reached(), stage.spent(began)
