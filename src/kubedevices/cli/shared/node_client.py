"""Asks the node, or the kubelet that serves the directory instead; the options of both.

`devices`, `wait` and `cordon` ask the kubelet if no node answers. `allocate`, `release` and `with`
cannot do this: they report that the kubelet allocates devices itself. The transport is loaded only
after the arguments are checked.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kubedevices.cli.shared.serving import some_path
from kubedevices.errors import CannotAsk, NodeError, NoNode, NotPermitted
from kubedevices.errors.words import did_you_mean, some_of
from kubedevices.values.socket_paths import (
    DEVICE_PLUGIN_DIR,
    PROXY_SOCKET_NAME,
    STATE_DIR,
    default_state_dir,
)

if TYPE_CHECKING:
    from kubedevices.node.services.control_client import ControlClient

Answer = TypeVar("Answer")


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--socket-dir` and `--state-dir`; read them with `node_directories`."""
    group = parser.add_argument_group("which node")
    group.add_argument(
        "--socket-dir",
        type=absolute_path,
        default=DEVICE_PLUGIN_DIR,
        metavar="DIR",
        help="directory of the node's kubelet.sock and of the plugins' sockets (default: "
        f"{DEVICE_PLUGIN_DIR})",
    )
    group.add_argument(
        "--state-dir",
        type=absolute_path,
        metavar="DIR",
        help="directory of the node's state and of its control socket (default: DIR.state for "
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


def add_host_root_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--host-root`; `look_below_host_root` applies it."""
    parser.add_argument(
        "--host-root",
        type=absolute_path,
        metavar="DIR",
        help="root of the host's files, for the usual directories (default: /, or /host in a pod "
        "of `kubectl debug node`)",
    )


def look_below_host_root(args: argparse.Namespace) -> None:
    """Replace the usual directories by those of the host whose files are below `--host-root`.

    A directory that the user names is not replaced: the user names it as this process sees it.
    """
    from kubedevices.explain.on_node.host_paths import find_host_root
    from kubedevices.explain.on_node.look_processes import HOST_ROOT, in_root

    if args.socket_dir != DEVICE_PLUGIN_DIR:
        return
    root = args.host_root or find_host_root()
    if root == HOST_ROOT:
        return
    args.socket_dir = in_root(root, DEVICE_PLUGIN_DIR)
    if args.state_dir is None:
        args.state_dir = in_root(root, STATE_DIR)


def proxy_socket(args: argparse.Namespace) -> Path:
    """Return the path of the proxy's control socket. Without a proxy, the socket does not exist."""
    given: Path | None = args.proxy_state_dir
    return (given or state_directory(args)) / PROXY_SOCKET_NAME


def absolute_path(text: str) -> Path:
    """Return a path from the command line as an absolute path."""
    return some_path(text).absolute()


def state_directory(args: argparse.Namespace) -> Path:
    """Return the state directory of the node or the proxy of `args`.

    Raises `CannotAsk` if other users may change it.
    """
    from kubedevices.host.private_directory import check_private

    given: Path | None = args.state_dir
    directory = given or default_state_dir(args.socket_dir)
    check_private(directory)
    return directory


def ask(
    args: argparse.Namespace, question: "Callable[[ControlClient], Awaitable[Answer]]"
) -> Answer:
    """Connect to the running node and return the answer; raises `NoNode` without one."""
    from kubedevices.node.services.control_client import ControlClient

    async def connect_and_ask() -> Answer:
        async with await ControlClient.connect(args.socket_dir, state_directory(args)) as client:
            return await question(client)

    return asyncio.run(connect_and_ask())


def unknown_resource(resource: str, known: Collection[str]) -> NodeError:
    """Return the error for a resource that is not among the `known` resources of the node."""
    return NodeError(
        f"no plugin has registered {resource}; this node has {', '.join(known) or 'nothing'}"
        f"{did_you_mean(resource, known)}"
    )


def ask_to_allocate(
    args: argparse.Namespace,
    question: "Callable[[ControlClient], Awaitable[Answer]]",
    wanted: Iterable[str] = (),
) -> Answer:
    """Ask the node, like `ask`; if a kubelet serves the directory, raise the error of `refuse`."""
    try:
        return ask(args, question)
    except NoNode as error:
        raise refuse(error, wanted) from error


# ---------------------------------------------------------------- a kubelet instead of a node


def ask_kubelet_of(no_node: NoNode) -> tuple[Path, dict[str, Any]]:
    """Ask the kubelet that serves the directory; return its podresources socket and its listing.

    Raises `no_node` if no kubelet serves the directory, another `CannotAsk` if the kubelet does
    not answer.
    """
    from kubedevices.kubelet_api.kubelet_devices import ask_kubelet

    socket = find_kubelet(no_node)
    return socket, asyncio.run(ask_kubelet(socket))


def find_kubelet(no_node: NoNode) -> Path:
    """Return the podresources socket beside the directory; raises `no_node` without a socket."""
    from kubedevices.explain.on_node.host_paths import find_pod_resources

    directory = Path(no_node.socket_dir)
    try:
        directory.stat()
    except PermissionError:
        raise NotPermitted(f"look into {directory}") from no_node
    except OSError:
        raise no_node from None
    socket = find_pod_resources(directory)
    if socket is None:
        raise no_node
    return socket


def refuse(no_node: NoNode, wanted: Iterable[str] = ()) -> CannotAsk:
    """Return the error for a directory of a kubelet: the kubelet allocates, with these resources.

    `wanted` are names of resources: the error says which of them the kubelet does not have.
    """
    _, document = ask_kubelet_of(no_node)
    resources = {each["resource"]: each for each in document["resources"]}
    has = some_of(
        f"{name} ({each['allocatable']} healthy, {each['held']} held)"
        for name, each in resources.items()
    )
    words = [
        (
            f"{no_node.socket_dir} is served by a kubelet, which allocates devices for pods by "
            "their limits"
        ),
        f"it has {has or 'no resource'}",
    ]
    if resources:
        words += [
            f"{name} is not among them{did_you_mean(name, resources)}"
            for name in wanted
            if name not in resources
        ]
    own = "start a node in a directory of its own, `kubedevices node --socket-dir DIR`"
    return CannotAsk("; ".join([*words, f"for containers without Kubernetes {own}"]))


def note(socket: Path) -> str:
    """Return a note for the user of a listing that comes from a kubelet."""
    return f"asked the kubelet at {socket}: it lists only healthy and allocated devices"
