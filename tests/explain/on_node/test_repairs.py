"""`explain --fix`: each repair, what it leaves alone, and a node that changes meanwhile."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubedevices.explain.on_node import do_repairs
from kubedevices.explain.on_node.driver_facts import (
    ClaimedPart,
    ClaimFacts,
    DraFacts,
    DriverFacts,
    DriverFiles,
)
from kubedevices.explain.on_node.facts import (
    DeviceState,
    RegistrySocket,
    ResourceFacts,
    ResourceState,
)
from kubedevices.explain.on_node.look_node import NodeFacts, look_at_node
from kubedevices.explain.on_node.repairs import Action, Repair, RepairFacts, find_repairs
from kubedevices.host.cdi_specs import file_name, write_spec
from kubedevices.rules.cordon import FILE_NAME
from kubedevices.rules.cordon_file import add_cordoned, read_cordoned
from kubedevices.values.cdi import CdiDevice, CdiSpec, ContainerEdits
from kubedevices.values.proxied_plugin import DeviceReason
from kubedevices.values.socket_paths import default_state_dir
from tests.explain.node_rig import DOMAIN, FOREIGN, WIDGET, NodeHost, Widgets, write_cdi
from tests.explain.test_planted_node_faults import (
    claimed,
    dead_socket,
    foreign_driver_removed,
    forget_pod,
    kubelet_forgot_a_claim,
    pod_is_gone,
    started,
)
from tests.proxy_answers import PLUGIN

UID = "067798be-454e-4be4-9047-1aa06aea63f7"


def tree(host: NodeHost) -> dict[str, bytes]:
    """Return every file below the kubelet's root directory, except what its processes write."""
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for path in host.root.rglob("*")
        if not path.is_dir() and not path.name.startswith(("kubelet_internal", "ledger"))
    }


async def repaired(host: NodeHost, what: str, *words: str) -> None:
    """Check that the repair is shown, done only with `--yes`, and not found a second time."""
    before = tree(host)
    shown = await host.explain(*words, "--fix")
    assert what in shown.out, shown.out
    assert "nothing was changed: --fix --yes would do 1 repair" in shown.out
    assert tree(host) == before
    done = await host.explain(*words, "--fix", "--yes")
    number = re.search(rf"^(\d+)\. {re.escape(what)}", done.out, re.MULTILINE)
    assert number is not None
    assert f"{number[1]}. done" in done.out, done.out
    assert done.code == 0, done.out
    again = await host.explain(*words, "--fix")
    assert (again.code, what in again.out) == (0, False), again.out


def lone_claim_file(host: NodeHost, driver: str = DOMAIN) -> Path:
    """Write the CDI file of a claim as a driver does."""
    device = CdiDevice(f"{UID}-w-0", container_edits=ContainerEdits(env=("A=1",)))
    name = file_name(f"{driver}/claim", UID)
    write_spec(host.cdi_dir, name, CdiSpec(kind=f"{driver}/claim", devices=(device,)))
    return host.cdi_dir / name


# ---------------------------------------------------------------- each repair


async def test_a_forgotten_claim_is_unprepared(host: NodeHost) -> None:
    """Its device is free then, for the next claim."""
    await kubelet_forgot_a_claim(host)
    await repaired(host, f"unprepare the claim default/train-1 of the driver {DOMAIN}")
    prepared = json.loads((host.root / "plugins" / DOMAIN / "prepared.json").read_text())
    assert prepared["claims"] == []
    assert not [*host.cdi_dir.iterdir()]


async def test_a_claim_whose_pod_is_gone_is_unprepared(host: NodeHost) -> None:
    """Also while other pods run, since the kubelet still says whose it was."""
    await claimed(host)
    await forget_pod(host, "train")
    (host.root / "pods" / "another").mkdir(parents=True)
    await started(host)
    await repaired(host, f"unprepare the claim default/train-1 of the driver {DOMAIN}", DOMAIN)


