"""Two deployments are never the same driver on a node; instances of one deployment may be."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.dra.deployment_lock import DeploymentLock, DriverUser, deployment_of
from kubedevices.errors import DriverTaken, PreparedUnwritable
from tests.dra.cluster import OneNode
from tests.dra.test_driver import DRIVER, Rig, Widgets
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until


class Nics(kd.PolledScanner):
    """Another device type than the scanner of the rig."""

    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree({"nic": [kd.Device("n-0")]})


async def test_a_second_deployment_is_refused_before_it_takes_devices_out_of_the_slices(
    short_dir: Path,
) -> None:
    """The first goes on; after its end the second may be the driver."""
    async with OneNode().running() as api:
        rig = Rig(short_dir, api)
        async with rig.driver() as first:
            await until(lambda: api.devices == [["w-0", "w-1"]])
            writes = len(api.writes)
            with pytest.raises(
                DriverTaken, match=r"another process is the DRA driver .* for widget"
            ):
                async with rig.driver(Nics()):
                    pass
            assert len(api.writes) == writes
            assert first.has_started
            assert rig.registration == first.sockets.registration
        async with rig.driver(Nics()):
            await until(lambda: api.devices == [["n-0"]])


async def test_two_deployments_of_device_plugins_share_a_domain(short_dir: Path) -> None:
    """Only a driver has all devices of its domain; device plugins have a resource each."""
    async with FakeKubelet(short_dir) as kubelet:
        options: Any = {"domain": DRIVER, "socket_dir": short_dir}
        async with kd.serve(Widgets(kd.Device("w-0")), **options), kd.serve(Nics(), **options):
            await kubelet.wait_for(f"{DRIVER}/widget", {"w-0": "Healthy"})
            await kubelet.wait_for(f"{DRIVER}/nic", {"n-0": "Healthy"})


@pytest.mark.parametrize(
    ("first", "second", "is_excluded"),
    [
        (DriverUser("", ("gpu",)), DriverUser("", ("nic",)), True),
        (DriverUser("a", ("gpu",)), DriverUser("b", ("nic",)), True),
        (DriverUser("", ("gpu", "nic")), DriverUser("", ("nic",)), False),
        (DriverUser("a", ("gpu",)), DriverUser("a", ("nic",)), False),
        (DriverUser("a", ("gpu",)), DriverUser("b", ("gpu",)), False),
        (DriverUser("", ()), DriverUser("", ("nic",)), False),
    ],
)
def test_deployments_with_other_device_types_exclude_each_other(
    tmp_path: Path, first: DriverUser, second: DriverUser, is_excluded: bool
) -> None:
    """An update may replace all device types of its own deployment."""
    file = tmp_path / "made" / "lock"
    holder = DeploymentLock(file, DRIVER, first.deployment)
    holder.take(first.types)
    other = DeploymentLock(file, DRIVER, second.deployment)
    if is_excluded:
        with pytest.raises(DriverTaken):
            other.take(second.types)
        holder.release()
    other.take(second.types)


def test_the_types_of_the_newest_instance_count(tmp_path: Path) -> None:
    """Also the types that a process finds later, while an older instance lives."""
    locks = [DeploymentLock(tmp_path / "lock", DRIVER, "") for _ in range(4)]
    locks[0].take(["gpu"])
    locks[1].take(["gpu"])
    locks[1].take(["gpu", "nic"])
    locks[2].take(["nic"])
    with pytest.raises(DriverTaken):
        locks[3].take(["gpu"])


def test_a_damaged_file_refuses_nobody(tmp_path: Path) -> None:
    """The lock is what counts; a link in its place is replaced, and leads nowhere."""
    file = tmp_path / "lock"
    DeploymentLock(file, DRIVER, "").take(["gpu"])
    file.write_text("{")
    DeploymentLock(file, DRIVER, "").take(["nic"])
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    DeploymentLock(file, DRIVER, "").take(["nic"])
    assert not (tmp_path / "elsewhere").exists()
    assert not file.is_symlink()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_refuses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Another error of the lock names the file."""
    codes = [code] * 2 + [errno.EIO]

    def flock(_file: int, _kind: int) -> None:
        raise OSError(codes[0], os.strerror(codes.pop(0)))

    monkeypatch.setattr(fcntl, "flock", flock)
    DeploymentLock(tmp_path / "lock", DRIVER, "").take(["gpu"])
    before = open_files()
    with pytest.raises(PreparedUnwritable, match=f"{tmp_path}/lock: Input/output error"):
        DeploymentLock(tmp_path / "lock", DRIVER, "").take(["gpu"])
    assert open_files() == before


def test_a_refused_deployment_may_ask_again(tmp_path: Path) -> None:
    """It leaves neither a lock nor a file open, and may be the driver when the other has ended."""
    holder, other = (DeploymentLock(tmp_path / "lock", DRIVER, "") for _ in range(2))
    holder.take(["gpu"])
    before = open_files()
    for _ in range(3):
        with pytest.raises(DriverTaken):
            other.take(["nic"])
    assert open_files() == before
    holder.release()
    other.take(["nic"])
    with pytest.raises(DriverTaken):
        holder.take(["gpu"])
    other.release()
    holder.take(["gpu"])


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.parametrize(
    ("host_name", "expected"),
    [
        ("kubedevices-simulate-x7k2p", "kubedevices-simulate"),
        ("node1", ""),
        ("the-node-abcde", ""),
        ("a" * 57 + "-12345", "a" * 57),
        ("a" * 63, "a" * 57),
    ],
)
def test_the_host_name_of_a_pod_has_the_name_of_its_daemon_set(
    host_name: str, expected: str
) -> None:
    """The name of the node has not, whatever it looks like."""
    assert deployment_of(host_name, "the-node-abcde") == expected
