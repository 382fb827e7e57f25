"""Admissions of one plugin's pods while another plugin floods the node with long lists.

Each list of the flood changes the health of all its devices. Admissions with and without the flood
are measured in turns in the same run: SIGSTOP stops the flooding process, SIGCONT continues it.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import milliseconds
from benchmarks.node_rig import DEADLINE, DOMAIN, ROOT, Node, node
from kubedevices.kubelet_api.clients import RegistrationClient
from kubedevices.kubelet_api.convert import device_list_to_wire, reported_to_wire
from kubedevices.kubelet_api.services import GET_DEVICE_PLUGIN_OPTIONS, LIST_AND_WATCH
from kubedevices.values.allocation import RegisterRequest
from kubedevices.values.device import ReportedDevice
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer, StreamMethod, UnaryMethod

WIDGET, FLOOD = "widget", f"{DOMAIN}/flood"
FULL = (100_000, 5, 60, 3.0)
"""Devices of a list, rounds, admissions per round, seconds until the last list has been read."""

QUICK = (100, 1, 3, 0.0)


async def main(*, quick: bool = False) -> None:
    """Print the table."""
    devices, rounds, count, settle = QUICK if quick else FULL
    quiet, beside = [], []
    async with node({WIDGET: 8}) as running, _flooding(running, devices) as flood:
        for _ in range(rounds):
            os.kill(flood, signal.SIGSTOP)
            await asyncio.sleep(settle)
            quiet += await _admissions(running, count)
            os.kill(flood, signal.SIGCONT)
            beside += await _admissions(running, count)
    parts = [(measure.median(each), measure.percentile(each, 99)) for each in (quiet, beside)]
    measure.table(
        f"Admission beside a flood of lists of {devices:,} devices: milliseconds, p50 / p99",
        ("without the flood", "beside the flood", "p50 beside / without", "p99 beside / without"),
        [
            [
                *(f"{p50:.2f} / {p99:.2f}" for p50, p99 in parts),
                f"{parts[1][0] / parts[0][0]:.2f}",
                f"{parts[1][1] / parts[0][1]:.1f}",
            ]
        ],
    )


async def _admissions(running: Node, count: int) -> list[float]:
    times = []
    for _ in range(count):
        pod = running.next_pod({WIDGET: 1})
        times.append(await milliseconds(running.manager.allocate(pod)))
        await running.manager.release(pod.uid)
    return times


@contextlib.asynccontextmanager
async def _flooding(running: Node, devices: int) -> AsyncIterator[int]:
    """Run the flooding plugin until the end of the context; yield its process ID."""
    command = (sys.executable, "-m", __name__, str(running.sockets), str(devices))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    try:
        await running.manager.wait_for(FLOOD, capacity=devices, timeout=DEADLINE)
        yield process.pid
    finally:
        process.kill()
        await process.wait()


async def _flood(directory: Path, devices: int) -> None:
    lists = [
        device_list_to_wire(
            reported_to_wire(ReportedDevice(f"flood-{number}", health)) for number in range(devices)
        )
        for health in ("Healthy", "Unhealthy")
    ]

    async def options(_: bytes) -> bytes:
        return b""

    async def flood(_: bytes) -> AsyncIterator[bytes]:
        while True:
            for each in lists:
                yield each

    methods: dict[str, UnaryMethod | StreamMethod] = {
        GET_DEVICE_PLUGIN_OPTIONS: UnaryMethod(options),
        LIST_AND_WATCH: StreamMethod(flood),
    }
    await GrpcServer(methods, name="flood").start(directory / "flood.sock")
    async with await GrpcChannel.dial(directory / "kubelet.sock") as channel:
        request = RegisterRequest("v1beta1", "flood.sock", FLOOD)
        await RegistrationClient(channel).register(request, timeout=DEADLINE)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_flood(Path(sys.argv[1]), int(sys.argv[2])))