async def test_a_cdi_file_of_a_claim_that_is_gone_is_removed(host: NodeHost) -> None:
    """Files of claims that are prepared stay."""
    await claimed(host)
    (kept,) = host.cdi_dir.iterdir()
    lone = lone_claim_file(host)
    for subject in ("", DOMAIN):
        told = (await host.explain(*filter(None, [subject]))).lines("warning")
        assert f"{lone}: 1 CDI file of claims that are gone" in "".join(told)
    assert "CDI file" not in (await host.explain(FOREIGN)).out
    await repaired(host, f"remove the CDI file {lone}", DOMAIN)
    assert [*host.cdi_dir.iterdir()] == [kept]


async def test_a_dead_registration_socket_is_removed(host: NodeHost) -> None:
    """The driver was killed, and its node is used no more."""
    driver = await host.on_bench(host.bench.start, Widgets(), domain=DOMAIN, mode="dra")
    await host.on_bench(host.bench.wait_published, DOMAIN, devices=2)
    host.bench.kill_plugin(driver)
    (socket,) = host.registry.iterdir()
    os.utime(socket, (0, 0))
    assert (await host.explain()).code == 1
    await repaired(host, f"remove the registration socket {socket}")


async def test_a_device_that_is_gone_is_uncordoned(host: NodeHost) -> None:
    """One that exists stays cordoned."""
    file = default_state_dir(host.bench.socket_dir) / FILE_NAME
    await started(host)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    add_cordoned(file, [(WIDGET, "w-0"), ("gone.com/w", "w-0")], "noisy")
    await repaired(host, "uncordon gone.com/w/w-0 (noisy)")
    assert [each.resource for each in read_cordoned(file)] == [WIDGET]


# ---------------------------------------------------------------- what is left alone


async def test_a_claim_that_a_forgotten_pod_may_have_is_not_unprepared(host: NodeHost) -> None:
    """A kubelet that lost its checkpoint lists a running pod without its claims."""
    await kubelet_forgot_a_claim(host)
    await started(host)
    await host.on_bench(host.bench.allocate, "runs", "main", {WIDGET: 1})
    before = tree(host)
    shown = await host.explain("--fix", "--yes")
    assert "may have forgotten that one of these pods has it: default/runs" in shown.out
    assert "$ kubedevices release --claim default/train-1" in shown.out
    assert tree(host) == before


async def test_the_state_of_others_is_never_changed(host: NodeHost) -> None:
    """For each there is a command."""
    await pod_is_gone(host)
    dead_socket(host.registry / "csi.vendor.org-reg.sock")
    write_cdi(host.cdi_dir, f"{DOMAIN}/claim", f"{UID}-w-0", name=f"x-claim_{UID}.json")
    write_cdi(host.cdi_dir, "other.org/gpu", "a", name="kubedevices_other.json")
    before = tree(host)
    shown = await host.explain("--fix", "--yes")
    assert f"$ rm {host.registry}/csi.vendor.org-reg.sock" in shown.out
    assert f"unprepare the claim default/train-1 of the driver {FOREIGN}" in shown.out
    assert "the driver is of another vendor" in shown.out
    assert ". done" not in shown.out
    assert "remove the CDI file" not in shown.out
    assert (tree(host), shown.code) == (before, 1)


async def test_a_name_of_a_stranger_is_quoted_in_commands(host: NodeHost) -> None:
    """A socket may be called as a shell would understand it."""
    await host.on_bench(lambda: host.bench.dra)
    dead_socket(host.registry / "x;reboot\n-reg.sock")
    shown = await host.explain("--fix")
    commands = {line.strip() for line in shown.out.splitlines() if line.strip()[:5] == "$ rm "}
    assert commands == {f"$ rm $'{host.registry}/x;reboot\\012-reg.sock'"}


async def test_a_foreign_driver_that_is_away_has_no_repair(host: NodeHost) -> None:
    """The findings say what to do."""
    await foreign_driver_removed(host)
    shown = await host.explain("--fix", "--yes")
    assert "there is nothing to repair" in shown.out


async def test_a_healthy_node_has_nothing_to_repair(host: NodeHost) -> None:
    """Exit code 0."""
    await claimed(host)
    shown = await host.explain("--fix", "--yes")
    assert ("there is nothing to repair" in shown.out, shown.code) == (True, 0)


