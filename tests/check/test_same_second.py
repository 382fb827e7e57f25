"""Two starts within the same second, also where a start takes longer than that."""

from dataclasses import replace

import pytest

from kubedevices.check.checks import find
from kubedevices.check.runner import run_all
from tests.check.rig import FAST, MUTANT, target, widgets

pytestmark = pytest.mark.usefixtures("preloaded")

MORE_THAN_A_SECOND = ("sh", "-c", 'sleep 1.2; exec "$@"', "sh")


async def test_a_slow_start_also_finds_the_socket_of_its_second() -> None:
    """Its restart takes longer than a second, so the check creates the sockets beforehand."""
    with widgets() as directory:
        plugin = target(MUTANT, directory, ("--mutation", "generic-starts-in-one-second"))
        slow = replace(plugin, command=(*MORE_THAN_A_SECOND, *plugin.command))
        same_second = find("registration.same-second")
        (result,) = (await run_all(slow, [same_second], replace(FAST, start=8))).results
    assert result.status.value == "warn", result.verdict
    assert "second start" not in result.verdict.evidence
