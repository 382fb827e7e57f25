"""A plugin chooses harmful texts; every verb that shows them is harmless."""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.cli import main
from kubedevices.host.runtimes import FORMATS
from kubedevices.node.services.control_client import ControlClient
from tests.cli.commands import COMMAND, run
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.node_thread import NodeThread, node_thread
from tests.stories.rude_plugin import REFUSED, answer
from tests.strangers import PLANT, assert_harmless
from tests.waiting import until


@pytest.fixture
def rude_node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node whose only plugin has harmful texts in every field."""
    with node_thread(short_dir / "p") as running:
        running.plugin.allocate_answer = answer
        running.serve([*healthy(PLANT, REFUSED), *unhealthy(PLANT + "2")])
        yield running


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_listings_and_answers_are_harmless(
    rude_node: NodeThread, capfd: pytest.CaptureFixture[str], output: str
) -> None:
    """Device IDs, variables, annotations, paths: in tables escaped, in documents as they are."""
    at = ["--socket-dir", str(rude_node.socket_dir)]
    assert main(["allocate", f"{RESOURCE}=2", *at, "-o", output]) == 1  # one device is refused
    printed = capfd.readouterr()
    assert "forged" in printed.err
    assert_harmless(printed.out + printed.err)
    rude_node.call(rude_node.plugin.send(healthy(PLANT)))
    rude_node.call(rude_node.manager.wait_for(RESOURCE, allocatable=1))
    assert main(["allocate", f"{RESOURCE}=1", *at, "-o", output, "--pod-name", "one"]) == 0
    assert main(["devices", *at, "-o", output]) == 0
    assert main(["devices", RESOURCE, *at, "-o", output]) == 0
    printed = capfd.readouterr()
    assert printed.out.count("forged") > 10
    assert_harmless(printed.out + printed.err)


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_what_explain_says_is_harmless(
    rude_node: NodeThread, capfd: pytest.CaptureFixture[str], output: str
) -> None:
    """Of one resource, and of all. `explain` looks at all processes of this host, too."""
    at = ["--socket-dir", str(rude_node.socket_dir)]
    main(["explain", RESOURCE, *at, "-o", output])
    main(["explain", *at, "-o", output])
    printed = capfd.readouterr()
    assert "forged" in printed.out
    assert_harmless(printed.out + printed.err)


@pytest.mark.parametrize("form", FORMATS)
def test_options_for_a_runtime_are_harmless(
    rude_node: NodeThread, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    """They are quoted, or refused with a message that is harmless as well."""
    rude_node.call(rude_node.plugin.send(healthy(PLANT)))
    rude_node.call(rude_node.manager.wait_for(RESOURCE, allocatable=1))
    at = ["--socket-dir", str(rude_node.socket_dir)]
    main(["allocate", f"{RESOURCE}=1", *at, "--format", form])
    main(["with", f"{RESOURCE}=1", *at, "--format", "env", "--", "true"])
    main(["wait", RESOURCE, *at])
    printed = capfd.readouterr()
    assert printed.out + printed.err
    assert_harmless(printed.out + printed.err)


@pytest.mark.parametrize("options", [[], ["-o", "json"], ["--log-format", "json"]], ids=str)
async def test_events_and_log_lines_of_a_node_are_harmless(
    short_dir: Path, options: list[str]
) -> None:
    """A list, a registration that is refused with the name of the plugin, and an admission."""
    places = ["--socket-dir", str(short_dir / "p"), "--state-dir", str(short_dir / "s")]
    node = await asyncio.create_subprocess_exec(
        *COMMAND, "node", "--log-level", "debug", *options, *places,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await until((short_dir / "p/kubelet.sock").exists, 60, "the node")
        async with FakePlugin(short_dir / "p", devices=healthy(PLANT)) as plugin:
            plugin.allocate_answer = answer
            await plugin.register()
            async with await ControlClient.connect(short_dir / "p", short_dir / "s") as client:
                async with asyncio.timeout(60):
                    while not (await client.devices())["resources"]:
                        pass
            wrong = FakePlugin(short_dir / "p", f"example.com/{PLANT}", socket_name="x.sock")
            async with wrong:
                with pytest.raises(Exception, match=r"example\.com"):
                    await wrong.register()
    finally:
        node.send_signal(signal.SIGTERM)
        out, err = (text.decode() for text in await node.communicate())
    assert "forged" in out
    assert "forged" in err or "forged" in out
    assert_harmless(out + err)


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_a_report_of_a_check_is_harmless(short_dir: Path, output: str) -> None:
    """On stdout, on stderr, and in the files for CI servers and browsers."""
    files = {name: short_dir / name for name in ("junit", "markdown", "html")}
    written = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    plugin = [sys.executable, "-m", "tests.stories.rude_plugin", "{socket_dir}"]
    lasting = ["list.stays-open", "list.identical", "list.steady"]
    chosen = ["--only", "list", "allocate", "--skip", "list.change", *lasting]
    manner = ["--timeout-scale", "0.1", *chosen, *written, "-o", output]
    done = run("check", *manner, "--", *plugin, cwd=Path(__file__).parents[2])
    assert done.returncode == 1, done.stderr
    assert "forged" in done.stdout
    assert_harmless(done.stdout + done.stderr)
    for file in files.values():
        text = file.read_text()
        assert "forged" in text, file
        assert not [each for each in text if not each.isprintable() and each != "\n"]


def test_a_damaged_cdi_file_and_a_checkpoint_are_shown_harmless(
    short_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The names and texts of files that strangers write."""
    text = json.dumps({"cdiVersion": PLANT, "kind": PLANT, "devices": [{"name": PLANT}]})
    (short_dir / f"{PLANT.replace('/', '')}.json").write_text(text)
    main(["cdi", "list", "--cdi-dir", str(short_dir)])
    main(["cdi", "validate", "--cdi-dir", str(short_dir)])
    main(["cdi", "resolve", PLANT, "--cdi-dir", str(short_dir)])
    (short_dir / "checkpoint").write_text(json.dumps({"Data": {PLANT: 1}, "Checksum": PLANT}))
    main(["checkpoint", "show", str(short_dir / "checkpoint")])
    printed = capfd.readouterr()
    assert printed.err.count("forged") > 3
    assert_harmless(printed.out + printed.err)
