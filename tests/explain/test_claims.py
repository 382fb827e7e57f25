"""Claims of DRA drivers, in `explain` and `devices`, from the files of a driver."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubedevices.cli import main
from kubedevices.dra.claim_log import ClaimLog
from kubedevices.dra.claims import Result
from kubedevices.dra.prepared import FILE_NAME, PreparedClaim, PreparedClaims, PreparedDevice
from kubedevices.explain.ask import ask_use
from kubedevices.explain.diagnosis import explain
from kubedevices.explain.facts import ClaimFacts, DriverFacts, HeldClaim, RefusedClaim
from kubedevices.explain.finding import Step
from kubedevices.explain.host_paths import HostPaths
from kubedevices.explain.judge_claims import judge_claims, judge_foreign_claims
from kubedevices.explain.look_drivers import look_at_drivers
from kubedevices.host.boot_id import read_boot_id
from kubedevices.kubelet_api.pod_resources import (
    GET_ALLOCATABLE,
    LIST,
    ClaimedDevice,
    ClaimEntry,
    ContainerEntry,
    PodEntry,
    pod_to_wire,
)
from kubedevices.values.allocation import ClaimReference
from kubedevices.wire.unix_grpc import GrpcServer, UnaryMethod
from tests.dra.test_claim_log import Service

DRIVER = "example.com"
ONE, TWO = (ClaimReference("lab", f"{n:08}-0000-4000-8000-000000000000", f"c{n}") for n in (1, 2))


@pytest.fixture
async def host(short_dir: Path) -> Path:
    """Return a kubelet's directory with a driver: one claim prepared, one refused."""
    data = short_dir / "plugins" / DRIVER
    devices = (PreparedDevice(Result("it", "node1", "gpu-0")),)
    claim = PreparedClaim(ONE, read_boot_id(), is_ready=True, devices=devices, cdi="{}")
    PreparedClaims(data / FILE_NAME).put(claim)
    service = Service()
    service.refused = {TWO.uid: "the pod lab/old holds it"}
    await ClaimLog(service, data / "refused.json").prepare((TWO,))
    (short_dir / "plugins_registry").mkdir()
    (short_dir / "plugins" / "another").mkdir()
    return short_dir


async def test_the_files_of_a_driver_say_who_has_what(host: Path) -> None:
    """And what was refused; a directory of another driver says nothing."""
    (driver,) = look_at_drivers([host, host / "none"], [host / "cdi"])
    assert driver == DriverFacts(
        DRIVER,
        is_listening=False,
        has_slices=False,
        claims=(ClaimFacts("lab/c1", ("gpu-0",), is_ready=True, lacks_file=True),),
        refused=(RefusedClaim("lab", "c2", "the pod lab/old holds it"),),
    )
    (host / "plugins_registry" / f"{DRIVER}-reg.1.sock").touch()
    (host / "cdi").mkdir()
    (host / "cdi" / f"kubedevices_{DRIVER}-claim_{ONE.uid}.json").touch()
    (driver,) = look_at_drivers([host], [host / "cdi"])
    assert driver.is_listening
    assert not driver.claims[0].lacks_file


def test_a_claim_that_no_container_has_is_named_with_the_command_that_frees_it() -> None:
    """Also as the advice for the claim that waits for its device."""
    unused = ClaimFacts("lab/c1", ("gpu-0",), is_ready=True, is_unused=True)
    used = ClaimFacts("lab/c0", ("gpu-1",), is_ready=True)
    reason = "claim lab/c2: the claim lab/c1 still holds device gpu-0"
    refused = (RefusedClaim("lab", "c2", reason), RefusedClaim("lab", "c3", "lab/c11 still holds"))
    driver = DriverFacts(DRIVER, True, True, (unused, used), refused)
    _, warned, waits, other = [*judge_claims([driver])]
    assert warned.result == "warning"
    assert "lab/c1 is prepared and has gpu-0" in warned.found
    free = "kubedevices release --claim lab/c1"
    assert warned.command == waits.command == free
    assert "the kubelet tries again" in other.advice


