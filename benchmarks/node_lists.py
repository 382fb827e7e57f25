"""Other times that grow with the size of a node: device lists, podresources, start.

Each number is beside the part that no node can avoid: to receive the same list, to transport the
same bytes, to read the same rows of the ledger.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import measure
from benchmarks.measure import milliseconds
from benchmarks.node_rig import DEADLINE, DOMAIN, Node, node
from kubedevices.kubelet_api.pod_resources import LIST, LIST_V1ALPHA1
from kubedevices.node.ledger.ledger import LEDGER_NAME
from kubedevices.node.services.pod_resources import PodResourcesServer
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer, UnaryMethod

WIDGET = "widget"
CONTAINERS = 4
_LIST_PAUSE = 0.6
"""Seconds, longer than the longest pause of the node after a list (half a second). The node pauses
so that no plugin can flood the node with lists."""
_CALL_PAUSE = 0.015
"""Seconds: the podresources service accepts a hundred calls per second."""


class Size(NamedTuple):
    """How much is measured. `devices`: pairs of the length of a list and the number of updates."""

    devices: Sequence[tuple[int, int]]
    listed_pods: int
    calls: int
    kept_pods: int
    starts: int
    pause: float


FULL = Size(
    ((8, 40), (100, 40), (1_000, 40), (10_000, 20), (100_000, 7)), 250, 60, 1_000, 15, _LIST_PAUSE
)
QUICK = Size(((8, 2), (100, 2)), 3, 2, 5, 1, 0)

# ---------------------------------------------------------------- device lists


async def list_update(devices: int, updates: int, pause: float) -> list[str]:
    """Return the row for lists of `devices` devices, of which one changes its health.

    In turns with the node, a client receives the lists of a second plugin process and does nothing
    with them.
    """
    to_capacity, to_client = [], []
    node_cpu = 0.0
    resource = f"{DOMAIN}/{WIDGET}"
    async with node({WIDGET: devices}) as running, node({WIDGET: devices}) as other:
        await other.manager.stop()
        async with other.client(WIDGET) as client:
            lists = client.list_messages()
            async with contextlib.aclosing(lists):
                await anext(lists)
                plugin_cpu = running.plugin_cpu()
                for number in range(updates):
                    other.flip()
                    to_client.append(await milliseconds(anext(lists)))
                    changed = running.manager.wait_for(
                        resource, allocatable=devices - 1 + number % 2, timeout=DEADLINE
                    )
                    cpu = time.process_time()
                    running.flip()
                    to_capacity.append(await milliseconds(changed))
                    node_cpu += time.process_time() - cpu
                    await asyncio.sleep(pause)
                plugin_cpu = running.plugin_cpu() - plugin_cpu
    node_p50, client_p50 = measure.median(to_capacity), measure.median(to_client)
    return [
        f"{devices:,}",
        _p50_and_maximum(to_client),
        _p50_and_maximum(to_capacity),
        f"{node_p50 / client_p50:.2f}",
        f"{node_cpu * 1e3 / updates:.1f}",
        f"{plugin_cpu / updates:.1f}",
    ]


def _p50_and_maximum(times: Sequence[float]) -> str:
    return f"{measure.median(times):.2f} / {max(times):.2f}"


# ---------------------------------------------------------------- podresources


async def pod_resources(size: Size) -> None:
    """Print the time of the first List, of a List without a change, and after one new pod."""
    pods, calls = size.listed_pods, size.calls
    async with node({WIDGET: (pods + 1) * CONTAINERS}) as running:
        await running.fill(pods, *[{WIDGET: 1}] * CONTAINERS)
        server = PodResourcesServer(running.manager, running.state / "kubelet.sock")
        await server.start()
        async with await GrpcChannel.dial(server.socket) as channel:
            cold = await milliseconds(channel.unary(LIST, b"", timeout=DEADLINE))
            same, changed, old = [], [], []
            for _ in range(calls):
                same.append(await _call(channel, LIST))
                pod = running.next_pod(*[{WIDGET: 1}] * CONTAINERS)
                await running.manager.allocate(pod)
                changed.append(await _call(channel, LIST))
                await running.manager.release(pod.uid)
                old.append(await _call(channel, LIST_V1ALPHA1))
                await _call(channel, LIST)  # so that nothing has changed before the next List
            answer = await channel.unary(LIST, b"", timeout=DEADLINE)
        await server.stop()
        bare = await _bare_calls(running, answer, calls)
    measure.table(
        f"podresources, {pods} pods × {CONTAINERS} containers, {len(answer):,} bytes: milliseconds",
        (
            "only the bytes",
            "v1.List without a change",
            "v1.List after one new pod",
            "first v1.List",
            "v1alpha1.List",
            "without a change × bytes",
        ),
        [
            [
                *(
                    f"{measure.median(each):.2f} / {max(each):.2f}"
                    for each in (bare, same, changed)
                ),
                f"{cold:.2f}",
                f"{measure.median(old):.2f} / {max(old):.2f}",
                f"{measure.median(same) / measure.median(bare):.2f}",
            ]
        ],
    )


async def _call(channel: GrpcChannel, method: str) -> float:
    await asyncio.sleep(_CALL_PAUSE)
    return await milliseconds(channel.unary(method, b"", timeout=DEADLINE))


async def _bare_calls(running: Node, answer: bytes, calls: int) -> list[float]:
    """Return the times of calls to a server that only sends `answer`."""

    async def handler(_: bytes) -> bytes:
        return answer

    server = GrpcServer({LIST: UnaryMethod(handler)}, name="bare")
    path = running.state / "bare.sock"
    await server.start(path)
    async with await GrpcChannel.dial(path) as channel:
        times = [await _call(channel, LIST) for _ in range(calls)]
    await server.stop()
    return times


# ---------------------------------------------------------------- start


async def start_up(size: Size) -> None:
    """Print how long a node takes to start with many pods in its ledger, and without pods."""
    empty, full, rows = [], [], []
    pods = size.kept_pods
    async with node({WIDGET: 1}) as fresh, node({WIDGET: pods}) as busy:
        await busy.fill(pods, {WIDGET: 1})
        for _ in range(size.starts):
            await fresh.manager.stop()
            await busy.manager.stop()
            rows.append(_read_rows(busy))
            empty.append(await fresh.resume())
            full.append(await busy.resume())
            assert len(busy.manager.pods()) == pods
        ledger = (busy.state / LEDGER_NAME).stat().st_size
    measure.table(
        f"Start with a ledger of {pods:,} pods ({ledger / 1e6:.1f} MB): milliseconds",
        (
            "plain SQLite reads the rows",
            "start without pods",
            f"start with {pods:,} pods",
            "× reading the rows",
        ),
        [
            [
                *map(_p50_and_maximum, (rows, empty, full)),
                f"{measure.median(full) / measure.median(rows):.1f}",
            ]
        ],
    )


def _read_rows(running: Node) -> float:
    began = time.perf_counter()
    with contextlib.closing(sqlite3.connect(running.state / LEDGER_NAME)) as connection:
        for table in ("pod", "holding", "resource"):
            connection.execute(f"SELECT * FROM {table}").fetchall()
    return (time.perf_counter() - began) * 1e3


async def main(*, quick: bool = False) -> None:
    """Print the tables: p50 / maximum."""
    size = QUICK if quick else FULL
    rows = [await list_update(*each, size.pause) for each in size.devices]
    measure.table(
        "The health of one device changes: milliseconds from the plugin's scanner, p50 / maximum",
        (
            "devices",
            "to a client that only receives the list",
            "to the node's capacity",
            "ratio",
            "CPU of the node",
            "CPU of the plugin",
        ),
        rows,
    )
    await pod_resources(size)
    await start_up(size)
