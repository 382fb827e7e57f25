"""`kubedevices check` for DRA drivers that find the API server as in a pod."""

from pathlib import Path

import pytest

from kubedevices.check.drivers.rules import ALL
from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import DriverTarget
from tests.check.grpc_driver_rig import FAST, with_needs
from tests.check.our_driver import IN_A_POD, OUR_DRIVER, SIMULATE, simulator
from tests.host_needs import needs

PROGRAM = ("env", "-u", "KUBECONFIG", *OUR_DRIVER, *SIMULATE)


@needs("root")
async def test_a_driver_finds_its_service_account() -> None:
    """Address, CA and token: it publishes over TLS, and its claims are prepared."""
    target = DriverTarget((*PROGRAM, *IN_A_POD))
    chosen = with_needs("prepare.repeat", "slices.deleted-one", "process.stderr-secrets")
    results = (await run_driver(target, chosen, FAST)).results
    assert {each.status.value for each in results} == {"pass"}, [each.verdict for each in results]


@needs("root")
async def test_an_outage_of_the_server_is_one_over_tls_too() -> None:
    """`slices.api-away` closes both ports."""
    target = DriverTarget((*PROGRAM, *IN_A_POD))
    results = (await run_driver(target, with_needs("slices.api-away"), FAST)).results
    assert {each.status.value for each in results} == {"pass"}, [each.verdict for each in results]


@needs("root", "mount")
async def test_the_cdi_files_of_the_host_are_seen_and_not_changed() -> None:
    """A driver may write to /etc/cdi: it sees a copy, which stays over a reboot."""
    host = Path("/etc/cdi")
    before = sorted(host.iterdir()) if host.exists() else None
    places = ("--kube-node", "{node}", "--cdi-dir", str(host))
    target = DriverTarget((*PROGRAM, *places))
    chosen = with_needs("prepare.answers", "state.cdi-wiped", "state.reboot")
    results = (await run_driver(target, chosen, FAST)).results
    assert {each.status.value for each in results} == {"pass"}, [each.verdict for each in results]
    assert (sorted(host.iterdir()) if host.exists() else None) == before


async def test_a_real_cluster_around_the_check_is_hidden(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the driver has no private view: else it would change a real cluster."""
    for name, value in {"HOST": "192.0.2.1", "PORT": "443"}.items():
        monkeypatch.setenv(f"KUBERNETES_SERVICE_{name}", value)
    seen = short_dir / "seen"
    words = simulator().command
    script = f'echo "$KUBERNETES_SERVICE_HOST" > {seen}; exec "$@"'
    target = DriverTarget(("sh", "-c", script, "sh", *words))
    await run_driver(target, ALL[:1], FAST)
    assert seen.read_text().strip() in ("", "127.0.0.1")
