"""`kubedevices scan`."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

import kubedevices as kd
from kubedevices.cli.write.scan import scan_once
from kubedevices.errors import ScanFailed, UsageError
from kubedevices.plugin.notifier import Notifier
from kubedevices.values.device_tree import DeviceTree
from tests.cli.commands import run
from tests.command_line import CommandLine

SCANNERS = """\
import kubedevices as kd
from kubedevices.values.cdi import CdiDevice, ContainerEdits, DeviceNode, bind_mount

class Widgets(kd.PolledScanner):
    def list_devices(self):
        tree = kd.DeviceTree()
        tree.add("widget", kd.Device("w10", paths=["/dev/null"], numa_nodes=[1, 0]))
        tree.add("widget", kd.Device(
            "w9", health="Unhealthy", numa_nodes=(),
            specs=[kd.DeviceSpec("/dev/zero", "/dev/w", "r")],
            mounts=[kd.Mount("/run/w", "/run/w", True)],
            env={"W": "9"}, annotations={"a": "b"}, attributes={"color": "red"},
        ))
        tree.declare("gadget")
        return tree

wrapped = kd.Filtered(Widgets(), kd.FilterRule(ids=("w10",)))

def filtered(leave_out="w9"):
    return kd.Filtered(Widgets(), kd.FilterRule(ids=(leave_out,)))

