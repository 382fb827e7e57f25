"""The good plugin passes all checks, and its variants together try all checks."""

import asyncio

import pytest

from kubedevices.check.checks import ALL
from tests.check.rig import GOOD_PLUGIN, check, found, skipped

pytestmark = pytest.mark.usefixtures("preloaded")

ELSEWHERE = {"registration.unopened-stream"}
"""Needs two resources."""

VARIANTS = {
    "all abilities": (),
    "no abilities": ("--plain",),
    "plugin watcher": ("--registry-dir", "{registry_dir}"),
}


async def test_a_good_plugin_passes_everything() -> None:
    """No check cries wolf, and each one is tried on at least one variant.

    On a machine that stalls for seconds a plugin looks slow: one that was found guilty is checked
    again alone.
    """
    runs = await asyncio.gather(*(check(GOOD_PLUGIN, *options) for options in VARIANTS.values()))
    for variant, results in zip(VARIANTS, runs, strict=True):
        again = await check(GOOD_PLUGIN, *VARIANTS[variant]) if found(results) else results
        notes = {each.check.id: each.verdict for each in again if each.check.id in found(again)}
        assert not notes, variant
        assert len(again) == len(ALL), variant
    assert set.intersection(*map(skipped, runs)) <= ELSEWHERE
