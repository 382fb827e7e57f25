"""The kubelet's checkpoint of claims: what it says, and what is not said."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.explain.on_node.driver_facts import (
    ClaimedPart,
    ClaimFacts,
    KubeletClaim,
    KubeletClaims,
)
from kubedevices.explain.on_node.driver_facts import DriverFiles as Files
from kubedevices.explain.on_node.facts import (
    NO_PERMISSION,
    NOBODY,
    HeldClaim,
    RegistrySocket,
    Socket,
)
from kubedevices.explain.on_node.join_claims import (
    ClaimSources,
    driver_of_socket,
    drivers_of,
    held_twice,
)
from kubedevices.explain.on_node.look_claims import STATE_FILE, look_at_claims, parse_claims
from kubedevices.values.allocation import ClaimReference, PluginInfo

CLAIM, POD = "067798be-454e-4be4-9047-1aa06aea63f7", "139cdb46-f989-4f17-9561-ca10cfb509a6"
DRIVER = "test-driver.cdi.k8s.io"
OF_A_KUBELET = (
    r'{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",'
    r"\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":"
    r"\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{"
    r"}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\","
    r"\"DeviceName\":\"dev-1\",\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":"
    r'[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":1656016162}'
)
PART = ClaimedPart(DRIVER, "worker-1", "dev-1", "", ("example.com/example=cdi-example",))
REFERENCE = ClaimReference("default", CLAIM, "example")
STATE = KubeletClaim(REFERENCE, (POD,), (PART,))


def test_the_checkpoint_of_a_kubelet_is_read() -> None:
    """The text is one that the tests of a kubelet have."""
    assert parse_claims(OF_A_KUBELET.encode()) == (STATE,)


def test_the_form_of_old_kubelets_is_no_damage(tmp_path: Path) -> None:
    """Its claims are not known; nor are they without a file."""
    assert parse_claims(b'{"version": "v1", "entries": [], "checksum": 7}') is None
    assert look_at_claims(tmp_path / STATE_FILE) == KubeletClaims(tmp_path / STATE_FILE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        OF_A_KUBELET.replace("dev-1", "dev-2"),
        '{"Data": "{}", "Checksum": 2745614147}',
        '{"Data": "[7]", "Checksum": 443913534}',
    ],
)
def test_a_damaged_checkpoint_is_told(text: str, tmp_path: Path) -> None:
    """Not with a traceback."""
    (tmp_path / STATE_FILE).write_text(text)
    found = look_at_claims(tmp_path / STATE_FILE)
    assert found.claims is None
    assert found.problem.startswith("it is damaged: ")


def test_a_checkpoint_of_before_the_boot_is_known_as_such(tmp_path: Path) -> None:
    """By the time of the file; the pods are the directories of the kubelet."""
    (tmp_path / "pods" / POD).mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu 1 2\nbtime 2000\n")
    file = tmp_path / STATE_FILE
    file.write_text(OF_A_KUBELET)
    for written, is_new in ((1999, False), (2000, True)):
        os.utime(file, (written, written))
        found = look_at_claims(file, proc_root=tmp_path / "proc")
        assert (found.is_of_this_boot, found.pods) == (is_new, frozenset([POD]))


# ---------------------------------------------------------------- joined with other sources

PREPARED = ClaimFacts(str(REFERENCE), (PART,), REFERENCE.uid, is_ours=True)
OURS = (Files(DRIVER, Path(), claims=(PREPARED,)),)
SOURCES = ClaimSources((), (), KubeletClaims(Path(), (STATE,)), (), lambda _: "no file has it")


@pytest.mark.parametrize(
    ("kubelet", "unused", "is_certain"),
    [
        (KubeletClaims(Path(), (STATE,)), "", False),
        (KubeletClaims(Path(), (STATE,), pods=frozenset([POD])), "", False),
        (KubeletClaims(Path(), (STATE,), pods=frozenset(["other"])), "does not exist", True),
        (KubeletClaims(Path(), ()), "the kubelet does not know this claim", True),
        (KubeletClaims(Path()), "the kubelet has no container with this claim", False),
    ],
)
def test_why_nobody_uses_a_claim(kubelet: KubeletClaims, unused: str, is_certain: bool) -> None:
    """A pod that starts or ends has no container with its claim, but a directory."""
    (driver,) = drivers_of(replace(SOURCES, files=OURS, kubelet=kubelet))
    (claim,) = driver.claims
    assert unused in claim.unused
    assert bool(claim.unused) == bool(unused)
    assert claim.is_certain == is_certain
    for held in (None, [HeldClaim(DRIVER, "default/example", ("dev-1",), ("default/p (m)",))]):
        (driver,) = drivers_of(replace(SOURCES, files=OURS, kubelet=kubelet, held=held))
        assert [each.unused for each in driver.claims] == [""]


def test_a_claim_that_is_unprepared_while_we_look_is_not_forgotten() -> None:
    """The checkpoint had it before the files of the driver were read."""
    nothing = KubeletClaims(Path(), ())
    for before in ((), (CLAIM,)):
        sources = replace(SOURCES, files=OURS, kubelet=nothing, before=frozenset(before))
        (driver,) = drivers_of(sources)
        assert driver.claims[0].is_forgotten != bool(before)


def test_a_cdi_name_is_missing_only_in_this_boot() -> None:
    """After a reboot the driver writes its files when the kubelet calls it again."""
    (driver,) = drivers_of(SOURCES)
    assert driver.claims[0].unresolved == ((PART.cdi_names[0], "no file has it"),)
    before = replace(SOURCES.kubelet, is_of_this_boot=False)
    (driver,) = drivers_of(replace(SOURCES, kubelet=before))
    assert driver.claims[0].unresolved == ()
    (driver,) = drivers_of(replace(SOURCES, resolve=lambda _: ""))
    assert driver.claims[0].unresolved == ()


def test_shares_of_a_device_are_not_the_same() -> None:
    """Nor is a look with admin access, or a claim that nobody uses."""

    def twice(**changes: object) -> bool:
        part = PART._replace(**changes)  # type: ignore[arg-type]
        other = KubeletClaim(REFERENCE._replace(uid="2", name="b"), (), (part,))
        both = KubeletClaims(Path(), (STATE, other))
        return bool([*held_twice(drivers_of(replace(SOURCES, kubelet=both, held=None)))])

    assert twice()
    assert not twice(share_id="s")
    assert not twice(device="dev-2")
    assert not twice(pool="worker-2")
    assert not twice(driver="other.com")
    assert not twice(is_admin=True)


def test_the_list_of_containers_alone_shows_a_device_that_is_held_twice() -> None:
    """Where the checkpoint of the kubelet cannot be read; shares are not the same here either."""

    def twice(second: tuple[str, str, str]) -> bool:
        held = [
            HeldClaim(DRIVER, name, (part[1],), ("default/p (m)",), (part,))
            for name, part in (("default/a", ("pool", "dev", "")), ("default/b", second))
        ]
        sources = replace(SOURCES, kubelet=KubeletClaims(Path()), held=held)
        return bool([*held_twice(drivers_of(sources))])

    assert twice(("pool", "dev", ""))
    assert not twice(("pool", "dev", "share"))
    assert not twice(("other", "dev", ""))


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        ("gpu.vendor.org-reg.sock", "gpu.vendor.org"),
        (f"gpu.vendor.org-{POD}-reg.sock", "gpu.vendor.org"),
        ("example.com-reg.b6fa4eb9.0000076cb335d.sock", "example.com"),
        ("example.com-widget.2a8011ad.0000076cb335d.sock", ""),
        ("something.sock", ""),
    ],
)
def test_the_name_of_a_socket_names_its_driver(name: str, driver: str) -> None:
    """Those of upstream's helper, and ours."""
    assert driver_of_socket(name) == driver