# ---------------------------------------------------------------- the node changes meanwhile


async def test_a_claim_that_got_a_pod_meanwhile_stays(
    host: NodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair looks again right before."""
    look = look_at_node

    async def pod_comes_back(*words: Any, **options: Any) -> NodeFacts:
        dra = host.bench.dra

        async def prepare() -> None:
            await dra.claim("train", "train-1", (), 20)

        await host.on_bench(host.bench._thread.call, prepare())
        return await look(*words, **options)

    await kubelet_forgot_a_claim(host)
    monkeypatch.setattr(do_repairs, "look_at_node", pod_comes_back)
    shown = await host.explain("--fix", "--yes")
    assert "1. not done: it is not right any more: the node has changed" in shown.out
    prepared = json.loads((host.root / "plugins" / DOMAIN / "prepared.json").read_text())
    assert len(prepared["claims"]) == 1


async def test_a_socket_on_which_a_process_listens_meanwhile_stays(host: NodeHost) -> None:
    """Between the last look and the removal, too."""
    driver = await host.on_bench(host.bench.start, Widgets(), domain=DOMAIN, mode="dra")
    await host.on_bench(host.bench.wait_published, DOMAIN, devices=2)
    (socket,) = host.registry.iterdir()
    facts: Any = None  # what was seen before does not count
    dead = Repair("", "", "", "", DOMAIN, Action.REMOVE_SOCKET, (str(socket),))
    assert "a process may be about to listen" in await do_repairs._do(dead, facts)
    assert socket.exists()
    assert driver.is_running


# ---------------------------------------------------------------- words


async def test_programs_get_the_repairs(host: NodeHost) -> None:
    """The keys are public."""
    await kubelet_forgot_a_claim(host)
    for words, is_done in ((), False), (("--yes",), True):
        shown = await host.explain("--fix", "-o", "json", *words)
        (repair,) = json.loads(shown.out)["repairs"]
        assert [*repair] == [
            "what",
            "why",
            "changes",
            "command",
            "automatic",
            "done",
            "problem",
        ]
        assert (repair["automatic"], repair["done"]) == (True, is_done)
    assert "repairs" not in json.loads((await host.explain("-o", "json")).out)


async def test_yes_without_fix_is_refused(host: NodeHost) -> None:
    """Nobody changes a node by accident; nor is a pod repaired."""
    assert (await host.explain("--yes")).code == 2
    assert (await host.explain("pod", "train", "--fix")).code == 2


async def test_the_page_shows_what_is_printed(host: NodeHost) -> None:
    """The example of the page on troubles is the output for a forgotten claim."""
    await kubelet_forgot_a_claim(host)
    shown = (await host.explain(DOMAIN, "--fix")).out
    page = (Path(__file__).parents[3] / "docs/troubleshoot.md").read_text()
    printed = shown[shown.index("problem  claim") :]
    assert f"```text\n$ kubedevices explain {DOMAIN} --fix\n…\n{printed}```" in page, printed


# ---------------------------------------------------------------- the decision alone

ENTRY = DeviceReason(WIDGET, "w-7", "noisy")
LISTED = ResourceState(WIDGET, (DeviceState("w-0::1", "Healthy"),), 1, 1, "connected")
NODE = ResourceFacts("node", resources={WIDGET: LISTED})
FILES = DriverFiles(DOMAIN, Path(), devices=("w-0",))
RUNNING = (RegistrySocket(Path("x-reg.sock")),)


@pytest.mark.parametrize(
    ("seen", "is_gone"),
    [
        (RepairFacts(DraFacts(), answers=NODE, states={WIDGET: LISTED}), True),
        (RepairFacts(DraFacts(), answers=ResourceFacts("kubelet")), True),
        # The same device, or a replica of it.
        (
            RepairFacts(
                DraFacts(),
                answers=NODE,
                states={WIDGET: replace(LISTED, devices=(DeviceState("w-7::1", "Unhealthy"),))},
            ),
            False,
        ),
        # A kubelet lists no unhealthy device, and a plugin that is away none at all.
        (
            RepairFacts(DraFacts(), answers=NODE, states={WIDGET: replace(LISTED, capacity=None)}),
            False,
        ),
        (
            RepairFacts(
                DraFacts(), answers=NODE, states={WIDGET: replace(LISTED, plugin="stopped")}
            ),
            False,
        ),
        (
            RepairFacts(DraFacts(), answers=ResourceFacts("kubelet", registered={WIDGET: ()})),
            False,
        ),
        (RepairFacts(DraFacts()), False),  # nobody answered
        (RepairFacts(DraFacts(), answers=ResourceFacts("kubelet", proxied=(PLUGIN,))), False),
        # A driver has it in its slices, does not run, or does not say what it has.
        (
            RepairFacts(
                DraFacts((DriverFacts(DOMAIN, RUNNING, files=replace(FILES, devices=("w-7",))),)),
                answers=ResourceFacts("kubelet"),
            ),
            False,
        ),
        (
            RepairFacts(
                DraFacts((DriverFacts(DOMAIN, RUNNING, files=FILES),)),
                answers=ResourceFacts("kubelet"),
            ),
            True,
        ),
        (
            RepairFacts(
                DraFacts((DriverFacts(DOMAIN, files=FILES),)), answers=ResourceFacts("kubelet")
            ),
            False,
        ),
        (
            RepairFacts(
                DraFacts((DriverFacts(DOMAIN, RUNNING, files=replace(FILES, devices=None)),)),
                answers=ResourceFacts("kubelet"),
            ),
            False,
        ),
    ],
)
def test_only_a_device_that_nobody_has_is_uncordoned(seen: RepairFacts, is_gone: bool) -> None:
    """A device may be cordoned because it is unhealthy."""
    found = [*find_repairs(replace(seen, cordoned=[ENTRY]))]
    assert [each.action for each in found] == [Action.UNCORDON] * is_gone


@pytest.mark.parametrize(
    ("units", "command"),
    [
        ((), "kubectl get pods"),
        (("kubedevices-expose.service",), "systemctl restart kubedevices-expose.service"),
        (("kubedevices-a.service", "kubedevices-b.service"), "systemctl status 'kubedevices-*'"),
    ],
)
def test_a_driver_that_is_away_is_started_by_a_person(units: tuple[str, ...], command: str) -> None:
    """With the command of its unit."""
    claim = ClaimFacts("lab/c", (ClaimedPart(DOMAIN, "n", "w-0"),), "u", is_ours=True)
    dra = DraFacts((DriverFacts(DOMAIN, claims=(claim,), files=FILES),))
    (repair,) = find_repairs(RepairFacts(dra, units=units))
    assert repair.command.startswith(command)
    assert not repair.is_ours


@pytest.mark.parametrize(
    ("changes", "facts", "is_done"),
    [
        ({}, {"pods_without_claims": ()}, True),
        ({}, {"pods_without_claims": [("other", "p")]}, True),
        ({}, {"pods_without_claims": [("lab", "p")]}, False),
        ({}, {"pods_without_claims": None}, False),
        ({"is_forgotten": False}, {"pods_without_claims": [("lab", "p")]}, True),
        ({"is_certain": False}, {"pods_without_claims": ()}, False),
        ({"is_ours": False}, {"pods_without_claims": ()}, False),
    ],
)
def test_a_claim_is_unprepared_only_if_no_pod_can_have_it(
    changes: dict[str, Any], facts: dict[str, Any], is_done: bool
) -> None:
    """Otherwise the command is for a person."""
    claim = ClaimFacts(
        "lab/c", (), "u", is_ours=True, unused="it is unknown", is_certain=True, is_forgotten=True
    )
    driver = DriverFacts(DOMAIN, RUNNING, claims=(replace(claim, **changes),), files=FILES)
    (repair,) = find_repairs(RepairFacts(DraFacts((driver,)), **facts))
    assert repair.is_ours == is_done
    stopped = replace(driver, instances=())
    assert not any(
        each.is_ours for each in find_repairs(RepairFacts(DraFacts((stopped,)), **facts))
    )
