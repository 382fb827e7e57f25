"""`kubedevices scan --mode dra`."""

from pathlib import Path

import pytest

from tests.command_line import CommandLine

SCANNERS = """\
import kubedevices as kd

class Widgets(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree({"widget": [
            kd.Device("GPU:1", numa_nodes=[1], attributes={"model": "T4"},
                      capacity={"memory": "1Gi"}),
            kd.Device("w2", numa_nodes=(), health="Unhealthy"),
        ]})

class Many(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree({"widget": [kd.Device(f"w{i}", numa_nodes=()) for i in range(129)]})

class Nothing(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree()

class Bad(kd.PolledScanner):
    def list_devices(self):
        bad = kd.Device("bad", numa_nodes=(), capacity={"a-b": 1})
        return kd.DeviceTree({"widget": [bad, kd.Device("good", numa_nodes=())]})

class Long(kd.PolledScanner):
    def list_devices(self):
        named = kd.Device("named", numa_nodes=(), attributes={"model": "x" * 65})
        return kd.DeviceTree({"widget": [named]})
"""

TABLE = """\
SLICE  DEVICE          ATTRIBUTES                                                         \
CAPACITY    TAINTS
0      gpu-1-494fa941  type=widget,id=GPU:1,resource.kubernetes.io/numaNode=1,model=T4    \
memory=1Gi  -
0      w2              type=widget,id=w2                                                  \
-           example.com/unhealthy:NoSchedule
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work beside a module with scanners."""
    (tmp_path / "scanners.py").write_text(SCANNERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NODE_NAME", "node1")


@pytest.fixture
def scan(cli: CommandLine) -> CommandLine:
    return cli.of("scan", "--mode", "dra", "--domain", "example.com")


def test_devices_as_a_driver_would_publish_them(scan: CommandLine) -> None:
    """For people: slice, label, attributes."""
    lines = scan("scanners.py:Widgets").lines
    assert [line.split() for line in lines] == [line.split() for line in TABLE.splitlines()]


def test_slices_for_programs(scan: CommandLine) -> None:
    """As `kubectl create` takes them: a list of objects, of one generation."""
    document = scan("scanners.py:Many", "-o", "json", "--kube-node", "node2").data
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    first, second, third = document["items"]
    assert (first["apiVersion"], first["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
    assert second["metadata"] == {"generateName": "00001-example.com-node2-"}
    assert [len(each["spec"]["devices"]) for each in (first, second, third)] == [64, 64, 1]
    pool = {"name": "node2", "generation": 1, "resourceSliceCount": 3}
    assert first["spec"]["pool"] == second["spec"]["pool"] == pool


def test_a_driver_without_devices_has_a_slice(scan: CommandLine) -> None:
    """Which says that the driver runs."""
    (only,) = scan("scanners.py:Nothing", "-o", "json").data["items"]
    assert only["spec"]["devices"] == []


def test_a_device_that_the_api_server_would_refuse_is_reported(scan: CommandLine) -> None:
    """The others are printed; the exit code says that something is wrong."""
    captured = scan("scanners.py:Bad", code=1)
    assert "good" in captured.out
    assert "kubedevices: widget: device bad is not offered: the capacity 'a-b'" in captured.err


def test_an_attribute_that_is_left_out_is_reported(scan: CommandLine) -> None:
    """The device is offered, so the exit code is 0."""
    captured = scan("scanners.py:Long")
    assert "named" in captured.out
    assert "device named: the attribute 'model' is not published: 65 bytes" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "dra"], "--mode dra needs --domain"),
        (["--mode", "dra", "--domain", "x" * 61 + ".de"], "at most 63 characters"),
        (["--mode", "dra", "--domain", "a.com", "--kube-node", "N 1"], "cannot be the name of a"),
        (["--kube-node", "n1"], "--kube-node has no effect without --mode dra"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, cli: CommandLine) -> None:
    """And exit code 2."""
    assert message in cli("scan", "scanners.py:Widgets", *arguments, code=2).err
