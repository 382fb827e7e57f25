"""Claims on disk: prepared, unprepared, and after kills, wipes and reboots."""

import logging
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest

from kubedevices.dra.claim_cdi import edits_for
from kubedevices.dra.claims import Result
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.prepared_file import FILE_NAME
from kubedevices.dra.shared_writes import WriteStep
from kubedevices.dra.slices import TypedDevice
from kubedevices.errors import CdiWriteFailed, ClaimRefused, PreparedUnwritable
from kubedevices.host.cdi_specs import read_registry
from kubedevices.values.allocation import ClaimDevice, ClaimReference
from kubedevices.values.cdi import ContainerEdits, edits_of
from kubedevices.values.device import Device, DeviceSpec, Mount

UIDS = [f"0000000{i}-0000-4000-8000-000000000000" for i in range(3)]
ONE, TWO = (ClaimReference("default", UIDS[i], f"claim{i}") for i in (1, 2))
FIRST, SECOND = Result("gpu", "node1", "gpu-0"), Result("gpu", "node1", "gpu-1")


class Rig:
    """A driver's directory; `start` starts the next process, in the boot `boot`."""

    def __init__(self, directory: Path) -> None:
        self.file, self.cdi_dir = directory / "state" / FILE_NAME, directory / "cdi"
        self.cdi_dir.mkdir()
        self.start()

    def start(self, boot: str = "boot-1") -> None:
        self.now = Preparation("example.com", "node1", self.file, self.cdi_dir, boot)
        self.now.start()

    def offered(self, path: str = "/dev/null") -> MappingProxyType[str, TypedDevice]:
        devices = {
            name: TypedDevice("gpu", Device(name, env={"GPU": name}, paths=[path]))
            for name in ("gpu-0", "gpu-1")
        }
        return MappingProxyType(devices)

    def prepare(
        self, claim: ClaimReference, *results: Result, path: str = "/dev/null"
    ) -> tuple[ClaimDevice, ...]:
        offered = self.offered(path)
        ready = self.now.answer_if_ready(claim, results)
        if ready is not None:
            return ready
        self.now.begin(claim, results, offered)
        given = [(each, edits_for(offered[each.device].device)) for each in results]
        return self.now.finish(claim, given)

    @property
    def files(self) -> list[Path]:
        return sorted(self.cdi_dir.iterdir())

    def resolves(self, answer: tuple[ClaimDevice, ...]) -> bool:
        """Whether a container engine finds every name of an answer."""
        registry = read_registry([self.cdi_dir])
        return all(registry.explain(name).definition for each in answer for name in each.cdi_ids)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_claim_becomes_cdi_devices(rig: Rig) -> None:
    """One CDI device for each device, in one file; the names have the UID of the claim."""
    answer = rig.prepare(ONE, FIRST, SECOND._replace(request="other", share_id="s1"))
    kind = f"example.com/claim={ONE.uid}"
    assert answer == (
        ClaimDevice(("gpu",), "node1", "gpu-0", (f"{kind}-gpu-0",)),
        ClaimDevice(("other",), "node1", "gpu-1", (f"{kind}-gpu-1-s1",), "s1"),
    )
    assert len(rig.files) == 1
    assert rig.resolves(answer)


def test_a_repeated_prepare_has_the_same_answer(rig: Rig) -> None:
    """In this process and the next; the file is not written again."""
    answer = rig.prepare(ONE, FIRST)
    before = rig.files[0].stat()
    assert rig.prepare(ONE, FIRST, path="/dev/zero") == answer
    rig.start()
    assert rig.prepare(ONE, FIRST) == answer
    assert rig.files[0].stat().st_ino == before.st_ino


def test_an_unprepared_claim_leaves_no_file(rig: Rig) -> None:
    """Also after a second call, and for an unknown claim."""
    rig.prepare(ONE, FIRST)
    for uid in (ONE.uid, ONE.uid, TWO.uid):
        rig.now.remove(uid)
    assert not rig.files
    rig.start()
    assert rig.prepare(TWO, FIRST)


