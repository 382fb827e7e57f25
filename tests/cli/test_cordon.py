"""`kubedevices cordon` and `uncordon`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import KubeletSilent, NoNode
from kubedevices.proxy.live_rules import LiveRules
from tests.command_line import CommandLine, Printed
from tests.fake_plugin import RESOURCE, healthy
from tests.node_thread import NodeThread, node_thread
from tests.proxy_rig import proxied
from tests.waiting import until
from tests.widgets import QUICK, Widgets, widgets

REASON = ("--reason", "new firmware")
ANYWAY = (*REASON, "--anyway")
Beside = Callable[..., Awaitable[Printed]]


@pytest.fixture
def directory(short_dir: Path) -> str:
    """Give a socket directory that nobody serves."""
    (short_dir / "p").mkdir()
    return str(short_dir / "p")


@pytest.fixture
def run(directory: str, cli: CommandLine) -> CommandLine:
    return cli.of(after=("--socket-dir", directory))


def listed(run: CommandLine) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = run("cordon", "--list", "-o", "json").data["cordoned"]
    return rows


def test_a_device_is_cordoned_listed_and_uncordoned(directory: str, run: CommandLine) -> None:
    """Several at once; an ID may have slashes; the file is beside the directory of the node."""
    assert run("cordon", "--list") == ("", "no device is cordoned\n")
    assert run("cordon", "a.b/gpu/G-1", "a.b/tty//dev/tty0", *ANYWAY).out == (
        "a.b/gpu/G-1 is cordoned: new firmware\na.b/tty//dev/tty0 is cordoned: new firmware\n"
    )
    assert Path(f"{directory}.state/maintenance.json").is_file()
    assert run("uncordon", "a.b/gpu/G-1").out == "a.b/gpu/G-1 is uncordoned\n"
    (left,) = listed(run)
    assert {**left, "since": ""} == {
        "resource": "a.b/tty",
        "id": "/dev/tty0",
        "reason": "new firmware",
        "since": "",
    }
    assert run("uncordon", "--all", "-o", "json").data == {"uncordoned": [left]}
    assert run("uncordon", "--all").out == "no device is cordoned\n"


def test_a_second_reason_replaces_the_first(run: CommandLine) -> None:
    """The time stays: the device has been out since then."""
    run("cordon", "a.b/gpu/G-1", "--reason", "first", "--anyway")
    (first,) = listed(run)
    run("cordon", "a.b/gpu/G-1", "--reason", " second\nline ", "--anyway")
    assert listed(run) == [{**first, "reason": "second line"}]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("cordon", "which device?"),
        ("cordon a.b/gpu/G-1", "needs --reason TEXT"),
        ("cordon a.b/gpu --reason x", "is not a device: write RESOURCE/ID"),
        ("cordon gpu/G-1 --reason x", "is not a device: write RESOURCE/ID"),
        ("cordon A.b/gpu/G-1 --reason x", "resource name 'A.b/gpu' is invalid"),
        ("cordon --list a.b/gpu/G-1", "--list changes nothing"),
        ("uncordon", "which device?"),
        ("uncordon --all a.b/gpu/G-1", "leave out RESOURCE/ID"),
    ],
)
def test_wrong_arguments_are_explained(
    directory: str, words: str, problem: str, run: CommandLine
) -> None:
    """Exit code 2, and nothing is written."""
    assert problem in run(*words.split(), code=2).err
    assert not Path(f"{directory}.state").exists()


def test_uncordon_changes_all_devices_or_none(run: CommandLine) -> None:
    """A misspelt device gets a suggestion."""
    run("cordon", "a.b/gpu/GPU-1", "a.b/gpu/GPU-2", *ANYWAY)
    said = run("uncordon", "a.b/gpu/GPU-1", "a.b/gpu/GPU2", code=1).err
    assert "a.b/gpu/GPU2 is not cordoned, did you mean 'a.b/gpu/GPU-2'?" in said
    assert len(listed(run)) == 2


# ---------------------------------------------------------------- who obeys?


@pytest.fixture
def cordon(cli: CommandLine) -> Beside:
    """Return what runs the command beside plugins that this loop serves."""

    async def run(directory: Path, *words: str, code: int = 0) -> Printed:
        words = ("cordon", *words, "--socket-dir", str(directory), *REASON)
        return await asyncio.to_thread(cli, *words, code=code)

    return run


@contextlib.asynccontextmanager
async def serving(
    directory: Path, *ids: str, file: Path | None = None, resource: str = RESOURCE
) -> AsyncIterator[None]:
    """Serve a plugin of ours, which follows `file`."""
    domain, _, device_type = resource.partition("/")
    scanner: kd.Scanner = Widgets(**{device_type: widgets(*ids)})
    if file is not None:
        scanner = kd.Cordoned(scanner, domain, file)
    directory.mkdir(exist_ok=True)
    async with kd.serve(
        scanner, domain=domain, socket_dir=directory, registration="none", timing=QUICK
    ) as runner:
        await until(lambda: runner.is_serving(device_type))
        yield


async def test_the_plugin_is_asked_whether_it_takes_the_device_out(
    short_dir: Path, cordon: Beside
) -> None:
    """It knows its devices, also the unhealthy devices, and the list that it follows."""
    directory, file = short_dir / "p", short_dir / "p.state/maintenance.json"
    async with serving(directory, "gpu-a", "gpu-b::0", file=file):
        for known in ("gpu-a", "gpu-b", "gpu-b::0", "gpu-b::7"):
            await cordon(directory, f"{RESOURCE}/{known}")
        err = (await cordon(directory, f"{RESOURCE}/gpu-x", code=1)).err
        assert f"{RESOURCE} has no device 'gpu-x', did you mean 'gpu-" in err
        await cordon(directory, f"{RESOURCE}/gpu-x", "--anyway")
        err = (await cordon(directory, f"{RESOURCE}s/gpu-a", code=1)).err
        assert f"{RESOURCE}s is not a resource here" in err
        other = ("--state-dir", str(short_dir / "other"))
        said = (await cordon(directory, f"{RESOURCE}/gpu-a", *other, code=1)).err
        assert f"follows {file}, and not {short_dir}/other/maintenance.json" in said
        assert f"give --state-dir {file.parent}" in said


async def test_a_plugin_that_follows_no_list_is_named(short_dir: Path, cordon: Beside) -> None:
    """Nothing would happen, so nothing is written."""
    async with serving(short_dir / "p", "gpu-a"):
        shown = await cordon(short_dir / "p", f"{RESOURCE}/gpu-a", code=1)
    assert "no plugin obeys" in shown.err
    assert not (short_dir / "p.state").exists()


async def test_the_name_behind_rename_is_told(short_dir: Path, cordon: Beside) -> None:
    """A proxy obeys by the name outside; `cordon: false` and hidden resources do not."""
    text = (
        "unlisted: hide\nresources:\n  example.com/widget: {rename: new.com/w}\n"
        "  example.com/deaf: {cordon: false}\n"
    )
    file = short_dir / "proxy.yaml"
    file.write_text(text)
    async with proxied(short_dir, rules=LiveRules.from_file(file)) as rig:
        for name in ("widget", "deaf", "hidden"):
            resource = f"example.com/{name}"
            await rig.plugin(*healthy("a"), resource=resource, socket_name=f"{name}.sock")
        await rig.served(1, "new.com/w")
        await rig.served(1, "example.com/deaf")
        await until(lambda: len(rig.proxy.resources) == 3)
        at = ("--state-dir", str(rig.state))
        await cordon(rig.outside, "new.com/w/a", *at)
        for resource, problem in {
            RESOURCE: f"{RESOURCE} is the name behind the proxy: write new.com/w/a",
            "new.com/ww": "new.com/ww is not a resource here, did you mean 'new.com/w'?",
            "example.com/deaf": "no plugin obeys: the plugin of example.com/deaf follows no list",
            "example.com/hidden": "behind the proxy, which does not serve the resource",
        }.items():
            assert problem in (await cordon(rig.outside, f"{resource}/a", *at, code=1)).err


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node with a plugin of another vendor."""
    with node_thread(short_dir / "p") as running:
        running.serve(healthy("gpu-a"))
        yield running


