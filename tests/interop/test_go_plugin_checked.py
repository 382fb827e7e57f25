"""`kubedevices check` on plugins of grpc-go: what it finds of a good one would be our fault."""

from collections.abc import Sequence
from dataclasses import replace

from kubedevices.check.check import PluginCheck
from kubedevices.check.checks import ALL, find
from kubedevices.check.results import CheckResult
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target
from kubedevices.check.timing import CheckTiming
from tests.check.rig import FAST, found, hot_plug, widgets
from tests.interop import go_peer


async def check(
    *habit: str,
    checks: Sequence[PluginCheck] = ALL,
    side_by_side: bool = False,
    timing: CheckTiming = FAST,
) -> list[CheckResult]:
    """Check the plugin with a habit, if one is named."""
    with widgets() as directory:
        command = (str(go_peer.binary()), "plugin", "{socket_dir}", str(directory), *habit)
        plugin = Target(command, trigger=hot_plug(directory), side_by_side=side_by_side)
        return (await run_all(plugin, checks, timing)).results


async def test_a_good_go_plugin_passes() -> None:
    """Every check passes or does not apply."""
    results = await check()
    notes = {each.check.id: each.verdict for each in results if each.check.id in found(results)}
    assert not notes
    assert len(results) == len(ALL)


async def test_a_plugin_that_waits_for_the_creation_of_kubelet_sock_comes_back() -> None:
    """A kubelet binds kubelet.sock: watchers are told of a new file, and not of a renamed one."""
    checks = [find("life.sockets-wiped"), find("life.refused-dial"), find("life.kubelet-away")]
    results = await check("watches", checks=checks)
    assert {each.check.id: each.status.value for each in results} == {
        each.id: "pass" for each in checks
    }


async def test_a_real_panic_is_told_with_its_place() -> None:
    """It crashes some time after a restart: once, with the line of its own code."""
    results = await check("panics", checks=[find("life.sockets-wiped"), find("life.dies")])
    (dies,) = [each for each in results if each.check.id == "life.dies"]
    assert found(results) == {"life.dies": "fail"}
    assert "exit code 2" in dies.verdict.evidence
    assert dies.verdict.story.startswith(
        "panic: send on closed channel\nmain.(*plugin).sendToNobody at"
    )
    assert "habits.go:" in dies.verdict.story


async def test_a_plugin_that_registers_long_after_it_serves_is_checked_whole() -> None:
    """Kubevirt's framework, faster: what it does wrong, and nothing that its wait would explain."""
    # Each of its many starts sleeps: on a busy machine it is late by the clock.
    patient = replace(FAST, noticed_soon=7, registered_soon=6)
    results = await check("waits", "700ms", side_by_side=True, timing=patient)
    assert found(results) == {
        "life.stream-cancelled": "warn",
        "life.own-socket-removed": "warn",
        "life.descriptors": "warn",
        "life.stop-socket": "warn",
    }
    said = {each.check.id: each.status.value for each in results}
    assert said["list.change"] == said["life.lost-updates"] == said["life.dies"] == "pass"
