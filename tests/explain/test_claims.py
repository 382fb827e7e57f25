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
from kubedevices.dra.prepared_file import FILE_NAME, PreparedClaim, PreparedClaims, PreparedDevice
from kubedevices.explain.finding import Finding, Step
from kubedevices.explain.on_node.ask import ask_held_claims
from kubedevices.explain.on_node.diagnosis import explain
from kubedevices.explain.on_node.driver_facts import (
    ClaimedPart,
    ClaimFacts,
    DraFacts,
    DriverFacts,
    DriverFiles,
    KubeletClaims,
)
from kubedevices.explain.on_node.facts import NOBODY, RegistrySocket, ResourceFacts, Socket
from kubedevices.explain.on_node.host_paths import HostPaths
from kubedevices.explain.on_node.join_claims import ClaimSources, drivers_of
from kubedevices.explain.on_node.judge_drivers import judge_drivers
from kubedevices.explain.on_node.look_drivers import look_at_drivers
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
from kubedevices.values.allocation import ClaimReference, PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer, UnaryMethod
from tests.command_line import CommandLine
from tests.dra.test_claim_log import Service

DRIVER = "example.com"
PART = ClaimedPart(DRIVER, "node1", "gpu-0")
RUNS = (
    RegistrySocket(
        Path("/r/x-reg.sock"),
        PluginInfo("DRAPlugin", DRIVER, "/p/dra.sock", ("v1.DRAPlugin",)),
        service=Socket(Path("/p/dra.sock")),
    ),
)
ONE, TWO = (ClaimReference("lab", f"{n:08}-0000-4000-8000-000000000000", f"c{n}") for n in (1, 2))


def judged(driver: DriverFacts) -> list[Finding]:
    """Return what is said of the claims of a driver."""
    return [each for each in judge_drivers(DraFacts((driver,))) if each.step is Step.CLAIM]


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
    assert driver == DriverFiles(
        DRIVER,
        host / "plugins" / DRIVER,
        claims=(ClaimFacts(str(ONE), (PART,), ONE.uid, is_ours=True, lacks_file=True),),
        refused={"lab/c2": "the pod lab/old holds it"},
        devices=(),
    )
    (host / "cdi").mkdir()
    (host / "cdi" / f"kubedevices_{DRIVER}-claim_{ONE.uid}.json").touch()
    (driver,) = look_at_drivers([host], [host / "cdi"])
    assert not driver.claims[0].lacks_file
    (host / "plugins" / DRIVER / FILE_NAME).write_text("{}")
    (driver,) = look_at_drivers([host], [host / "cdi"])
    assert "prepared.json cannot be read" in driver.problem