async def test_explain_asks_the_kubelet_which_claims_containers_have(host: Path) -> None:
    """Without an answer nothing is said about the use of a claim."""
    drivers = look_at_drivers([host], [])
    socket = host / "kubelet.sock"
    assert await ask_use(drivers, socket) == drivers
    for claims, is_unused in (((ClaimEntry("c1", "lab"),), False), ((), True)):
        pod = PodEntry("p", "lab", (ContainerEntry("main", (), claims),))
        server = GrpcServer({LIST: UnaryMethod(partial(answer, pod_to_wire(pod)))}, name="kubelet")
        await server.start(socket)
        (driver,) = await ask_use(drivers, socket)
        await server.stop()
        assert [each.is_unused for each in driver.claims] == [is_unused]


async def answer(data: bytes, _payload: bytes) -> bytes:
    return data


def test_a_claim_that_is_not_prepared_is_a_problem_with_its_reason() -> None:
    """Those that are prepared are told in one line."""
    claims = tuple(ClaimFacts(f"lab/c{n}", (f"gpu-{n}",), is_ready=True) for n in range(2))
    refused = (RefusedClaim("lab", "c9", "there is no device"),)
    driver = DriverFacts(DRIVER, True, True, claims, refused)
    fine, bad = judge_claims([driver])
    assert fine.result == "ok"
    assert fine.found == "2 claims prepared: lab/c0 has gpu-0; lab/c1 has gpu-1"
    assert (bad.result, bad.found) == ("problem", "lab/c9 is not prepared: there is no device")
    assert bad.command == "kubectl --namespace lab describe resourceclaim c9"
    assert not [*judge_claims([driver], "other.com")]


def test_a_driver_that_does_not_run_is_reported() -> None:
    """With claims its pods cannot end; without, its slices go."""
    claim = ClaimFacts("lab/c1", ("gpu-0",), is_ready=True)
    (found,) = judge_claims([DriverFacts(DRIVER, False, True, (claim,))])
    assert (found.result, found.found) == (
        "problem",
        "the driver does not run, but has 1 prepared claim: their pods cannot end",
    )
    (found,) = judge_claims([DriverFacts(DRIVER, False, True)])
    assert found.result == "warning"


def test_a_missing_file_is_a_problem() -> None:
    """The runtime refuses the container."""
    claim = ClaimFacts("lab/c1", ("gpu-0",), is_ready=True, lacks_file=True)
    *_, found = judge_claims([DriverFacts(DRIVER, True, True, (claim,))])
    assert found.result == "problem"
    assert found.found.startswith("lab/c1 is prepared, but its CDI file is missing")


