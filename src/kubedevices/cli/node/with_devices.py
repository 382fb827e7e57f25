"""`kubedevices with`: allocates devices, runs a command with them, and releases them at its end.

The command is not started if the devices are refused. Signals go to the command, and its exit code
becomes ours. After SIGKILL or a power cut, the devices stay allocated, and `kubedevices devices`
reports them as left behind.
"""

import argparse
import asyncio
import itertools
import os
import re
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.cli.node.run_options import (
    add_allow_env,
    run_options,
    warn_of_conflicts,
)
from kubedevices.cli.shared.node_client import (
    add_node_arguments,
    ask,
    ask_to_allocate,
    state_directory,
)
from kubedevices.errors import KubedevicesError, NodeError, UsageError
from kubedevices.host import deadlines
from kubedevices.host.terminal import print_to_stderr
from kubedevices.values.allocation import ContainerOptions

if TYPE_CHECKING:
    from kubedevices.cli.node.foreground import Foreground
    from kubedevices.node.pods.hold_owner import OwnedHold
    from kubedevices.node.pods.pod import Pod
    from kubedevices.node.services.control_client import ControlClient

NAME = "with"
HELP = """\
run a command with devices, and release the devices when the command ends

{} in COMMAND is replaced by the arguments of its runtime (podman, docker, nerdctl). Any other
command gets the environment variables of the devices; dangerous names such as LD_PRELOAD are
refused unless --allow-env names them. If the devices are refused, the command is not started.
Signals and the exit code are passed on. The devices are given back when the command ends, for any
reason.
"""
EXAMPLES = """\
examples:
  kubedevices with example.com/gpu=1 -- podman run --rm {} IMAGE nvidia-smi
  kubedevices with example.com/gpu=2 --pod-name train -- sudo docker run --rm {} IMAGE
  kubedevices with example.com/gpu=1 -- python train.py
  kubedevices with example.com/gpu=1 --format env -- docker compose up

exit code: the exit code of COMMAND; 1 devices refused, 2 wrong usage, 3 no node, 126 and 127
COMMAND could not be started. If a signal ends COMMAND, the same signal ends this command.
"""

TAKES_COMMAND = True

PLACEHOLDER = "{}"
RUNTIMES = {"podman": "podman", "docker": "docker", "nerdctl": "docker"}
"""Commands that start containers, and the format of their arguments."""

_DETACHED = re.compile(r"-[iqtP]*d[iqtP]*|--detach(=true)?")
_LOOK_FOR_SIGNALS = 0.1
_RELEASE_WAIT = 10.0
_RELEASE_PAUSE = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb; what follows `--` is `args.command`."""
    parser.add_argument(
        "requests",
        nargs="+",
        metavar="RESOURCE=N",
        help="devices for the command, for example example.com/widget=1",
    )
    parser.add_argument(
        "--pod-name",
        metavar="NAME",
        help="name of the pod that holds the devices (default: a random name)",
    )
    parser.add_argument(
        "--format",
        choices=("podman", "docker", "env"),
        help="how {} is replaced: by arguments of podman or docker, or NAME=value words; env also "
        "sets the variables (default: from the name of COMMAND)",
    )
    add_allow_env(parser)
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Allocate, run the command, release."""
    from kubedevices.cli.node.allocate import requested_pod
    from kubedevices.cli.node.foreground import Foreground, end_like
    from kubedevices.node.pods.hold_owner import OwnedHold

    kind = chosen_format(args.command, args.format)
    pod = requested_pod(args.requests, args.pod_name, None, prefix="with")
    wanted = pod.containers[0].limits
    plugin = " or ".join(wanted)
    ask_to_allocate(args, lambda client: client.capacity(), wanted)  # fails if no node answers
    with (
        OwnedHold.claim(state_directory(args), pod.uid, shlex.join(args.command)) as hold,
        Foreground() as foreground,
    ):
        _make_room(args, pod, hold)
        try:
            answer = ask(args, lambda client: _allocate(client, pod, foreground))
            warn_of_conflicts(answer)
            options = run_options(answer, pod.containers[0].name)
            words, env = placed(
                args.command, kind, options, os.environ, plugin=plugin, allowed=args.allow_env
            )
            status = foreground.run(words, env, inherit=hold.file)
        finally:
            hold.is_released = _release(args, pod, foreground)
    return end_like(status)


# ---------------------------------------------------------------- the command