def test_a_claim_whose_file_cannot_be_removed_stays_known(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet calls again; the file without the claim would stay for ever."""
    rig.prepare(ONE, FIRST)

    def fail(path: Path) -> None:
        raise CdiWriteFailed(str(path), "read-only file system")

    monkeypatch.setattr("kubedevices.host.cdi_specs.remove_file", fail)
    with pytest.raises(CdiWriteFailed):
        rig.now.remove(ONE.uid)
    assert rig.now.known(ONE.uid)


def test_a_claim_that_is_finished_without_edits_has_no_file(rig: Rig) -> None:
    """Not even from an earlier attempt."""
    rig.prepare(ONE, FIRST)
    ((device,), files) = rig.now.finish(ONE, [(FIRST, (ContainerEdits(), ()))]), rig.files
    assert device.cdi_ids == ()
    assert not files


def test_claims_are_not_forgotten_when_somebody_removes_the_checkpoint(rig: Rig) -> None:
    """The process still knows them; the next write has them all."""
    rig.prepare(ONE, FIRST)
    rig.file.unlink()
    rig.now.refresh()
    assert rig.now.known(ONE.uid)
    rig.prepare(TWO, SECOND)
    rig.start()
    assert rig.now.known(ONE.uid)


def test_temporary_files_of_a_killed_process_are_removed(rig: Rig) -> None:
    """At the start: they would collect in the directory of all drivers."""
    rig.prepare(ONE, FIRST)
    (file,) = rig.files
    temporary = file.with_name(f"{file.name}.{1:016x}.tmp")
    temporary.touch()
    rig.start()
    assert rig.files == [file]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_wiped_cdi_directory_is_filled_again(rig: Rig, is_restarted: bool) -> None:
    """At the next Prepare, at the start, and by `ensure_files`."""
    answer = rig.prepare(ONE, FIRST)
    rig.files[0].unlink()
    if is_restarted:
        rig.start()
    else:
        rig.now.ensure_files()
    assert rig.resolves(answer)
    rig.files[0].write_text("{}")
    assert rig.prepare(ONE, FIRST) == answer
    assert rig.resolves(answer)


def test_after_a_reboot_the_cdi_file_has_the_new_edits(rig: Rig) -> None:
    """From the current devices; until then the claim has no CDI file."""
    rig.prepare(ONE, FIRST)
    rig.start("boot-2")
    assert not rig.files
    answer = rig.prepare(ONE, FIRST, path="/dev/zero")
    assert "/dev/zero" in rig.files[0].read_text()
    assert rig.resolves(answer)
    known = rig.now.known(ONE.uid)
    assert known is not None
    assert known.results == (FIRST,)


def test_a_claim_of_an_earlier_boot_blocks_no_device(rig: Rig) -> None:
    """Its pod may have been deleted while the node was down."""
    rig.prepare(ONE, FIRST)
    rig.start("boot-2")
    assert rig.prepare(TWO, FIRST)
    with pytest.raises(ClaimRefused, match="claim default/claim2 still holds device gpu-0"):
        rig.prepare(ONE, FIRST)


def test_a_device_is_not_held_twice(rig: Rig) -> None:
    """Not within a boot, not after a restart, and not if a claim was only begun."""
    rig.now.begin(ONE, (FIRST,), rig.offered())
    rig.start()
    with pytest.raises(ClaimRefused, match="claim default/claim1 still holds device gpu-0"):
        rig.prepare(TWO, FIRST)
    assert rig.prepare(TWO, SECOND)
    assert rig.prepare(ONE, FIRST)


def test_a_claim_that_was_begun_is_finished_by_the_next_process(rig: Rig) -> None:
    """The first process is killed between the two writes of the checkpoint."""
    rig.now.begin(ONE, (FIRST,), rig.offered())
    rig.start()
    assert rig.resolves(rig.prepare(ONE, FIRST))
    rig.now.begin(TWO, (SECOND,), rig.offered())
    rig.start()
    rig.now.remove(TWO.uid)
    assert len(rig.files) == 1


def test_a_file_without_a_claim_is_removed(rig: Rig) -> None:
    """A process that is killed during Unprepare leaves such a file. Foreign files stay."""
    rig.prepare(ONE, FIRST)
    (file,) = rig.files
    orphan = file.with_name(file.name.replace(ONE.uid, TWO.uid))
    orphan.write_text(file.read_text().replace(ONE.uid, TWO.uid))
    foreign = rig.cdi_dir / "vendor.json"
    foreign.write_text(file.read_text().replace("example.com", "vendor.com"))
    rig.start()
    assert rig.files == [file, foreign]


def test_a_claim_with_other_devices_than_before_is_prepared_again(rig: Rig) -> None:
    """The claim was deallocated and allocated again without a call to the driver."""
    rig.prepare(ONE, FIRST)
    (device,) = rig.prepare(ONE, SECOND)
    assert device.device == "gpu-1"
    assert rig.prepare(TWO, FIRST)


@pytest.mark.parametrize(
    "result", [FIRST._replace(device="gpu-9"), FIRST._replace(pool="node2")], ids=str
)
def test_a_device_that_is_not_on_this_node_is_refused(rig: Rig, result: Result) -> None:
    """The checkpoint does not change."""
    with pytest.raises(ClaimRefused, match="there is no device"):
        rig.prepare(ONE, result)
    assert rig.now.known(ONE.uid) is None


def test_a_lost_checkpoint_is_rebuilt_from_the_cdi_files(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Running pods keep their files and their devices; the loss is logged."""
    answer = rig.prepare(ONE, FIRST)
    rig.file.write_text("{")
    rig.start()
    assert "so the prepared claims are unknown" in caplog.text
    assert f"{ONE.uid} holds gpu-0" in caplog.text
    assert rig.resolves(answer)
    with pytest.raises(ClaimRefused, match="still holds device gpu-0"):
        rig.prepare(TWO, FIRST)
    known = rig.now.known(ONE.uid)
    assert known is not None
    assert not known.reference.name
    assert rig.prepare(ONE, FIRST) == answer
    rig.now.remove(ONE.uid)
    assert not rig.files


def test_a_driver_starts_beside_a_checkpoint_of_a_newer_version(rig: Rig) -> None:
    """After a downgrade; the first turn of its process refreshes before it starts."""
    answer = rig.prepare(ONE, FIRST)
    rig.file.write_text(rig.file.read_text().replace('"version": 1', '"version": 99'))
    rig.now = Preparation("example.com", "node1", rig.file, rig.cdi_dir, "boot-1")
    rig.now.refresh()
    rig.now.start()
    assert rig.resolves(answer)
    assert rig.now.is_held("gpu-0")
    rig.now.remove(ONE.uid)
    assert not rig.now.claims


def replace(file: Path, text: str) -> None:
    """Replace a file as another instance does."""
    file.with_name("new").write_text(text)
    file.with_name("new").replace(file)


def test_a_checkpoint_that_is_damaged_while_the_driver_runs_takes_no_claim(rig: Rig) -> None:
    """Another claim would get the same device; the next write repairs the file."""
    rig.prepare(ONE, FIRST)
    replace(rig.file, "{")
    rig.now.refresh()
    assert rig.now.is_held("gpu-0")
    rig.prepare(TWO, SECOND)
    rig.start()
    assert [each.reference for each in rig.now.claims] == [ONE, TWO]


def test_a_checkpoint_of_another_version_is_not_written_while_its_instance_runs(rig: Rig) -> None:
    """During an update: the claims of the other instance would be lost."""
    rig.prepare(ONE, FIRST)
    replace(rig.file, rig.file.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(PreparedUnwritable, match="another version of the driver"):
        rig.now.refresh()


def test_files_of_a_claim_that_goes_in_the_same_write_are_not_written_again(rig: Rig) -> None:
    """Nobody would remove them."""
    rig.prepare(ONE, FIRST)
    steps = (partial(rig.now.remove, ONE.uid), rig.now.ensure_files)
    rig.now.together([WriteStep(each) for each in steps])
    assert not rig.files


def test_a_lost_checkpoint_and_a_damaged_cdi_file_do_not_end_the_driver(rig: Rig) -> None:
    """The claims of the other files still hold their devices."""
    rig.prepare(ONE, FIRST)
    rig.prepare(TWO, SECOND)
    rig.file.write_text("{")
    rig.files[1].write_text("{")
    rig.start()
    assert [rig.now.is_held(each) for each in ("gpu-0", "gpu-1")] == [True, False]


def test_without_a_boot_id_no_file_of_an_earlier_process_is_used(rig: Rig) -> None:
    """The node may have been started again since."""
    rig.start("")
    rig.prepare(ONE, FIRST)
    rig.start("")
    assert not rig.files


def test_a_device_without_edits_needs_no_cdi_file(rig: Rig) -> None:
    """An answer without a CDI name is valid; an earlier file of the claim is removed."""
    rig.prepare(ONE, FIRST)
    rig.start("boot-2")
    offered = {"gpu-0": TypedDevice("gpu", Device("gpu-0"))}
    rig.now.begin(ONE, (FIRST,), offered)
    answer = rig.now.finish(ONE, [(FIRST, edits_for(Device("gpu-0")))])
    assert answer == (ClaimDevice(("gpu",), "node1", "gpu-0"),)
    assert not rig.files


def test_a_cdi_directory_that_cannot_be_written_is_an_error(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet gets the error for its claim; otherwise it is logged."""
    rig.prepare(ONE, FIRST)
    rig.files[0].unlink()
    rig.cdi_dir.rmdir()
    rig.cdi_dir.write_text("in the way")
    with pytest.raises(CdiWriteFailed):
        rig.prepare(ONE, FIRST)
    rig.now.ensure_files()
    assert [each.levelno for each in caplog.records][-1] == logging.ERROR


@pytest.mark.parametrize(
    ("device", "env", "paths", "mounts", "names"),
    [
        (
            Device("a", env={"A": "1"}, paths=["/dev/a"], mounts=[Mount("/h", "/a")]),
            ("A=1",),
            ["/dev/a"],
            ["/h at /a"],
            (),
        ),
        (
            Device("a", cdi="vendor.com/gpu=0", env={"A": "1"}),
            ("A=1",),
            [],
            [],
            ("vendor.com/gpu=0",),
        ),
        (
            Device(
                "a",
                env={"A": "1", "B": "2"},
                specs=[DeviceSpec("/dev/x", "/dev/a"), DeviceSpec("/dev/b")],
                mounts=[Mount("/h", "/a"), Mount("/h", "/b")],
                cdi=edits_of(
                    env=[("A", "3")], devices=[DeviceSpec("/dev/a")], mounts=[Mount("/c", "/a")]
                ),
            ),
            ("A=3", "B=2"),
            ["/dev/a", "/dev/b"],
            ["/c at /a", "/h at /b"],
            (),
        ),
    ],
    ids=["plain", "somebody else's", "said twice"],
)
def test_a_device_is_converted_to_cdi_edits(
    device: Device,
    env: tuple[str, ...],
    paths: list[str],
    mounts: list[str],
    names: tuple[str, ...],
) -> None:
    """Environment, device files and mounts; a value that `device.cdi` has counts once."""
    edits, others = edits_for(device)
    assert (edits.env, [each.path for each in edits.device_nodes], others) == (env, paths, names)
    assert [f"{each.host_path} at {each.container_path}" for each in edits.mounts] == mounts
    assert {each.host_path for each in edits.device_nodes} <= {"", *paths}
