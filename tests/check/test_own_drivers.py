"""Our own drivers, in each mode, keep every rule that can be tried on them; no driver at all."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.drivers.rules import ALL
from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import TRIGGERED, DriverTarget
from kubedevices.check.drivers.timing import QUICK
from kubedevices.errors import DriverNeverRegistered
from tests.check.grpc_driver_rig import FAST
from tests.check.our_driver import PLACES, simulator
from tests.check.our_program import KUBEDEVICES
from tests.check.rig import NO_PROSE

DRA = ("--mode", "dra", *PLACES)
SOCKETS = ("--socket-dir", "{kubelet_dir}/device-plugins")

EXPOSE = """\
version: 1
namespace: example.com
resources:
- name: shared
  match:
  - path: /dev/full
  replicas: 3
- name: alone
  match:
  - path: /dev/zero
"""

SCANNER = """\
import kubedevices as kd

class Widgets(kd.PolledScanner):
    def list_devices(self):
        widgets = [kd.Device(f"w{number}", paths=["/dev/null"]) for number in range(3)]
        return kd.DeviceTree({"widget": widgets})
"""

BEHIND_THE_PROXY = """\
dir={directory}/$$
{program} simulate --number-devices 3 --socket-dir $dir &
plugin=$!
trap 'kill $proxy' TERM INT
{program} proxy --plugin-dir $dir --state-dir $dir.state --socket-dir $dir.kubelet "$@" &
proxy=$!
code=143; while [ $code -gt 128 ]; do wait $proxy; code=$?; done
kill $plugin; exit $code
"""


def command(kind: str, directory: Path) -> tuple[str, ...]:
    """Return the command line of a driver, whose files are in `directory`."""
    simulate = ("simulate", "--number-devices", "4", "--env-prefix", "GPU")
    match kind:
        case "run":
            scanner = directory / "widgets.py"
            scanner.write_text(SCANNER)
            return (*KUBEDEVICES, "run", "--domain", "example.com", *DRA, f"{scanner}:Widgets")
        case "expose":
            config = directory / "expose.yaml"
            config.write_text(EXPOSE)
            return (*KUBEDEVICES, "expose", "--config", str(config), *DRA)
        case "split":
            mode = ("--mode", "split", "--dra-devices", "*/*-[01]", *SOCKETS)
            return (*KUBEDEVICES, *simulate, *mode, *PLACES)
        case "mode-file":
            (directory / "mode").write_text("dra")
            mode_file = ("--mode-file", str(directory / "mode"), *SOCKETS)
            return (*KUBEDEVICES, *simulate, *mode_file, *PLACES)
    program = " ".join(KUBEDEVICES)
    script = BEHIND_THE_PROXY.format(directory=directory, program=program)
    return ("sh", "-c", script, "proxy", *DRA[:-2])  # it writes no CDI files of its own


async def test_our_simulator_is_well_behaved() -> None:
    """Every rule that needs neither long waits nor a trigger passes."""
    chosen = [rule for rule in ALL if not rule.slow and not rule.track]
    results = (await run_driver(simulator(), chosen, FAST)).results
    found = {each.check.id: each.verdict for each in results if each.status.value != "pass"}
    assert {*found} == {"prepare.shares", "prepare.config-order"}, found
    assert len(results) == len(chosen)
    assert not [each for each in results if NO_PROSE.search(each.verdict.evidence)]


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_our_simulator_keeps_every_rule() -> None:
    """Also those with a copy of the driver for each rule."""
    results = (await run_driver(simulator(), ALL, replace(QUICK.scaled(2), repaired=60))).results
    found = {each.check.id: each.verdict for each in results if each.status.value != "pass"}
    not_tried = {rule.id for rule in ALL if rule.track == TRIGGERED or rule.theme == "rights"}
    not_tried |= {"prepare.shares", "prepare.config-order", "register.idle"}
    assert {*found} == not_tried, found


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["run", "expose", "split", "mode-file", "proxy"])
async def test_our_driver_is_well_behaved(short_dir: Path, kind: str) -> None:
    """No rule fails or warns, and only those are skipped that need what the driver has not."""
    chosen = [rule for rule in ALL if not rule.slow]
    results = (await run_driver(DriverTarget(command(kind, short_dir)), chosen, QUICK)).results
    assert not [
        (each.check.id, each.verdict) for each in results if each.status.value in ("fail", "warn")
    ]
    passed = {each.check.id for each in results if each.status.value == "pass"}
    wanted = "prepare.shares" if kind == "expose" else "prepare.exclusive"
    assert {"register.stop", "state.restart-held", "state.reboot", wanted} <= passed


async def test_a_program_that_never_registers() -> None:
    """The error tells it from a driver with mistakes, and what to try."""
    target = DriverTarget(("sh", "-c", "sleep 100 # {kubelet_dir}"))
    with pytest.raises(DriverNeverRegistered, match=r"no registration socket.*\{kubeconfig\}"):
        await run_driver(target, ALL[:1], QUICK.scaled(0.02))
    with pytest.raises(DriverNeverRegistered, match="exit code 7"):
        await run_driver(DriverTarget(("sh", "-c", "exit 7")), ALL[:1], QUICK)
