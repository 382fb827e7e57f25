"""`kubedevices wait`."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubedevices.cli.node.wait import not_reached
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.node_thread import NodeThread, node_thread

LONG = ["--timeout", "1m"]


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node whose plugin has two healthy devices and an unhealthy one."""
    with node_thread(short_dir / "p") as running:
        running.serve([*healthy("a", "b"), *unhealthy("c")])
        yield running


@pytest.fixture
def wait(node: NodeThread, cli: CommandLine) -> CommandLine:
    return cli.of("wait", after=("--socket-dir", node.socket_dir))


@pytest.mark.parametrize("arguments", [[], ["--allocatable", "2"]])
def test_wait_prints_the_number_of_allocatable_devices(
    wait: CommandLine, arguments: list[str]
) -> None:
    """Without a number it waits for one device or more; unhealthy devices do not count."""
    assert wait(RESOURCE, *arguments, *LONG).out == f"{RESOURCE}: 2 allocatable devices\n"


def test_wait_ends_when_the_number_is_reached(node: NodeThread, wait: CommandLine) -> None:
    """More devices than wanted are not the wanted number either; 0 is a number like others."""
    with ThreadPoolExecutor() as pool:
        for number in (1, 0, 3):
            waiting = pool.submit(wait, RESOURCE, "--allocatable", number, *LONG)
            node.call(node.plugin.send([*healthy("a", "b", "c")][:number]))
            waiting.result(60)


def test_wait_waits_for_a_node_that_starts_later(short_dir: Path, cli: CommandLine) -> None:
    """The same for the plugin."""
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(cli, "wait", RESOURCE, "--socket-dir", short_dir / "p", *LONG)
        with node_thread(short_dir / "p") as node:
            node.call(node.plugin.send(healthy("a")))
            node.call(node.plugin.register())
            waiting.result(60)


@pytest.mark.parametrize(
    ("resource", "wanted", "said"),
    [
        (RESOURCE, 3, "not allocatable 3 within 10 s, it is: allocatable 2"),
        (RESOURCE, None, "not allocatable 1 or more within 10 s"),
        ("example.com/wigdet", None, f"this node has {RESOURCE}, did you mean {RESOURCE!r}?"),
        ("vendor.org/fpga", 0, "no plugin has registered vendor.org/fpga"),
    ],
)
def test_the_error_says_what_the_node_has(resource: str, wanted: int | None, said: str) -> None:
    """A resource that nobody registered has no number, also not 0."""
    error = not_reached(resource, wanted, 10.0, {RESOURCE: 2})
    assert said in str(error)
    assert error.exit_code == 1


def test_wait_fails_after_the_timeout(wait: CommandLine) -> None:
    """Exit code 1, with the number there is."""
    err = wait(RESOURCE, "--allocatable", "3", "--timeout", "6s", code=1).err
    assert "it is: allocatable 2" in err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--socket-dir", "start one with `kubedevices node --socket-dir {path}`"),
        ("--pod-resources", "no kubelet answers at {path}"),
    ],
)
def test_the_timeout_error_says_that_no_node_answered(
    short_dir: Path, cli: CommandLine, option: str, said: str
) -> None:
    """Exit code 3."""
    path = short_dir / "nothing"
    err = cli("wait", RESOURCE, option, path, "--timeout", "6", code=3).err
    assert said.format(path=path) in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["foo"], "resource name 'foo' is invalid"),
        ([RESOURCE, "--timeout", "soon"], "'soon' is not a duration, for example 10s"),
        ([RESOURCE, "--timeout", "0"], "a time above 0 is needed"),
        ([RESOURCE, "--allocatable", "-1"], "--allocatable"),
        ([RESOURCE, "--allocatable", "many"], "'many' is not a number of devices"),
    ],
)
def test_wrong_arguments_are_refused_before_the_node_is_asked(
    cli: CommandLine, arguments: list[str], said: str
) -> None:
    """Exit code 2."""
    assert said in cli("wait", *arguments, code=2).err


def test_wait_for_registration_needs_no_resource(node: NodeThread, cli: CommandLine) -> None:
    """It asks nothing but whether a server answers at kubelet.sock."""
    out = cli("wait", "--registration", "--socket-dir", node.socket_dir).out
    assert out == f"plugins can register in {node.socket_dir}\n"


def test_wait_for_registration_waits_for_an_answer(short_dir: Path, cli: CommandLine) -> None:
    """A socket whose process was killed, and one that accepts and says nothing, do not count."""
    directory = short_dir / "p"
    directory.mkdir()
    words = ["wait", "--registration", "--socket-dir", str(directory), *LONG]
    with ThreadPoolExecutor() as pool, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(directory / "kubelet.sock"))
        cli(*words[:-1], "300ms", code=1)
        silent.listen()
        cli(*words[:-1], "300ms", code=1)
        silent.close()
        (directory / "kubelet.sock").unlink()
        waiting = pool.submit(cli, *words)
        with node_thread(directory):
            waiting.result(60)


@pytest.mark.parametrize(
    "words",
    [[], ["--registration", RESOURCE], ["--registration", "--allocatable", "1"]],
    ids=" ".join,
)
def test_wait_needs_a_resource_or_registration(words: list[str], cli: CommandLine) -> None:
    """Not both, not neither."""
    assert "--registration" in cli("wait", *words, code=2).err
