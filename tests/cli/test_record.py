"""`kubedevices record`: a proxy that changes nothing and writes everything down."""

import json
from pathlib import Path

import pytest

from kubedevices.testing import StubPlugin
from kubedevices.values.device import Device
from tests.cli.commands import running
from tests.command_line import CommandLine
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until


async def test_every_resource_has_its_file(short_dir: Path) -> None:
    """The kubelet gets the plugin's devices, and the record has its list."""
    inside, outside = short_dir / "i", short_dir / "o"
    inside.mkdir()
    outside.mkdir()
    words = ["record", short_dir / "records", "--plugin-dir", inside, "--socket-dir", outside]
    log = short_dir / "log"
    with StubPlugin([Device("g0", numa_nodes=())], socket_dir=inside, resource="a.example/gpu"):
        async with FakeKubelet(outside) as kubelet:
            with running([*words, "--state-dir", short_dir / "state"], log=log):
                await kubelet.wait_for("a.example/gpu", 1)
                path = short_dir / "records" / "a.example_gpu.jsonl"
                await until(lambda: path.exists() and "g0" in path.read_text(), what="the record")
    lists = [line for line in map(json.loads, path.read_text().splitlines()) if "message" in line]
    listed = {"devices": [{"ID": "g0", "health": "Healthy"}]}
    assert listed in [line["message"] for line in lists]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["/dev/null/records"], 3, "cannot record in /dev/null/records: Not a directory"),
        (["records", "--max-size", "0"], 2, "'0' is not a whole number above 0"),
        (["records", "--mode", "dra"], 2, "unrecognized arguments: --mode dra"),
    ],
)
def test_an_impossible_record_is_refused(
    arguments: list[str], code: int, message: str, cli: CommandLine
) -> None:
    """Before a plugin is taken in."""
    assert message in cli("record", *arguments, code=code).err


def test_its_help_has_no_option_that_changes_devices(cli: CommandLine) -> None:
    """It is a proxy without rules and without DRA."""
    shown = cli("record", "--help").out
    assert "changes nothing" in shown
    assert "DRA" not in shown
    assert "`hold`" not in shown
