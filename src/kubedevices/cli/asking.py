"""What the verbs around a node share: its directories, and how to ask it.

The transport is loaded only when the arguments are in order.
"""

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kubedevices.cli.serving import some_path
from kubedevices.errors import NodeError, NoNode
from kubedevices.socket_paths import (
    DEVICE_PLUGIN_DIR,
    PROXY_SOCKET_NAME,
    STATE_DIR,
    default_state_dir,
)
from kubedevices.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from kubedevices.node.doors.control_client import ControlClient

Answer = TypeVar("Answer")


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--socket-dir` and `--state-dir`; read them with `node_directories`."""
    group = parser.add_argument_group("which node")
    group.add_argument(
        "--socket-dir",
        type=absolute_path,
        default=DEVICE_PLUGIN_DIR,
        metavar="DIR",
        help="directory of its kubelet.sock and of the plugins' sockets (default: "
        f"{DEVICE_PLUGIN_DIR})",
    )
    group.add_argument(
        "--state-dir",
        type=absolute_path,
        metavar="DIR",
        help="directory of its state and of the socket for these commands (default: DIR.state for "
        f"--socket-dir DIR; {STATE_DIR} for the kubelet's directory)",
    )


def add_pod_resources_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--pod-resources`."""
    parser.add_argument(
        "--pod-resources",
        type=absolute_path,
        metavar="SOCKET",
        help="ask this podresources socket, of a kubelet for example, instead of a `kubedevices "
        "node`; it lists healthy and allocated devices only",
    )


def add_proxy_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--proxy-state-dir`; read it with `proxy_socket`."""
    parser.add_argument(
        "--proxy-state-dir",
        type=absolute_path,
        metavar="DIR",
        help="state directory of the `kubedevices proxy` in front of the kubelet (default: the "
        "node's --state-dir)",
    )


def proxy_socket(args: argparse.Namespace) -> Path:
    """Return where a proxy would answer."""
    given: Path | None = args.proxy_state_dir
    return (given or state_directory(args)) / PROXY_SOCKET_NAME


def absolute_path(text: str) -> Path:
    """Take a path from the command line, and where it is from here."""
    return some_path(text).absolute()


def state_directory(args: argparse.Namespace) -> Path:
    """Return where the node or the proxy of `args` keeps its state."""
    given: Path | None = args.state_dir
    return given or default_state_dir(args.socket_dir)


def ask(
    args: argparse.Namespace, question: "Callable[[ControlClient], Awaitable[Answer]]"
) -> Answer:
    """Connect to the running node and return the answer; raises `NoNode` without one."""
    from kubedevices.node.doors.control_client import ControlClient

    async def connect_and_ask() -> Answer:
        async with await ControlClient.connect(args.socket_dir, state_directory(args)) as client:
            return await question(client)

    return asyncio.run(connect_and_ask())


def unknown_resource(resource: str, known: "Collection[str]") -> NodeError:
    """Return the error for a resource that is not among the `known` resources of the node."""
    return NodeError(
        f"no plugin has registered {resource}; this node has {', '.join(known) or 'nothing'}"
        f"{did_you_mean(resource, known)}"
    )


def ask_to_allocate(
    args: argparse.Namespace,
    question: "Callable[[ControlClient], Awaitable[Answer]]",
    wanted: "Iterable[str]" = (),
) -> Answer:
    """Ask like `ask`; where a kubelet serves the directory, say what it has of what is `wanted`."""
    try:
        return ask(args, question)
    except NoNode as error:
        from kubedevices.cli.kubelet_here import refuse

        raise refuse(error, wanted) from error
