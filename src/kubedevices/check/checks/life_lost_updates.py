"""Checks changes of devices after kubelet restarts: a stream of a former kubelet takes no update.

The first restart comes before the first change, so it runs while other checks still compare lists.
"""

import asyncio

from kubedevices.check.check import FAIL, Broken, Harm, NotTried, Phase, Theme
from kubedevices.check.checks.life_restarts import list_of, restart_once
from kubedevices.check.checks.life_restarts import theme as restarts
from kubedevices.check.checks.list_changes import TRACK
from kubedevices.check.checks.run_trigger import (
    change_devices,
    changing,
    must_not_be_lost,
    need_trigger,
    no_change,
    triggered,
    undo,
)
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.errors.words import counted

theme = Theme(
    "life",
    phase=Phase.RESTARTS,
    needs=(*restarts.needs, "life.sockets-wiped", "life.dies"),
    track=TRACK,
    slow=True,
    harm=Harm.WRONG_DEVICE,
)


FEWEST = 2
"""The least number of changes for a verdict: some triggers change the devices only once."""


@theme.check(
    "lost-updates",
    FAIL,
    alone=True,
    suffers="Until the next change, the node offers devices that are gone, and does not offer new "
    "devices.",
    source="the most common defect of device plugins; squat/generic-device-plugin#37",
    mend="When a connection ends, end the loop of its stream. Each stream must compare the current "
    "list with the last list that it sent itself.",
    seen="generic-device-plugin (2 of 4 changes lost), Intel (panics at the second change)",
)
async def lost_updates(harness: Harness) -> str:
    """Every change of the devices arrives, also after kubelet restarts."""
    need_trigger(harness)
    slowest, spent = 0.0, 0.0
    names = triggered(harness)
    number = 0
    try:
        while number < harness.timing.changes and _has_time(harness, number, spent):
            began = asyncio.get_running_loop().time()
            await restart_once(harness, number + 1)
            if not number:
                spent = harness.spent(began)
                _has_time(harness, 1, spent)
                await _until_allowed(harness)
                began = asyncio.get_running_loop().time()
            arrived, took = await _change_arrives(harness, names, is_first=not number)
            spent += harness.spent(began)
            if arrived != names:
                late = ", ".join(name for name in names if name not in arrived)
                await _must_be_idle(harness, f"the change after restart {number + 1} of {late}")
                if number or not arrived:
                    break
                names = arrived  # the trigger does not change the other resources
            number += 1
            slowest = max(slowest, took)
    finally:
        await undo(harness)
    if number < FEWEST:
        raise NotTried(
            "the trigger changes the devices only once" if number else no_change(harness)
        )
    changes = counted(number, "change")
    return f"{changes}, each after a restart, arrived; the slowest after {slowest:.2f} s"


async def _until_allowed(harness: Harness) -> None:
    """Wait until no other check compares lists; raises `NotTried` if the plugin ends before."""
    while not harness.shared.changes.may_go_on.is_set() and not harness.how_ended():
        await harness.pause(harness.timing.hold)
    if ended := harness.how_ended():
        raise NotTried(f"{ended} before devices changed")


def _has_time(harness: Harness, done: int, took: float) -> bool:
    """Whether there is time for one more restart; raises `NotTried` if not even two fit.

    `done` restarts took `took` own seconds.
    """
    fits = not done or took / done * (done + 1) <= harness.timing.often
    if done == 1 and not fits:
        raise NotTried(f"a restart and a change take {took:.1f} s: too long for several")
    return fits


async def _must_be_idle(harness: Harness, what: str) -> None:
    """Raise `Broken` if the change was lost; return if it never happened.

    Raises `NotTried` if the change withdrew the whole resource. `what` names the change.
    """
    if harness.is_connected():
        await must_not_be_lost(harness, f"{what} did not arrive")
        return
    # The plugin withdrew the resource, or it does not serve any more.
    harness.shared.changes.withdrew = True
    await undo(harness)
    if await harness.until(harness.is_connected, harness.timing.registered_at_all):
        raise NotTried(f"{what} withdrew the resource")
    if harness.how_ended():
        raise Broken(f"{what}: its process ended", harness.last_words())
    raise Broken(f"{what} ended the connection, and the plugin did not register again")


async def _change_arrives(
    harness: Harness, names: tuple[str, ...], *, is_first: bool
) -> tuple[tuple[str, ...], float]:
    """Change the devices; return the resources with the change, and the own seconds it took.

    The first change shows which resources the trigger changes: they change almost together.
    """
    before = {name: (await list_of(harness, name)).content for name in names}
    began = asyncio.get_running_loop().time()

    def reached() -> tuple[str, ...]:
        latest = {name: Plugin.of(harness, name).session.latest for name in names}
        return tuple(
            name for name in names if (now := latest[name]) and now.content != before[name]
        )

    with changing(harness):
        await change_devices(harness)
        await harness.until(reached, harness.timing.change)
        if reached() and len(reached()) < len(names):
            rest = harness.timing.hold if is_first else harness.timing.change
            await harness.until(lambda: reached() == names, rest)
    return reached(), harness.spent(began)