def test_a_dead_socket_alone_is_a_driver_only_if_it_is_ours_or_asked_for() -> None:
    """Storage has sockets of the same form."""

    def names(file: str, wanted: str = "") -> list[str]:
        dead = RegistrySocket(Path(file), socket=Socket(Path(file), NOBODY))
        kubelet = KubeletClaims(Path(), ())
        found = drivers_of(replace(SOURCES, sockets=[dead], kubelet=kubelet), wanted)
        return [each.name for each in found if each.dead]

    assert names("csi.vendor.org-reg.sock") == []
    assert names("gpu.vendor.org-reg.sock", "gpu.vendor.org") == ["gpu.vendor.org"]
    assert names("example.com-reg.b6fa4eb9.0000076cb335d.sock") == ["example.com"]


def test_a_socket_that_may_not_be_asked_may_be_that_of_any_driver() -> None:
    """So nobody says that a driver does not run."""
    closed = RegistrySocket(Path("a"), socket=Socket(Path("a"), NO_PERMISSION))
    assert [each.is_seen for each in drivers_of(replace(SOURCES, sockets=[closed]))] == [False]
    assert [each.is_seen for each in drivers_of(replace(SOURCES, sockets=None))] == [False]
    assert [each.is_seen for each in drivers_of(SOURCES)] == [True]


def test_only_drivers_are_instances() -> None:
    """The registry has device plugins and storage too."""
    info = PluginInfo("CSIPlugin", DRIVER, "", ("1.0.0",))
    sockets = [
        RegistrySocket(Path("a"), info),
        RegistrySocket(Path("b"), info._replace(type="DRAPlugin")),
    ]
    (driver,) = drivers_of(replace(SOURCES, sockets=sockets))
    assert [each.path for each in driver.instances] == [Path("b")]