async def test_a_claim_that_is_being_unprepared_lacks_no_file(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver removes the file first, and the claim a moment later."""
    checkpoint = host / "plugins" / DRIVER / FILE_NAME
    monkeypatch.setattr("time.sleep", lambda _: checkpoint.unlink())
    (driver,) = look_at_drivers([host], [host / "cdi"])
    assert not driver.claims


def test_a_claim_that_no_container_has_is_named_with_the_command_that_frees_it() -> None:
    """Also as the advice for the claim that waits for its device."""
    why = "the kubelet has no container with this claim"
    unused = ClaimFacts("lab/c1", (PART,), is_ours=True, unused=why)
    used = ClaimFacts("lab/c0", (PART,), is_ours=True)
    reason = "claim lab/c2: the claim lab/c1 still holds device gpu-0"
    refused = {"lab/c2": reason, "lab/c3": "lab/c11 still holds"}
    files = DriverFiles(DRIVER, Path(), refused=refused)
    _, warned, waits, other = judged(DriverFacts(DRIVER, RUNS, (), (unused, used), files))
    assert warned.result == "warning"
    assert "lab/c1 is prepared and has gpu-0" in warned.found
    free = "kubedevices release --claim lab/c1"
    assert warned.command == waits.command == free
    assert "the kubelet tries again" in other.advice


async def test_explain_asks_the_kubelet_which_claims_containers_have(host: Path) -> None:
    """Without an answer nothing is said about the use of a claim."""
    files = look_at_drivers([host], [])
    socket = host / "kubelet.sock"
    assert await ask_held_claims(ResourceFacts(), socket) is None
    part = ClaimedDevice(DRIVER, "node1", "gpu-0")
    for claims, is_unused in (((ClaimEntry("c1", "lab", (part,)),), False), ((), True)):
        pod = PodEntry("p", "lab", (ContainerEntry("main", (), claims),))
        methods = {
            LIST: UnaryMethod(partial(answer, pod_to_wire(pod))),
            GET_ALLOCATABLE: UnaryMethod(partial(answer, b"")),
        }
        server = GrpcServer(methods, name="kubelet")
        await server.start(socket)
        held = await ask_held_claims(ResourceFacts(), socket)
        await server.stop()
        sources = ClaimSources(files, (), KubeletClaims(Path()), held, str)
        (driver,) = drivers_of(sources)
        assert [bool(each.unused) for each in driver.claims] == [is_unused]


async def answer(data: bytes, _payload: bytes) -> bytes:
    return data


def test_a_claim_that_is_not_prepared_is_a_problem_with_its_reason() -> None:
    """Those that are prepared are told in one line."""
    claims = tuple(
        ClaimFacts(f"lab/c{n}", (PART._replace(device=f"gpu-{n}"),), f"uid-{n}") for n in range(2)
    )
    refused = {"lab/c9": "there is no device"}
    files = DriverFiles(DRIVER, Path(), refused=refused)
    fine, bad = judged(DriverFacts(DRIVER, RUNS, (), claims, files))
    assert fine.result == "ok"
    assert fine.found == "2 claims prepared: lab/c0 has gpu-0; lab/c1 has gpu-1"
    assert (bad.result, bad.found) == ("problem", "lab/c9 is not prepared: there is no device")
    assert bad.command == "kubectl --namespace lab describe resourceclaim c9"


def test_a_driver_that_does_not_run_is_reported() -> None:
    """With claims its pods cannot end; without, its slices go."""
    claim = ClaimFacts("lab/c1", (PART,))
    files = DriverFiles(DRIVER, Path(), has_slices=True)
    found, *_ = judge_drivers(DraFacts((DriverFacts(DRIVER, claims=(claim,), files=files),)))
    assert (found.result, found.found) == (
        "problem",
        "the driver does not run, but has 1 prepared claim: their pods cannot end",
    )
    found, *_ = judge_drivers(DraFacts((DriverFacts(DRIVER, files=files),)))
    assert found.result == "warning"
    unseen = DriverFacts(DRIVER, claims=(claim,), files=files, is_seen=False)
    assert [each.result for each in judge_drivers(DraFacts((unseen,)))] == ["unknown", "ok"]


def test_a_dead_socket_beside_a_live_instance_is_a_warning() -> None:
    """The kubelet uses the live one; the command depends on whose the socket is."""
    place = Path("/r/example.com-reg.sock")
    dead = (RegistrySocket(place, socket=Socket(place, NOBODY)),)
    commands = ("rm /r/example.com-reg.sock", "kubedevices explain --fix")
    for files, command in zip((None, DriverFiles(DRIVER, Path())), commands, strict=True):
        driver = DriverFacts(DRIVER, RUNS, dead, files=files)
        warned, fine, _ = judge_drivers(DraFacts((driver,)))
        assert (warned.result, warned.command, fine.result) == ("warning", command, "ok")


def test_a_missing_file_is_a_problem() -> None:
    """The runtime refuses the container."""
    claim = ClaimFacts("lab/c1", (PART,), lacks_file=True)
    *_, found = judged(DriverFacts(DRIVER, RUNS, claims=(claim,)))
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
    host: Path, kubelet: Path, cli: CommandLine
) -> None:
    """And says of each claim which container has it, also in the table."""
    (host / "device-plugins").mkdir()
    places = ["--socket-dir", str(host / "device-plugins"), "--pod-resources", str(kubelet)]

    async def told(*words: str) -> str:
        return (await asyncio.to_thread(cli, "devices", *words, *places)).out

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
    (absent,) = [each for each in diagnosis.findings if each.looked_at == f"driver {FOREIGN}"]
    assert absent.found.startswith("the driver does not run, but has 1 prepared claim")
    (host / "plugins_registry").rmdir()
    (host / "plugins_registry").touch()  # cannot be read
    diagnosis = await explain(places)
    unseen, found = [each for each in diagnosis.findings if each.looked_at == f"driver {FOREIGN}"]
    assert unseen.result == "unknown"
    assert found.found == "1 claim prepared: lab/c7 has g0, g1, held by lab/p (main)"


def test_explain_follows_claims_too(told: Callable[..., Any]) -> None:
    """As the step `claim`; the reason is that of the driver."""
    steps = ("driver", "claim")
    found = [each for each in told("explain")["findings"] if each["step"] in steps]
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
    assert found.name == name