def test_the_plugin_of_another_vendor_does_not_obey(node: NodeThread, cli: CommandLine) -> None:
    """The reason says what helps."""
    run = cli.of(after=("--socket-dir", node.socket_dir))
    said = run("cordon", f"{RESOURCE}/gpu-a", *REASON, code=1).err
    assert "no plugin obeys" in said
    assert "put `kubedevices proxy` before it" in said
    said = run("cordon", "example.com/widgets/gpu-a", *REASON, code=1).err
    assert f"did you mean '{RESOURCE}'?" in said
    assert listed(run) == []


def test_a_kubelet_is_asked_for_its_resources(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that a plugin of another vendor serves the resource; if it hangs, nobody does."""
    answers: list[object] = [
        (Path("/k.sock"), {"resources": [{"resource": RESOURCE, "devices": [{"id": "gpu-a"}]}]}),
        KubeletSilent("/k.sock", 5, "hangs"),
    ]

    def ask_kubelet_of(error: NoNode) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("kubedevices.cli.other_plugins.cordon.ask_kubelet_of", ask_kubelet_of)
    for problem in ("no plugin obeys", f"{RESOURCE} is not a resource here"):
        assert problem in run("cordon", f"{RESOURCE}/gpu-a", *REASON, code=1).err


def test_a_driver_of_the_domain_is_trusted(directory: str, run: CommandLine) -> None:
    """A DRA driver follows the list too, but has no socket that could be asked."""
    (Path(directory).parent / "plugins/example.com").mkdir(parents=True)
    run("cordon", f"{RESOURCE}/gpu-a", *REASON)


def test_a_debugging_pod_cordons_a_device_of_the_host(short_dir: Path, cli: CommandLine) -> None:
    """The host's files are below another directory there: all three verbs look there."""
    root = short_dir / "host"
    (root / "var/lib").mkdir(parents=True)
    there = ("--host-root", str(root))
    # A node in the usual directory has the usual state directory; this one has its own.
    (root / "var/lib/kubedevices").symlink_to("kubelet/device-plugins.state")
    (root / "var/lib/kubelet").mkdir()
    with node_thread(root / "var/lib/kubelet/device-plugins") as node:
        node.serve([*healthy("GPU-1")])
        (listed,) = cli("devices", "-o", "json", *there).data["resources"]
        assert listed["resource"] == RESOURCE
        cli("cordon", f"{RESOURCE}/GPU-1", *REASON, *there, "--anyway")
        file = root / "var/lib/kubedevices/maintenance.json"
        assert "GPU-1" in file.read_text()
        cli("uncordon", f"{RESOURCE}/GPU-1", *there)
        assert "GPU-1" not in file.read_text()


def test_a_directory_that_the_user_names_is_not_below_the_root(
    directory: str, short_dir: Path, run: CommandLine
) -> None:
    """The user names it as the process sees it."""
    there = ("--host-root", str(short_dir), "--anyway")
    run("cordon", "a.b/c/d", *REASON, *there)
    assert Path(f"{directory}.state/maintenance.json").is_file()
