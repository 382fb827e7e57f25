"""`kubedevices check` of plugins behind the proxy: what is good stays good, what is mended is gone.

With `KUBEDEVICES_ALL_MUTANTS=1` every mutant of the checks is tried, and the differences printed.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from kubedevices.conformance.check import Check
from kubedevices.conformance.checks import ALL
from kubedevices.errors import PluginNotStarted
from tests.conformance.mutants.registry import all_mutations
from tests.conformance.rig import GOOD_PLUGIN, MUTANT, check, found

BEHIND = Path(__file__).parent / "behind_proxy.py"

MENDED = (
    "double-id",
    "lower-case-health",
    "rocm-numa-minus-one",
    "preference-fails",
    "prefers-too-few",
    "relative-path",
)
"""Mutants whose mistake nobody sees behind the proxy."""

THE_SAME = ("missing-host-path", "unhealthy-id-accepted")
"""Mutants whose mistake is the plugin's own business."""

AT_ONCE = 8
GROWTH = {"life.descriptors", "life.memory", "life.threads"}
"""Of two processes, one of which is the plugin's."""


TRIES = 3
"""A machine that stalls makes a plugin look slow; what really differs does so each time."""


async def findings(
    checks: Iterable[Check], *options: str, expected: dict[str, str]
) -> dict[str, str]:
    """Return what is found wrong, notes left out."""
    for _ in range(TRIES):
        try:
            seen = found(await check(BEHIND, *options, checks=checks))
        except PluginNotStarted as error:  # it was refused inside, as a kubelet would have done
            seen = {"the plugin": f"is not started: {str(error).splitlines()[-1]}"}
        wrong = {each: status for each, status in seen.items() if status != "note"}
        if wrong == expected:
            break
    return wrong


async def of_mutant(name: str) -> dict[str, str]:
    """Try only what the mutant breaks: the other checks pass as those of the good plugin do."""
    mutation = all_mutations()[name]
    checks = [each for each in ALL if each.id in mutation.breaks]
    expected = {} if name in MENDED else {**mutation.breaks}
    words = ("--then", str(MUTANT), "--mutation", name, *mutation.options)
    return await findings(checks, *words, expected=expected)


@pytest.mark.timeout(600)
async def test_a_good_plugin_passes_behind_the_proxy() -> None:
    """All that is checked of a plugin."""
    checks = [each for each in ALL if each.id not in GROWTH]
    assert await findings(checks, "--then", str(GOOD_PLUGIN), expected={}) == {}


@pytest.mark.timeout(600)
async def test_mutants_behind_the_proxy() -> None:
    """Of a mutant that is mended nothing is found, of others the same."""
    names: tuple[str, ...] = (*MENDED, *THE_SAME)
    if os.environ.get("KUBEDEVICES_ALL_MUTANTS"):
        names = tuple(sorted(all_mutations()))
    turn = asyncio.Semaphore(AT_ONCE)

    async def in_turn(name: str) -> dict[str, str]:
        async with turn:
            return await of_mutant(name)

    seen = dict(zip(names, await asyncio.gather(*map(in_turn, names)), strict=True))
    broken = {name: {**all_mutations()[name].breaks} for name in names}
    for name in names:
        if seen[name] != broken[name]:
            print(f"{name}: {broken[name]} becomes {seen[name]}")
    assert {name: seen[name] for name in MENDED} == {name: {} for name in MENDED}
    assert {name: seen[name] for name in THE_SAME} == {name: broken[name] for name in THE_SAME}