@pytest.fixture
def told(
    host: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Return what runs a verb beside this kubelet's directory, and gives its JSON."""
    (host / "device-plugins").mkdir()
    from kubedevices.cli.node import devices

    monkeypatch.setattr(devices, "_ask", lambda _args: {"resources": []})

    def run(*words: object) -> Any:
        where = ("--socket-dir", str(host / "device-plugins"), "-o", "json")
        main([*map(str, words), *where])
        return json.loads(capsys.readouterr().out)

    return run


def test_devices_lists_claims_beside_the_other_devices(told: Callable[..., Any]) -> None:
    """Of all drivers, or of the driver that a resource is of."""
    found = told("devices")["claims"]
    assert found == [
        {
            "driver": DRIVER,
            "claim": "lab/c1",
            "devices": ["gpu-0"],
            "held_by": [],
            "state": "prepared",
        },
        {
            "driver": DRIVER,
            "claim": "lab/c2",
            "devices": [],
            "held_by": [],
            "state": "refused: the pod lab/old holds it",
        },
    ]
    assert told("devices", f"{DRIVER}/gpu")["claims"] == found


FOREIGN = "gpu.vendor.org"
HOLDER = {"namespace": "lab", "pod": "p", "uid": "", "container": "main"}


@pytest.fixture
async def kubelet(host: Path) -> AsyncIterator[Path]:
    """Serve podresources: a container has a claim of our driver, and one of another driver."""
    claims = (
        ClaimEntry("c1", "lab", (ClaimedDevice(DRIVER, "node1", "gpu-0"),)),
        ClaimEntry("c7", "lab", tuple(ClaimedDevice(FOREIGN, "node1", f"g{n}") for n in range(2))),
    )
    pod = PodEntry("p", "lab", (ContainerEntry("main", (), claims),))
    methods = {
        LIST: UnaryMethod(partial(answer, pod_to_wire(pod))),
        GET_ALLOCATABLE: UnaryMethod(partial(answer, b"")),
    }
    server = GrpcServer(methods, name="kubelet")
    await server.start(host / "pr.sock")
    yield host / "pr.sock"
    await server.stop()


async def test_devices_names_the_claims_of_other_drivers(
    host: Path, kubelet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says of each claim which container has it, also in the table."""
    (host / "device-plugins").mkdir()
    places = ["--socket-dir", str(host / "device-plugins"), "--pod-resources", str(kubelet)]

    async def told(*words: str) -> str:
        assert await asyncio.to_thread(main, ["devices", *words, *places]) == 0
        return capsys.readouterr().out

    ours, refused, foreign = json.loads(await told("-o", "json"))["claims"]
    assert (ours["claim"], ours["held_by"], refused["held_by"]) == ("lab/c1", [HOLDER], [])
    assert foreign == {
        "driver": FOREIGN,
        "claim": "lab/c7",
        "devices": ["g0", "g1"],
        "held_by": [HOLDER],
        "state": "prepared",
    }
    (found,) = json.loads(await told("-o", "json", f"{FOREIGN}/gpu"))["claims"]
    assert found == foreign
    (line,) = [each for each in (await told()).splitlines() if FOREIGN in each]
    assert line.split() == [FOREIGN, "lab/c7", "g0,", "g1", "lab/p", "(main)", "prepared"]


async def test_explain_names_the_claims_of_other_drivers(host: Path, kubelet: Path) -> None:
    """With their devices and holders; our driver's claim is not named twice."""
    (host / "device-plugins").mkdir()
    places = HostPaths(host / "device-plugins", host, pod_resources=kubelet, kubelet_roots=())
    diagnosis = await explain(places)
    looked_at = [each.looked_at for each in diagnosis.findings if each.step is Step.CLAIM]
    assert looked_at.count(f"driver {FOREIGN}") == 1
    (found,) = [each for each in diagnosis.findings if each.looked_at == f"driver {FOREIGN}"]
    assert found.found == "1 claim in use: lab/c7 has g0, g1, held by lab/p (main)"


def test_claims_of_our_drivers_are_not_foreign() -> None:
    """Nor are those of another domain than the one that is asked for."""
    claims = [HeldClaim(DRIVER, "lab/c1", ("a",), ("lab/p (m)",))]
    claims += [HeldClaim(FOREIGN, "lab/c2", ("b",), ("lab/p (m)",))]
    drivers = [DriverFacts(DRIVER, True, True)]
    assert [each.looked_at for each in judge_foreign_claims(claims, drivers)] == [
        f"driver {FOREIGN}"
    ]
    assert not [*judge_foreign_claims(claims, drivers, DRIVER)]
    assert len([*judge_foreign_claims(claims, (), DRIVER)]) == 1


def test_explain_follows_claims_too(told: Callable[..., Any]) -> None:
    """As the step `claim`; the reason is that of the driver."""
    found = [each for each in told("explain")["findings"] if each["step"] == "claim"]
    assert [each["result"] for each in found] == ["problem"] * 3
    assert "lab/c2 is not prepared: the pod lab/old holds it" in found[2]["found"]


@pytest.mark.parametrize("name", ["**", "[", "*", "?x"])
def test_a_directory_with_any_name_is_looked_at(tmp_path: Path, name: str) -> None:
    """Another plugin may create it: its name is no pattern."""
    (tmp_path / "plugins" / name).mkdir(parents=True)
    (tmp_path / "plugins" / name / "has-slices").touch()
    (tmp_path / "plugins_registry").mkdir()
    (tmp_path / "plugins_registry" / "other-reg.sock").touch()
    (found,) = look_at_drivers([tmp_path], [])
    assert (found.name, found.is_listening) == (name, False)
