"""`kubedevices check` on a well-behaved plugin of grpc-go: what it finds would be our fault."""

from kubedevices.conformance.checks import ALL
from kubedevices.conformance.runner import run_checks
from kubedevices.conformance.target import Target
from tests.conformance.rig import FAST, found, hot_plug, widgets
from tests.interop import go_peer


async def test_a_good_go_plugin_passes() -> None:
    """Every check passes or does not apply."""
    with widgets() as directory:
        command = (str(go_peer.binary()), "plugin", "{socket_dir}", str(directory))
        target = Target(command, trigger=hot_plug(directory))
        results = await run_checks(target, ALL, FAST)
    notes = {each.check.id: each.verdict for each in results if each.check.id in found(results)}
    assert not notes
    assert len(results) == len(ALL)