class Nothing(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree()

class Raises(kd.PolledScanner):
    def list_devices(self):
        raise RuntimeError("no driver")

class Forgets(kd.PolledScanner):
    def list_devices(self):
        pass

class Silent(kd.Scanner):
    async def scan(self, notifier):
        await notifier.wait_stopped()

class Ends(kd.Scanner):
    async def scan(self, notifier):
        return

class Misnamed(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree({"no good": []})

class Cdi(kd.PolledScanner):
    names = "a", "b"
    def list_devices(self):
        edits = ContainerEdits(
            env=("A=1",), device_nodes=(DeviceNode("/dev/w", "/dev/null"),),
            mounts=(bind_mount("/h", "/c", True),), additional_gids=(7,),
        )
        devices = [CdiDevice(name, container_edits=edits) for name in self.names]
        found = [kd.Device(str(i), cdi=each) for i, each in enumerate(devices)]
        return kd.DeviceTree({"tool": [*found, kd.Device("2", cdi="v.com/c=x")]})

class SameName(Cdi):
    names = "a", "a"
"""

TABLE = """\
TYPE    ID   HEALTH     NUMA  DEVICE FILES             MOUNTS       ENV  ANNOTATIONS  ATTRIBUTES
widget  w9   Unhealthy  -     /dev/zero -> /dev/w (r)  /run/w (ro)  W=9  a=b          color=red
widget  w10  Healthy    0,1   /dev/null                -            -    -            -
"""

W9 = {
    "id": "w9",
    "health": "Unhealthy",
    "numa_nodes": [],
    "devices": [{"host_path": "/dev/zero", "container_path": "/dev/w", "permissions": "r"}],
    "mounts": [{"host_path": "/run/w", "container_path": "/run/w", "read_only": True}],
    "env": {"W": "9"},
    "annotations": {"a": "b"},
    "cdi": None,
    "attributes": {"color": "red"},
    "capacity": {},
}

HOST = """\
version: 1
namespace: devices.example.com
resources:
- name: memory
  match: [{path: /dev/null}, {path: "/dev/zer[o]"}]
- name: nothing
  match: [{path: /dev/kd-no-such-device}]
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work beside a module with scanners and a configuration of expose."""
    (tmp_path / "scanners.py").write_text(SCANNERS)
    (tmp_path / "host.yaml").write_text(HOST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_devices_of_a_scanner_are_a_table(cli: CommandLine) -> None:
    """In natural order; columns without any value are left out, types without devices are named."""
    captured = cli("scan", "scanners.py:Widgets")
    assert captured.out == TABLE
    assert captured.err == "no devices: gadget\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_has_every_field(output: str, cli: CommandLine) -> None:
    """The keys that the documentation promises."""
    out = cli("scan", "scanners.py:Widgets", "--domain", "example.com", "-o", output).out
    widget, gadget = yaml.safe_load(out)
    assert gadget == {"device_type": "gadget", "resource": "example.com/gadget", "devices": []}
    assert (widget["device_type"], widget["resource"]) == ("widget", "example.com/widget")
    assert widget["devices"][0] == W9
    assert widget["devices"][1]["numa_nodes"] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (["scanners.py:wrapped"], ["w9"]),
        (["scanners.py:filtered"], ["w10"]),
        (["scanners.py:filtered", "--arg", "leave_out=nothing"], ["w9", "w10"]),
    ],
)
def test_a_scanner_in_a_middleware_is_scanned(
    arguments: list[str], ids: list[str], cli: CommandLine
) -> None:
    """As an object, or as what a function returns; the rules of the middleware apply."""
    widget = cli("scan", *arguments, "-o", "json").data[0]
    assert [each["id"] for each in widget["devices"]] == ids


def test_a_configuration_of_expose(cli: CommandLine) -> None:
    """With full resource names and without root."""
    captured = cli("scan", "--config", "host.yaml")
    assert captured.out == (
        "RESOURCE                    ID    HEALTH   NUMA  DEVICE FILES\n"
        "devices.example.com/memory  null  Healthy  -     /dev/null\n"
        "devices.example.com/memory  zero  Healthy  -     /dev/zero\n"
    )
    assert captured.err == "no devices: devices.example.com/nothing\n"


def test_another_dev_directory(directory: Path, cli: CommandLine) -> None:
    """Where a container sees the host's."""
    (directory / "dev").mkdir()
    (directory / "dev/null").touch()
    shown = cli("scan", "--config", "host.yaml", "--dev-root", "dev", "-o", "json")
    (memory, _) = shown.data
    assert [device["devices"][0]["host_path"] for device in memory["devices"]] == ["/dev/null"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["scanners.py:Raises"], 1, "scanner Raises failed: RuntimeError: no driver"),
        (["scanners.py:Forgets"], 1, "must return a DeviceTree, not None"),
        (["scanners.py:Ends"], 1, "scanner Ends failed: scan() returned without reporting any"),
        (["scanners.py:Silent", "--timeout", "0.05"], 1, "it reported nothing within 0.05 s"),
        (["scanners.py:Nope"], 2, "scanners has no 'Nope'"),
        (["nope:Nope"], 2, "there is no module 'nope'"),
        (["scanners.py:Widgets", "--domain", "foo_bar"], 2, "'foo_bar' is not a domain"),
        (["scanners.py:Misnamed"], 2, "resource name '…/no good' is invalid: 'no good' must be"),
        (["scanners.py:Misnamed", "--domain", "a.com"], 2, "resource name 'a.com/no good' is"),
        (
            ["scanners.py:SameName", "--domain", "a.com"],
            2,
            "a.com/tool: /devices/1/name: duplicate",
        ),
        (["scanners.py:Widgets", "--timeout", "-1"], 2, "--timeout -1 must be a number of seconds"),
        (["scanners.py:Widgets", "--timeout", "nan"], 2, "--timeout nan must be a number of"),
        (["--config", "host.yaml", "--dev-root", "nope"], 3, "cannot read nope: this is not a"),
        (["--config", ""], 2, "argument --config: the path is empty"),
        ([], 2, "scan needs either MODULE:CLASS or --config FILE"),
        (["a:B", "--config", "x"], 2, "scan needs either MODULE:CLASS or --config FILE"),
        (["--config", "host.yaml", "--arg", "a=b"], 2, "--arg is for MODULE:CLASS"),
        (["--config", "nope.yaml"], 3, "cannot read nope.yaml: No such file or directory"),
    ],
)
def test_an_error_is_one_line(
    arguments: list[str], code: int, message: str, cli: CommandLine
) -> None:
    """With the exit code of its kind."""
    captured = cli("scan", *arguments, code=code)
    assert captured.out == ""
    assert captured.err.startswith("kubedevices: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_cdi_devices_have_a_short_text(cli: CommandLine) -> None:
    """What they do to a container, or whose they are; programs get the words of a file."""
    lines = cli("scan", "scanners.py:Cdi").lines
    edits = "A=1, /dev/null -> /dev/w (rwm), /h -> /c (ro), additionalGids: [7]"
    assert [line.split(maxsplit=5)[5] for line in lines] == [
        "FILES  CDI",
        edits,
        edits,
        "v.com/c=x",
    ]
    (tool,) = cli("scan", "scanners.py:Cdi", "-o", "json").data
    assert tool["devices"][0]["cdi"]["containerEdits"]["env"] == ["A=1"]


def test_a_scan_without_devices_is_no_error(cli: CommandLine) -> None:
    """Is said, and is no error."""
    captured = cli("scan", "scanners.py:Nothing")
    assert (captured.out, captured.err) == ("", "the scanner reports no devices\n")


def test_missing_numa_nodes_are_looked_up() -> None:
    """As `run` would do: /dev/null has none, and None is no answer."""

    class Open(kd.PolledScanner):
        def list_devices(self) -> DeviceTree:
            return DeviceTree({"x": [kd.Device("a", paths=["/dev/null"])]})

    tree = asyncio.run(scan_once(Open(), timeout=10))
    assert tree.devices("x")["a"].numa_nodes == ()


def test_a_scanner_with_a_plain_scan_method_works_too() -> None:
    """It runs in a thread, and may report before it returns."""

    class Plain(kd.Scanner):
        def scan(self, notifier: Notifier) -> None:  # type: ignore[override]
            notifier.notify(DeviceTree({"x": []}))

    assert list(asyncio.run(scan_once(Plain(), timeout=10))) == ["x"]


def test_an_error_of_our_own_passes_through() -> None:
    """A scanner may raise one with the exit code it likes."""

    class Picky(kd.Scanner):
        async def scan(self, notifier: Notifier) -> None:
            raise UsageError("set WIDGETS first")

    with pytest.raises(UsageError, match="set WIDGETS first"):
        asyncio.run(scan_once(Picky(), timeout=10))


def test_an_exception_names_its_place() -> None:
    """File and line, where the framework did not describe it already."""

    class Clumsy(kd.Scanner):
        async def scan(self, notifier: Notifier) -> None:
            raise KeyError("x")

    with pytest.raises(ScanFailed, match=r"scanner Clumsy failed: KeyError: 'x' \(test_scan.py:"):
        asyncio.run(scan_once(Clumsy(), timeout=10))


def test_the_installed_command_works(directory: Path) -> None:
    """In a process of its own: output, message and exit code."""
    found = run("scan", "scanners:Widgets", "-o", "json", cwd=directory)
    assert (found.returncode, found.stderr) == (0, "")
    assert json.loads(found.stdout)[0]["devices"][0] == W9
    failed = run("scan", "scanners:Raises", cwd=directory)
    assert (failed.returncode, failed.stdout) == (1, "")
    text = "kubedevices: scanner Raises failed: RuntimeError: no driver (scanners.py:28)\n"
    assert failed.stderr == text
