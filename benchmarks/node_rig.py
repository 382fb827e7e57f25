"""A device manager in this process, its plugin in another process, and the two baselines.

All calls go over real sockets, and the ledger is on a real disk: directories are below `/tmp`, or
below the directory in the environment variable TMPDIR. The baselines are the two parts that every
admission needs: a call to the plugin, and one durable transaction.
"""

import asyncio
import contextlib
import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import milliseconds
from kubedevices.errors import NotInTime
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.node.topology.options import check_settings
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.wire.unix_grpc import GrpcChannel

DOMAIN = "bench.example.com"
DEADLINE = 120
ROOT = Path(__file__).parents[1]
CHECKPOINT_PAUSE = 1.2
"""Seconds. The node writes its checkpoint file at most once a second, so a node that has been idle
for this time has nothing left to write."""


class Node:
    """One device manager, with one plugin process that serves several resources."""

    def __init__(self, directory: Path, numa_nodes: int = 0) -> None:
        self.sockets, self.state = directory / "plugins", directory / "state"
        self._numa_nodes = numa_nodes
        self.manager = self._make_manager()
        self._plugin: asyncio.subprocess.Process | None = None
        self._pods = 0

    def _make_manager(self) -> DeviceManager:
        policy = "best-effort" if self._numa_nodes else "none"
        topology = check_settings(policy, numa_nodes=range(self._numa_nodes))
        return DeviceManager(
            self.sockets, state_dir=self.state, settings=NodeSettings(topology=topology)
        )

    async def start(self, counts: Mapping[str, int]) -> None:
        """Start manager and plugin, and wait until the manager knows every device."""
        await self.manager.start()
        log = self.state / "plugin.log"
        with log.open("wb") as stream:
            self._plugin = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.node_plugin",
                str(self.sockets),
                str(self._numa_nodes),
                *(f"{name}={count}" for name, count in counts.items()),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stderr=stream,
            )
        for name, count in counts.items():
            try:
                await self.manager.wait_for(f"{DOMAIN}/{name}", allocatable=count, timeout=DEADLINE)
            except NotInTime as error:
                raise RuntimeError(log.read_text()) from error

    async def stop(self) -> None:
        if self._plugin is not None and self._plugin.returncode is None:
            self._plugin.kill()
            await self._plugin.wait()
        await self.manager.stop()

    async def resume(self) -> float:
        """Start the stopped manager again with its old state; return the milliseconds."""
        self.manager = self._make_manager()
        return await milliseconds(self.manager.start())

    def flip(self) -> None:
        """Make the plugin change the health of one device of the first type."""
        assert self._plugin
        assert self._plugin.stdin
        self._plugin.stdin.write(b"\n")

    def plugin_cpu(self) -> float:
        """Return the milliseconds of CPU that the plugin has used so far."""
        assert self._plugin
        return measure.cpu(self._plugin.pid) * 1e3

    def next_pod(self, *limits: Mapping[str, int]) -> Pod:
        """Return a new pod, with one container per mapping of device types to numbers."""
        self._pods += 1
        containers = tuple(
            Container(f"c{place}", {f"{DOMAIN}/{name}": count for name, count in each.items()})
            for place, each in enumerate(limits)
        )
        return Pod(f"pod-{self._pods}", uid=f"{self._pods:032x}", containers=containers)

    async def fill(self, pods: int, *limits: Mapping[str, int]) -> None:
        """Admit pods, and do not release them."""
        for _ in range(pods):
            await self.manager.allocate(self.next_pod(*limits))

    @contextlib.asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[DevicePluginClient]:
        """Open a second connection to the plugin, beside the connection of the manager."""
        instance = self.manager.inventory.endpoint(f"{DOMAIN}/{name}")
        assert instance
        async with await GrpcChannel.dial(Path(instance.socket)) as found:
            yield DevicePluginClient(found)

    def commit_baseline(self, pod: Pod) -> "PlainCommit":
        """Return a transaction as large as the ledger's transaction for the admitted `pod`."""
        parts = [pod.uid, pod.namespace, pod.name, str([*pod])]
        size = len("".join(parts))
        for holding in self.manager.pod_devices.holdings(pod.uid):
            size += len(json.dumps(holding.held.devices_per_numa))
            size += len(CONTAINER_RESPONSE.to_wire(holding.held.response))
        return PlainCommit(self.state / "baseline.db", size)


@contextlib.asynccontextmanager
async def node(counts: Mapping[str, int], numa_nodes: int = 0) -> AsyncIterator[Node]:
    """Run a node with `counts` devices per type in a temporary directory."""
    directory = Path(tempfile.mkdtemp(prefix="kd-"))
    created = Node(directory, numa_nodes)
    try:
        await created.start(counts)
        yield created
    finally:
        await created.stop()
        shutil.rmtree(directory, ignore_errors=True)


def allocate_request(name: str, devices: int) -> AllocateRequest:
    """Return the Allocate request for one container with `devices` devices."""
    ids = tuple(f"{name}-{number}" for number in range(devices))
    return AllocateRequest((ContainerAllocateRequest(ids),))


class PlainCommit:
    """The least durable work: one row of `size` bytes in SQLite, write-ahead log, full sync."""

    def __init__(self, path: Path, size: int) -> None:
        self._row = b"x" * size
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS pod (number INTEGER PRIMARY KEY, row BLOB)"
        )

    def commit(self) -> float:
        """Insert one row in a transaction; return the milliseconds."""
        began = time.perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO pod (row) VALUES (?)", (self._row,))
        self._connection.execute("COMMIT")
        return (time.perf_counter() - began) * 1e3

    def close(self) -> None:
        self._connection.close()