def chosen_format(command: Sequence[str], wanted: str | None) -> str:
    """Return the format of the devices for the command; raises `UsageError` if it is not clear."""
    if not command:
        raise UsageError("no command: kubedevices with RESOURCE=N -- COMMAND ...")
    before = command[: command.index(PLACEHOLDER)] if PLACEHOLDER in command else command[:1]
    found = [RUNTIMES[name] for word in before if (name := Path(word).name) in RUNTIMES]
    kind = wanted or (found[0] if found else "env")
    if kind == "env":
        if PLACEHOLDER in command and wanted is None:
            raise UsageError(
                f"{command[0]} is not a known runtime: give --format for {PLACEHOLDER}"
            )
        return kind
    if PLACEHOLDER not in command:
        raise UsageError(
            f"say where {command[0]} gets its arguments: {command[0]} run {PLACEHOLDER} IMAGE "
            "(--format env sets environment variables only)"
        )
    after = command[command.index(PLACEHOLDER) + 1 :]
    options = [*before, *itertools.takewhile(lambda word: word.startswith("-"), after)]
    if detached := next((word for word in options if _DETACHED.fullmatch(word)), None):
        raise UsageError(
            f"leave {detached} out: the devices are given back when the command ends, and a "
            "detached container would continue to use the devices"
        )
    return kind


def placed(
    command: Sequence[str],
    kind: str,
    options: ContainerOptions,
    env: Mapping[str, str],
    *,
    plugin: str = "",
    allowed: Collection[str] = (),
) -> tuple[list[str], Mapping[str, str]]:
    """Return the command with its devices, and its environment.

    Raises `NotExpressible`, and `UnsafeVariable` if the command is a program of the host and the
    answer of `plugin` has a variable that is dangerous there and not `allowed`.
    """
    from kubedevices.host.runtimes import engine
    from kubedevices.host.runtimes import env as for_host

    if kind == "env":
        env = {**env, **for_host.variables(options, plugin=plugin, allowed=allowed)}
        words = for_host.words(options, plugin=plugin, allowed=allowed)
    else:
        words = engine.args(kind, options)
    full = [new for word in command for new in (words if word == PLACEHOLDER else [word])]
    return full, env


# ---------------------------------------------------------------- its devices


def _make_room(args: argparse.Namespace, pod: "Pod", hold: "OwnedHold") -> None:
    """Release devices of an ended command with the same pod name.

    Raises `NodeError` if the pod belongs to somebody else.
    """

    async def look(client: "ControlClient") -> None:
        if not await _is_held(client, pod):
            return
        if not hold.was_left_behind:
            raise NodeError(
                f"pod {pod.full_name} holds devices already: give them back with "
                f"`kubedevices release {pod.full_name}`, or choose another --pod-name"
            )
        await client.release(pod.uid)

    try:
        ask(args, look)
    except BaseException:
        hold.is_released = not hold.was_left_behind  # keep its record, for `kubedevices devices`
        raise


async def _is_held(client: "ControlClient", pod: "Pod") -> bool:
    return any(each["uid"] == pod.uid for each in (await client.pods())["pods"])


async def _allocate(
    client: "ControlClient", pod: "Pod", foreground: "Foreground"
) -> Mapping[str, Any]:
    """Allocate; a pending signal cancels it and takes effect when `Foreground` unblocks signals."""
    question = asyncio.create_task(client.allocate(pod), name="allocate")
    while not (await asyncio.wait({question}, timeout=_LOOK_FOR_SIGNALS))[0]:
        if foreground.pending:
            question.cancel()
    if foreground.pending:
        raise KeyboardInterrupt
    return question.result()


def _release(args: argparse.Namespace, pod: "Pod", foreground: "Foreground") -> bool:
    """Release the devices and return whether this worked; print the reason on stderr if not.

    A node may be restarting, so this tries again for `_RELEASE_WAIT` seconds.
    """

    async def give_back(client: "ControlClient") -> None:
        async with deadlines.timeout(_RELEASE_WAIT):
            if await _is_held(client, pod):
                await client.release(pod.uid)

    deadline = time.monotonic() + _RELEASE_WAIT
    while True:
        reason = "the node did not answer in time"
        try:
            ask(args, give_back)
        except TimeoutError:
            pass
        except KubedevicesError as error:
            reason = str(error)
        else:
            return True
        if time.monotonic() > deadline or foreground.pending:
            break
        time.sleep(_RELEASE_PAUSE)
    print_to_stderr(
        f"kubedevices: pod {pod.full_name} keeps its devices: {reason}. Afterwards: kubedevices "
        f"release {pod.full_name} --socket-dir {args.socket_dir}"
    )
    return False
