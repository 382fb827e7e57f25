"""`kubedevices with`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubedevices.cli.node.with_devices import chosen_format, placed
from kubedevices.errors import UsageError
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerOptions,
)
from kubedevices.values.device import DeviceSpec
from tests.cli import commands
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE
from tests.node_thread import NodeThread, node_thread
from tests.waiting import until_sync

WAITING = "import os, sys; print(os.environ['IDS'], flush=True); sys.stdin.read()"


def arguments(node: NodeThread, *options: str, command: tuple[str, ...]) -> list[str]:
    return ["with", f"{RESOURCE}=1", "--socket-dir", str(node.socket_dir), *options, "--", *command]


def run(
    node: NodeThread, *options: str, command: tuple[str, ...]
) -> "subprocess.CompletedProcess[str]":
    return commands.run(*arguments(node, *options, command=command))


def start(node: NodeThread, *options: str, command: tuple[str, ...]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*commands.COMMAND, *arguments(node, *options, command=command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held(node: NodeThread) -> list[str]:
    return sorted(pod.name for pod in node.manager.pods())


# ---------------------------------------------------------------- from first to last


def test_a_command_gets_devices_and_they_are_released_at_its_end(node: NodeThread) -> None:
    """Variables in the environment, output and exit code untouched, nothing held afterwards."""
    ended = run(node, command=("sh", "-c", 'echo "$IDS"; cat /dev/null; exit 7'))
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "a\n", "")
    assert held(node) == []
    assert list((node.manager.state_dir / "owners").iterdir()) == []


def test_a_runtime_gets_its_arguments_at_the_placeholder(node: NodeThread, tmp_path: Path) -> None:
    """What `podman` sees is one word per argument, before and behind them what was there."""
    fake = tmp_path / "podman"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    ended = run(node, command=(str(fake), "run", "--rm", "{}", "image", "a b", "--", "{x}"))
    options = ["--env=IDS=a", "--device=/dev/a:/dev/a:rw"]
    assert ended.stdout.splitlines() == ["run", "--rm", *options, "image", "a b", "--", "{x}"]
    assert ended.returncode == 0


def test_a_refusal_starts_nothing(node: NodeThread, tmp_path: Path) -> None:
    """Exit code 1 and the node's reason; the command never ran."""
    mark = tmp_path / "started"
    ended = commands.run(
        *("with", f"{RESOURCE}=5", "--socket-dir", node.socket_dir, "--", "touch", mark)
    )
    assert ended.returncode == 1
    assert "Requested: 5, Available: 4" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not mark.exists()
    assert list((node.manager.state_dir / "owners").iterdir()) == []


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("/none/such", 127, "cannot start /none/such: No such file"),
        ("/etc/passwd", 126, "cannot start /etc/passwd: Permission denied"),
    ],
)
def test_a_command_that_does_not_start_holds_no_devices(
    node: NodeThread, command: str, code: int, text: str
) -> None:
    """The exit codes are those of a shell."""
    ended = run(node, command=(command,))
    assert ended.returncode == code
    assert text in ended.stderr
    assert held(node) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_command_and_gives_the_devices_back(
    node: NodeThread, number: signal.Signals
) -> None:
    """Whoever ends us, such as systemd, ends the command first."""
    with start(node, command=(sys.executable, "-c", WAITING)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "a\n"
        process.send_signal(number)
        process.wait(commands.DEADLINE)
    assert process.returncode == -number
    assert held(node) == []


def test_two_commands_at_once_get_two_devices(node: NodeThread) -> None:
    """Each its own pod; one with the name of the other is refused and told who that is."""
    options = ("--pod-name", "train")
    with (
        start(node, *options, command=(sys.executable, "-c", WAITING)) as first,
        start(node, command=(sys.executable, "-c", WAITING)) as second,
    ):
        assert first.stdout is not None
        assert second.stdout is not None
        assert {first.stdout.readline(), second.stdout.readline()} == {"a\n", "b\n"}
        again = run(node, *options, command=("true",))
        assert again.returncode == 1
        assert f"process {first.pid}" in again.stderr
        assert len(held(node)) == 2
        first.communicate(timeout=commands.DEADLINE)
        second.communicate(timeout=commands.DEADLINE)
    assert held(node) == []


# ---------------------------------------------------------------- variables of a plugin


def preload(request: AllocateRequest) -> AllocateResponse:
    """Answer with a variable that makes each program load a library."""
    env = {"IDS": "x", "LD_PRELOAD": "/plugin.so", "PATH": "/plugin"}
    return AllocateResponse([ContainerAllocateResponse(env=env) for _ in request.containers])


@pytest.mark.parametrize("format_", [[], ["--format", "env"]])
def test_a_program_of_the_host_gets_no_dangerous_variable(
    node: NodeThread, format_: list[str]
) -> None:
    """It is not started, the message names variable and plugin, and the devices are given back."""
    node.plugin.allocate_answer = preload
    ended = run(node, *format_, command=("echo", "started"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "'LD_PRELOAD' of the plugin of example.com/widget is refused" in ended.stderr
    assert "--allow-env LD_PRELOAD" in ended.stderr
    assert held(node) == []


def test_a_variable_can_be_allowed_by_its_name(node: NodeThread) -> None:
    """Each needs its own option; a container gets all of them without an option."""
    node.plugin.allocate_answer = preload
    allowed = ("--allow-env", "LD_PRELOAD")
    assert "'PATH'" in run(node, *allowed, command=("true",)).stderr
    ended = run(node, *allowed, "--allow-env", "PATH", command=("/bin/echo", "started"))
    assert (ended.returncode, ended.stdout) == (0, "started\n")
    ended = run(node, "--format", "podman", command=("echo", "{}"))
    assert "--env=LD_PRELOAD=/plugin.so" in ended.stdout


# ---------------------------------------------------------------- what goes wrong


def test_a_signal_while_the_plugin_is_asked_leaves_nothing(node: NodeThread) -> None:
    """An Allocate may take minutes; the command is not started after it."""
    node.plugin.hang("allocate")
    with start(node, command=("echo", "started")) as process:
        until_sync(lambda: node.plugin.allocations, commands.DEADLINE)
        process.terminate()
        output, _ = process.communicate(timeout=commands.DEADLINE)
    assert (process.returncode, output) == (-signal.SIGTERM, "")
    until_sync(lambda: held(node) == [], commands.DEADLINE)


def test_after_sigkill_the_devices_are_reported_as_left_behind(
    node: NodeThread, cli: CommandLine
) -> None:
    """While the command lives it counts as used; then `devices` names it, and the name is free."""
    options = ("--pod-name", "train")
    place = ("--socket-dir", str(node.socket_dir))
    process = start(node, *options, command=(sys.executable, "-c", WAITING))
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    process.kill()
    process.wait()
    assert "left behind" not in cli("devices", *place).out
    assert run(node, *options, command=("true",)).returncode == 1  # the orphan still has it
    process.communicate(timeout=commands.DEADLINE)

    def told() -> bool:
        return bool(cli("devices", *place, "-o", "json").data["left_behind"])

    until_sync(told, commands.DEADLINE)
    out = cli("devices", *place).out
    assert "pod default/train is left behind: its command is gone" in out
    assert "kubedevices release default/train" in out
    taken_over = run(node, *options, command=("sh", "-c", 'echo "$IDS"'))
    assert (taken_over.returncode, taken_over.stdout) == (0, "a\n")
    assert held(node) == []


def test_a_node_that_restarts_meanwhile_gets_the_devices_back(node: NodeThread) -> None:
    """It knows the hold from its ledger, and the end of the command waits for it."""
    with start(node, command=(sys.executable, "-c", WAITING)) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        node.call(node.stop())
        process.stdin.close()
        with node_thread(node.socket_dir) as again:
            assert process.wait(commands.DEADLINE) == 0
            assert held(again) == []
    assert [*(node.manager.state_dir / "owners").iterdir()] == []


def test_a_node_that_is_gone_leaves_exit_code_and_advice(node: NodeThread, tmp_path: Path) -> None:
    """The command's exit code, and how to give the devices back; the next node tells it, too."""
    began = tmp_path / "began"
    command = ("sh", "-c", '>"$0"; read line; exit 4', str(began))
    with start(node, "--pod-name", "train", command=command) as process:
        # Devices are held before the command has the node's answer, and begins.
        until_sync(began.exists, commands.DEADLINE)
        node.call(node.stop())
        _, error = process.communicate(timeout=commands.DEADLINE)
    assert process.returncode == 4
    assert "pod default/train keeps its devices: no kubedevices node is running" in error
    assert f"kubedevices release default/train --socket-dir {node.socket_dir}" in error
    with node_thread(node.socket_dir) as again:
        assert held(again) == ["train"]
        place = ("--socket-dir", str(again.socket_dir))
        assert "left behind: its command is gone" in commands.run("devices", *place).stdout


def test_a_pod_that_was_admitted_before_is_not_released(node: NodeThread, cli: CommandLine) -> None:
    """We would give back at our end what is not ours."""
    place = ("--socket-dir", str(node.socket_dir), "--pod-name", "train")
    cli("allocate", f"{RESOURCE}=1", *place)
    ended = run(node, "--pod-name", "train", command=("true",))
    assert ended.returncode == 1
    assert "pod default/train holds devices already: give them back" in ended.stderr
    assert held(node) == ["train"]


def test_options_that_a_runtime_cannot_express_release_the_devices(node: NodeThread) -> None:
    """Exit code 2, and the runtime is not started."""

    def answer(request: AllocateRequest) -> AllocateResponse:
        return AllocateResponse(
            [type(each)(devices=[DeviceSpec("/dev/a:b")]) for each in default(request).containers]
        )

    default, node.plugin.allocate_answer = node.plugin.allocate_answer, answer
    ended = run(node, "--format", "podman", command=("echo", "{}"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "not expressible for podman: the device path /dev/a:b" in ended.stderr
    assert held(node) == []


def test_without_a_node_nothing_is_started(short_dir: Path) -> None:
    """Exit code 3, and what to do."""
    ended = commands.run("with", f"{RESOURCE}=1", "--socket-dir", short_dir, "--", "echo", "no")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "no kubedevices node is running" in ended.stderr


# ---------------------------------------------------------------- what is meant


@pytest.mark.parametrize(
    ("command", "wanted", "kind"),
    [
        ("podman run {} image", None, "podman"),
        ("/usr/bin/docker run {} image", None, "docker"),
        ("nerdctl run {} image", None, "docker"),
        ("sudo -n podman run {} image podman -d", None, "podman"),
        ("podman --log-level debug run {} --rm image", None, "podman"),
        ("python train.py", None, "env"),
        ("docker compose up -d", "env", "env"),
        ("wrapper {} image", "podman", "podman"),
        ("ssh host env {} program", "env", "env"),
    ],
)
def test_the_format_follows_from_the_command(command: str, wanted: str | None, kind: str) -> None:
    """The runtime may stand behind sudo; --format decides where the name does not."""
    assert chosen_format(command.split(), wanted) == kind


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("", "no command"),
        ("podman run image", "say where podman gets its arguments: podman run {} IMAGE"),
        ("wrapper {} image", "wrapper is not a known runtime: give --format"),
        ("podman run -d {} image", "leave -d out"),
        ("podman run -itd {} image", "leave -itd out"),
        ("podman run {} --detach image", "leave --detach out"),
    ],
)
def test_an_unclear_command_is_refused(command: str, text: str) -> None:
    """Before any device is given."""
    with pytest.raises(UsageError, match=text):
        chosen_format(command.split(), None)


def test_every_placeholder_is_replaced() -> None:
    """As whole words only; variables are in the environment too."""
    options = ContainerOptions(env={"A": "1 2"})
    words, env = placed(["env", "{}", "x{}", "{}"], "env", options, {"B": "3"})
    assert words == ["env", "A=1 2", "x{}", "A=1 2"]
    assert env == {"A": "1 2", "B": "3"}
    assert os.environ.get("A") is None
