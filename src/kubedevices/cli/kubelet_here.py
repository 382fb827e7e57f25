"""What the verbs around a node say where a kubelet serves the directory instead.

For devices, allocate, release and with: on a kubelet's node nobody has to start a node of ours.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.errors import CannotAsk
from kubedevices.words import did_you_mean, some_of

if TYPE_CHECKING:
    from kubedevices.errors import NoNode

Document = dict[str, Any]


def ask_kubelet_of(no_node: "NoNode") -> tuple[Path, Document]:
    """Ask the kubelet that serves the directory; return its podresources socket and its listing.

    Raises `no_node` itself where there is none, another `CannotAsk` where it does not answer.
    """
    from kubedevices.explain.places import find_pod_resources
    from kubedevices.wire.kubelet_devices import ask_kubelet

    directory = Path(no_node.socket_dir)
    try:
        directory.stat()
    except PermissionError:
        denied = f"no permission to look into {directory}: ask again as root"
        raise CannotAsk(denied) from no_node
    except OSError:
        raise no_node from None
    socket = find_pod_resources(directory)
    if socket is None:
        raise no_node
    return socket, asyncio.run(ask_kubelet(socket))


def refuse(no_node: "NoNode", wanted: Iterable[str] = ()) -> CannotAsk:
    """Return why nothing can be allocated here, with what there is; `wanted` are resource names."""
    _, document = ask_kubelet_of(no_node)
    resources = {each["resource"]: each for each in document["resources"]}
    has = some_of(
        f"{name} ({each['allocatable']} healthy, {each['held']} held)"
        for name, each in resources.items()
    )
    words = [
        f"{no_node.socket_dir} is served by a kubelet, which gives devices to pods by their limits",
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
    return f"asked the kubelet at {socket}: it tells healthy devices and held ones only"
