"""Every mutant fails exactly the checks that it names, and every check can fail alone."""

import asyncio
from collections.abc import Iterable

import pytest

from kubedevices.check import busy_machine
from kubedevices.check.checks import ALL
from tests.check.mutants.registry import Mutation, all_mutations
from tests.check.rig import MUTANT, NO_PROSE, check, found

AT_ONCE = 20
"""How many runs share the machine. One test for all, so that workers do not multiply it."""

AGAIN = (8, 4, 2)
"""What differs is tried again: so many side by side in each try."""

MUTATIONS = sorted(all_mutations().values(), key=lambda mutation: mutation.name)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("preloaded")
async def test_a_mutant_fails_what_it_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken plugin fails exactly the checks that it names, with these severities.

    On a machine that stalls for seconds a plugin looks slow, so what differs is tried again almost
    alone: a mutant that really differs does so each time.
    """
    # By the clock: mutants have timers of seconds, and share this process with many others.
    monkeypatch.setattr(busy_machine, "LONGEST_STRETCH", 1)
    differ = await try_all(MUTATIONS, AT_ONCE)
    for few in AGAIN:
        differ = await try_all(differ, few)
    assert not differ, "\n\n".join(differ.values())


async def try_all(mutations: Iterable[Mutation], at_once: int) -> dict[Mutation, str]:
    """Check the mutants; return those that differ from their description, and how."""
    turn = asyncio.Semaphore(at_once)

    async def in_turn(mutation: Mutation) -> str:
        async with turn:
            return await difference(mutation)

    mutations = [*mutations]
    said = await asyncio.gather(*map(in_turn, mutations))
    return {each: text for each, text in zip(mutations, said, strict=True) if text}


async def difference(mutation: Mutation) -> str:
    """Check one mutant; return how the verdicts differ from its description, or nothing."""
    results = await check(MUTANT, "--mutation", mutation.name, *mutation.options)
    seen = found(results)
    said = {each.check.id: "\n".join(each.verdict[1:]) for each in results}
    wrong = [name for name, words in mutation.says.items() if words not in said[name]]
    wrong += [name for name in seen if mutation.never and mutation.never in said[name]]
    wrong += [name for name, text in said.items() if NO_PROSE.search(text.partition("\n")[0])]
    if seen == mutation.breaks and not wrong:
        return ""
    notes = [
        f"  {each.status} {each.check.id}: {each.verdict.evidence}\n{each.verdict.story}"
        for each in results
        if each.check.id in {*seen, *mutation.breaks, *wrong}
    ]
    return "\n".join([f"{mutation.name}: {mutation.breaks} expected, {seen} found", *notes])


def test_every_check_fails_alone() -> None:
    """For each check there is a mutant that fails it and no other."""
    alone = {next(iter(each.breaks)) for each in MUTATIONS if len(each.breaks) == 1}
    assert {check.id for check in ALL} - alone == set()


def test_the_mutants_use_known_checks() -> None:
    """No mutant names a check that does not exist."""
    ids = {check.id for check in ALL}
    assert not {name for each in MUTATIONS for name in each.breaks} - ids


def test_severities_are_those_of_the_checks() -> None:
    """A check of severity warn never has the status fail."""
    warn = {check.id for check in ALL if check.severity == "warn"}
    assert (
        not {name for each in MUTATIONS for name, how in each.breaks.items() if how == "fail"}
        & warn
    )
