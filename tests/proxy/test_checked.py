"""`kubedevices check` of plugins behind the proxy: good stays good, and repaired is gone.

`mutants_behind` says what becomes of each mutant of the checks. Some of them are tried here by the
checks that they break; with `KUBEDEVICES_ALL_MUTANTS=1` all are, by every check.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from socket import socket

import pytest

from kubedevices.check import busy_machine
from kubedevices.check.checks import ALL
from kubedevices.check.processes import Supervisor
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target
from kubedevices.errors import PluginNotStarted
from tests.check.mutants.registry import WATCHED, all_mutations
from tests.check.preloaded_supervisor import Forked, forking_supervisors
from tests.check.rig import ALL_KUBELETS, FAST, hot_plug, widgets
from tests.proxy import behind_proxy
from tests.proxy.mutants_behind import BEHIND, HELD, NEVER_REPAIRED, REPAIRED, Becomes

SOME = (
    "akri-never-registers-again",
    "any-method-ok",
    "double-id",
    "generic-streams-share-a-queue",
    "intel-empty-list-first",
    "lower-case-health",
    "missing-host-path",
    "no-options",
    "old-version",
    "permission-x",
    "prefers-too-few",
    "preference-fails",
    "relative-path",
    "rocm-numa-minus-one",
    "unhealthy-id-accepted",
    "unknown-id-crash",
    "watcher-wrong-type",
)
"""Each becomes what it does in a way of its own."""

WANTS_ALL = bool(os.environ.get("KUBEDEVICES_ALL_MUTANTS"))
AT_ONCE, AGAIN = 8, 3
"""A machine that stalls makes a plugin look slow; what really differs does so each time."""

UNSTEADY = {"life.stop-socket", "life.descriptors", "preferred.too-large"}
"""What is passed over where it is not the matter: the proxy takes a socket away a moment after its
plugin ended, connections that are being closed count as open, and repair has no preference."""

PASSED, NOT_STARTED = "pass", {"the plugin": "is not started"}


@pytest.fixture(scope="module")
def fork_supervisor() -> Iterator[Callable[[socket], Forked]]:
    """Give what forks a supervisor that has the proxy and the plugins loaded."""
    with forking_supervisors(behind_proxy.__name__) as fork:
        yield fork


@pytest.fixture(autouse=True)
def preloaded(fork_supervisor: Callable[[socket], Forked], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checks fork their supervisors; by the clock, as mutants have timers of seconds."""
    monkeypatch.setattr(Supervisor, "start_supervisor", staticmethod(fork_supervisor))
    monkeypatch.setattr(busy_machine, "LONGEST_STRETCH", 1)


async def statuses(*options: str, tried: Collection[str]) -> dict[str, str]:
    """Return what each check says of a plugin behind a proxy."""
    with widgets() as directory:
        command = [sys.executable, str(Path(behind_proxy.__file__)), *options]
        command += ["--device-dir", str(directory), "--cdi-dir", "{cdi_dir}"]
        target = Target((*command, "--socket-dir", "{socket_dir}"), trigger=hot_plug(directory))
        checks = [each for each in ALL if each.id in tried]
        try:
            results = (await run_all(target, checks, FAST, kubelets=ALL_KUBELETS)).results
        except PluginNotStarted:  # it was refused inside, as a kubelet would have done
            return NOT_STARTED
    return {each.check.id: str(each.status.value) for each in results}


async def difference(name: str, *flags: str, becomes: Becomes) -> str:
    """Check one mutant; return how it differs from what it should become, or nothing."""
    mutation = all_mutations()[name]
    tried = {each.id for each in ALL} if WANTS_ALL else {*mutation.breaks}
    words = ["--mutation", name, *flags]
    words += ["--watched"] if mutation.options == WATCHED else mutation.options
    seen = await statuses(*words, tried=tried)
    if becomes.is_refused:
        is_refused = seen == NOT_STARTED or seen.get("registration.registers") == "fail"
        return "" if is_refused else f"{name}: it was not refused: {seen}"
    expected = {id_: how for id_, how in becomes.found(mutation.breaks).items() if id_ in tried}
    passed_over = {*UNSTEADY, *becomes.passed_over} - mutation.breaks.keys()
    found = {
        id_: how
        for id_, how in seen.items()
        if how not in (PASSED, "skip") and id_ not in passed_over
    }
    if becomes.is_unsteady:
        found = {id_: how for id_, how in found.items() if id_ in mutation.breaks}
    # What a check could not look at is not healed.
    unseen = {id_ for id_ in mutation.breaks if id_ not in expected and seen.get(id_) != PASSED}
    if found == expected and unseen == (mutation.breaks.keys() if becomes.is_hidden else set()):
        return ""
    return f"{name} ({becomes.why}): {expected} expected, {found} found, not passed: {unseen}"


async def differences(
    names: Collection[str], *flags: str, becomes: Callable[[str], Becomes]
) -> str:
    """Check mutants side by side; return how they differ."""
    left: Collection[str] = names
    for number in range(AGAIN):
        turn = asyncio.Semaphore(AT_ONCE if number == 0 else 2)

        async def in_turn(name: str, turn: asyncio.Semaphore = turn) -> str:
            async with turn:
                return await difference(name, *flags, becomes=becomes(name))

        said = await asyncio.gather(*map(in_turn, left))
        left = [name for name, text in zip(left, said, strict=True) if text]
        if not left:
            return ""
    return "\n".join(filter(None, said))


def chosen(names: Collection[str]) -> list[str]:
    """Return those of `names` that are tried."""
    return [name for name in names if WANTS_ALL or name in SOME]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_good_plugin_passes_behind_the_proxy() -> None:
    """All that is checked of a plugin; a preference of too many is answered by the proxy."""
    for _ in range(AGAIN):
        seen = await statuses(tried=[each.id for each in ALL])
        bad = {id_: how for id_, how in seen.items() if how not in (PASSED, "skip", "note")}
        if not bad.keys() - UNSTEADY:
            break
    assert not bad.keys() - UNSTEADY


@pytest.mark.slow
@pytest.mark.timeout(7200 if WANTS_ALL else 600)
async def test_mutants_behind_the_proxy() -> None:
    """What is found of each is what the table says."""
    plain = [name for name in chosen(BEHIND) if name not in HELD]
    assert not await differences(plain, becomes=BEHIND.__getitem__)


@pytest.mark.slow
@pytest.mark.timeout(7200 if WANTS_ALL else 600)
async def test_mutants_that_hold_heals() -> None:
    """Where a plugin ends and is started again, nobody sees that it was away."""
    assert not await differences(chosen(HELD), "--held", becomes=BEHIND.__getitem__)


@pytest.mark.slow
@pytest.mark.timeout(7200 if WANTS_ALL else 600)
async def test_without_mend_each_mistake_arrives() -> None:
    """What repair heals is found as if no proxy were there."""
    names = [name for name in chosen(REPAIRED) if name not in NEVER_REPAIRED]
    assert not await differences(names, "--unrepaired", becomes=REPAIRED.__getitem__)


def test_the_table_has_each_mutant() -> None:
    """And names none that is not there."""
    assert BEHIND.keys() == all_mutations().keys()
    assert {*SOME} <= BEHIND.keys()
