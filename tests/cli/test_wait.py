"""`kubedevices wait`."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubedevices.cli import main
from kubedevices.cli.node.wait import not_reached
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.node_thread import NodeThread, node_thread

LONG = ["--timeout", "1m"]


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node whose plugin has two healthy devices and an unhealthy one."""
    with node_thread(short_dir / "p") as running:
        running.call(running.plugin.send([*healthy("a", "b"), *unhealthy("c")]))
        running.call(running.plugin.register())
        running.call(running.manager.wait_for(RESOURCE, capacity=3))
        yield running


def wait(node: NodeThread, resource: str, *arguments: str) -> int:
    return main(["wait", resource, *arguments, "--socket-dir", str(node.socket_dir)])


@pytest.mark.parametrize("arguments", [[], ["--allocatable", "2"]])
def test_wait_prints_the_number_of_allocatable_devices(
    node: NodeThread, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Without a number it waits for one device or more; unhealthy devices do not count."""
    assert wait(node, RESOURCE, *arguments, *LONG) == 0
    assert capsys.readouterr().out == f"{RESOURCE}: 2 allocatable devices\n"


def test_wait_ends_when_the_number_is_reached(node: NodeThread) -> None:
    """More devices than wanted are not the wanted number either; 0 is a number like others."""
    with ThreadPoolExecutor() as pool:
        for number in (1, 0, 3):
            waiting = pool.submit(wait, node, RESOURCE, "--allocatable", str(number), *LONG)
            node.call(node.plugin.send([*healthy("a", "b", "c")][:number]))
            assert waiting.result(60) == 0


def test_wait_waits_for_a_node_that_starts_later(short_dir: Path) -> None:
    """The same for the plugin."""
    with ThreadPoolExecutor() as pool:
        arguments = ["wait", RESOURCE, "--socket-dir", str(short_dir / "p"), *LONG]
        waiting = pool.submit(main, arguments)
        with node_thread(short_dir / "p") as node:
            node.call(node.plugin.send(healthy("a")))
            node.call(node.plugin.register())
            assert waiting.result(60) == 0


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


def test_wait_fails_after_the_timeout(node: NodeThread, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, with the number there is."""
    assert wait(node, RESOURCE, "--allocatable", "3", "--timeout", "6s") == 1
    assert "it is: allocatable 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--socket-dir", "start one with `kubedevices node --socket-dir {path}`"),
        ("--pod-resources", "no kubelet answers at {path}"),
    ],
)
def test_the_timeout_error_says_that_no_node_answered(
    short_dir: Path, capsys: pytest.CaptureFixture[str], option: str, said: str
) -> None:
    """Exit code 3."""
    path = short_dir / "nothing"
    assert main(["wait", RESOURCE, option, str(path), "--timeout", "6"]) == 3
    assert said.format(path=path) in capsys.readouterr().err


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
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Exit code 2."""
    assert main(["wait", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_wait_for_registration_needs_no_resource(
    node: NodeThread, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks nothing but whether a server answers at kubelet.sock."""
    assert main(["wait", "--registration", "--socket-dir", str(node.socket_dir)]) == 0
    assert capsys.readouterr().out == f"plugins can register in {node.socket_dir}\n"


def test_wait_for_registration_waits_for_an_answer(short_dir: Path) -> None:
    """A socket whose process was killed, and one that accepts and says nothing, do not count."""
    directory = short_dir / "p"
    directory.mkdir()
    words = ["wait", "--registration", "--socket-dir", str(directory), *LONG]
    with ThreadPoolExecutor() as pool, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(directory / "kubelet.sock"))
        assert main([*words[:-1], "300ms"]) == 1
        silent.listen()
        assert main([*words[:-1], "300ms"]) == 1
        silent.close()
        (directory / "kubelet.sock").unlink()
        waiting = pool.submit(main, words)
        with node_thread(directory):
            assert waiting.result(60) == 0


@pytest.mark.parametrize(
    "words",
    [[], ["--registration", RESOURCE], ["--registration", "--allocatable", "1"]],
    ids=" ".join,
)
def test_wait_needs_a_resource_or_registration(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not both, not neither."""
    assert main(["wait", *words]) == 2
    assert "--registration" in capsys.readouterr().err
