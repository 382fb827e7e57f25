"""Sets up a `DriverNode`: directories, supervisor, the driver's private view, API server."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from kubedevices.check.directories import RunDirectories
from kubedevices.check.drivers.claims import CLASS
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.node_files import SERVICE_ACCOUNT, NodeFiles
from kubedevices.check.drivers.target import NODE_NAME, TOKEN, DriverTarget
from kubedevices.check.drivers.timing import DriverTiming
from kubedevices.check.program_copy import workplace
from kubedevices.check.shared_state import SharedState
from kubedevices.host.cdi_specs import GENERATED_DIRECTORY, STATIC_DIRECTORY
from kubedevices.testing.api_server.certificate import CA
from kubedevices.testing.kubelet.mounts import Bind
from kubedevices.testing.kubelet.no_pods import NoPods

_KUBELET_DIR = Path("/var/lib/kubelet")
_BOOT_ID, _OTHER_NUMBERS = "/proc/sys/kernel/random/boot_id", "/dev/zero"


@asynccontextmanager
async def open_node(
    target: DriverTarget,
    timing: DriverTiming,
    shared: SharedState,
    first: DriverNode | None = None,
) -> AsyncIterator[DriverNode]:
    """Prepare directories, API server and supervisor; afterwards end all processes.

    The podresources socket is that of the `first` node of a run. A driver may wait until a kubelet
    that has just started knows its pods, and tells the age of a kubelet by this socket: so it waits
    once in a run. Raises `NoPrivateView` if the driver needs one and the host does not allow it.
    """
    directories = RunDirectories.choose()
    files = NodeFiles(directories)
    account = {"token": TOKEN, "ca.crt": CA, "namespace": "default"}
    private = target.needs_private_view or os.geteuid() == 0

    def create() -> list[Bind]:
        directories.create()
        files.create(None if first is None else first.files.pod_resources.parent)
        files.write((files.account / name, text.encode()) for name, text in account.items())
        return _binds(files) if private else []

    async with workplace(directories, create, needs_view=True) as place:
        node = DriverNode(target, timing, shared, place, files)
        api = node.cluster.api
        await api.start()
        api.put("nodes", {"metadata": {"name": NODE_NAME}})
        api.put("deviceclasses", {"metadata": {"name": CLASS}, "spec": {}})
        files.write([(files.kubeconfig, api.kubeconfig(TOKEN).encode())])
        socket = NoPods(files.pod_resources, lambda: ())
        if first is None:
            await socket.start()
        try:
            yield node
        finally:
            await node.stop_kubelet()
            node.keep_logs()
            shared.rights |= node.cluster.used_rights()
            shared.requests += node.cluster.asked()
            await socket.stop()
            await api.stop()


async def on_copies(
    node: DriverNode, parts: Sequence[Callable[[DriverNode], Awaitable[object]]]
) -> None:
    """Run the parts of a rule at the same time, each on a copy of the driver that has just started.

    If the user wants no copies at the same time, the parts run one after another on `node`. Raises
    what the first part raises that fails.
    """
    if node.target.at_once == 1:
        for part in parts:
            node.is_suspect = True
            await node.ready()
            await part(node)
        return

    async def one(part: Callable[[DriverNode], Awaitable[object]]) -> None:
        async with open_node(node.target, node.timing, node.shared, node) as copy:
            copy.checking = node.checking
            await copy.ready()
            await part(copy)

    ends = await asyncio.gather(*map(one, parts), return_exceptions=True)
    if failed := [each for each in ends if each is not None]:
        raise failed[0]


@asynccontextmanager
async def another_boot(node: DriverNode, devices: Sequence[str]) -> AsyncIterator[None]:
    """Show another boot ID, and `devices` with other numbers, if there is a private view."""
    boot = node.directories.root / "boot-id"
    node.files.write([(boot, f"{uuid4()}\n".encode())])
    binds = [(str(boot), _BOOT_ID), *((_OTHER_NUMBERS, each) for each in devices)]
    binds = binds if node.path_map.binds else []
    await node.supervisor.ask("cover", binds=binds)
    try:
        yield
    finally:
        await node.supervisor.ask("unmount", paths=[inside for _, inside in binds])


def _binds(files: NodeFiles) -> list[Bind]:
    """Return the binds that show the files of the node at the usual paths."""
    return [
        Bind(str(files.kubelet), str(_KUBELET_DIR)),
        Bind(str(files.cdi), str(GENERATED_DIRECTORY)),
        Bind(str(files.etc_cdi), str(STATIC_DIRECTORY)),
        Bind(str(files.account), str(SERVICE_ACCOUNT)),
    ]
