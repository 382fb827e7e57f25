"""What the verbs around a node do where a kubelet serves the directory instead.

`devices` and `wait` ask the kubelet; `allocate`, `release` and `with` say that it allocates itself.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.errors import CannotAsk, NotPermitted
from kubedevices.words import did_you_mean, some_of

if TYPE_CHECKING:
    from kubedevices.errors import NoNode


def ask_kubelet_of(no_node: "NoNode") -> tuple[Path, dict[str, Any]]:
    """Ask the kubelet that serves the directory; return its podresources socket and its listing.

    Raises `no_node` itself where there is none, another `CannotAsk` where it does not answer.
    """
    from kubedevices.kubelet_api.kubelet_devices import ask_kubelet

    socket = find_kubelet(no_node)
    return socket, asyncio.run(ask_kubelet(socket))


def find_kubelet(no_node: "NoNode") -> Path:
    """Return the podresources socket beside the directory; raises `no_node` where there is none."""
    from kubedevices.explain.places import find_pod_resources

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


def refuse(no_node: "NoNode", wanted: Iterable[str] = ()) -> CannotAsk:
    """Return why nothing can be allocated here, with what there is; `wanted` are resource names."""
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
    """Return what to know about a listing that a kubelet gave."""
    return f"asked the kubelet at {socket}: it lists only healthy and allocated devices"
