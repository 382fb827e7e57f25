"""Memory and start of our plugins as processes, alone and with each optional part.

The rows are measured twice: outside a container with the Python of this machine, and in a container
of the image with Debian's Python. The rows are measured in turns, so other work on the machine
slows all of them down equally. The kubelet is that of `plugin_process`. `tests/image_host.py`
builds the image without a registry.
"""

import asyncio
import contextlib
import socket
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from _pytest.outcomes import Skipped

from benchmarks import measure
from benchmarks.footprint_image import LAYER_LIMIT, image_sizes
from benchmarks.footprint_places import InContainer, OnHost, Place
from benchmarks.plugin_process import Kubelet, socket_of_plugin
from kubedevices.check.process_figures import listening_process
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.kubelet_api.pod_resources import (
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    pod_resources_methods,
    pod_to_wire,
)
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.image_host import ImageHost, build_image, image_host
from tests.waiting import until

DEADLINE = 60
DEVICES = 8
PYTHON, TRANSPORT = "bare Python", "bare imports"
IMPORTS = "asyncio, logging, argparse, ctypes"
BARE = """\
import {modules}
open({path!r} + ".at", "w").write(str(time.time_ns()))
listener = _socket.socket(_socket.AF_UNIX)
listener.bind({path!r})
listener.listen(1)
while True:
    listener._accept()
"""
SIMULATE = "numberDevicesOnNode: 8\n"
EXPOSE = """\
version: 1
namespace: devices.example.com
resources:
- name: widget
  match: [{{path: {devices}/*}}]
"""


class Size(NamedTuple):
    """How often each row is measured, and the seconds before its memory is read (`settle`)."""

    rounds: int
    settle: float


FULL, QUICK = Size(7, 1), Size(1, 0)


class Row(NamedTuple):
    """A plugin with one optional part more than the row `compared_with`.

    In `arguments` and `env`, {d} is the directory of the run and {port} is a free port. If
    `arguments` has {port}, the page /metrics must contain `page`.
    """

    title: str
    arguments: str
    compared_with: str = TRANSPORT
    env: Mapping[str, str] = {}
    page: str = "kubedevices_plugin_devices{"


PLAIN = "simulate --socket-dir {d}/p"
EXPOSED = "expose --config {d}/config/expose.yaml --dev-root {d}/dev --socket-dir {d}/p"
LISTEN = " --listen 127.0.0.1:{port}"
ROWS = (
    Row("simulate", PLAIN + " --number-devices 8"),
    # Without ctypes the plugin cannot use inotify, and polls.
    Row("simulate, polling without inotify", PLAIN + " --number-devices 8", "simulate",
        {"PYTHONPATH": "{d}/hidden"}),
    Row("simulate, settings from YAML", PLAIN + " --config {d}/simulate.yaml", "simulate"),
    Row("simulate, --listen", PLAIN + " --number-devices 8" + LISTEN, "simulate"),
    Row("simulate, --listen, --pod-resources",
        PLAIN + " --number-devices 8 --pod-resources {d}/pods.sock" + LISTEN, "simulate, --listen",
        page="kubedevices_plugin_device_allocated{"),
    Row("expose", EXPOSED, "simulate, settings from YAML"),
    Row("expose, --inject cdi", EXPOSED + " --inject cdi --cdi-dir {d}/cdi", "expose"),
    Row("expose, --listen", EXPOSED + LISTEN, "expose"),
)  # fmt: skip


@dataclass
class Sample:
    """One process: PSS in MB; milliseconds from the start to Register and to the first list."""

    pss: float
    register: float = 0
    first_list: float = 0


class Pods:
    """A kubelet's podresources service: a few pods, one of which holds a device."""

    async def list_pods(self) -> Iterable[bytes]:
        held = DeviceEntry("example.com/simple-device", ("simple-device-0",))
        pods = [PodEntry(f"pod-{n}", "default", (ContainerEntry("main", (held,)),)) for n in (0, 1)]
        return map(pod_to_wire, pods)

    async def get_pod(self, name: str, namespace: str) -> bytes:
        return pod_to_wire(PodEntry(name, namespace))

    async def get_allocatable(self) -> bytes:
        return b""

    async def list_pods_v1alpha1(self) -> Iterable[PodEntry]:
        return ()


def prepare(directory: Path) -> None:
    """Write the files and directories that the arguments of the rows name."""
    for name in ("p", "dev", "cdi", "config", "hidden"):
        (directory / name).mkdir()
    for number in range(DEVICES):
        (directory / "dev" / f"widget{number}").touch()
    (directory / "simulate.yaml").write_text(SIMULATE)
    (directory / "config/expose.yaml").write_text(EXPOSE.format(devices="/dev"))
    (directory / "hidden/ctypes.py").write_text("raise ImportError('hidden')\n")


async def sample(place: Place, row: Row, size: Size) -> Sample:
    """Run a plugin once, until it has sent its first list and answered a GET of /metrics."""
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as name:
        directory = Path(name)
        prepare(directory)
        kubelet = Kubelet(directory / "p")
        await kubelet.start()
        pods = GrpcServer(pod_resources_methods(Pods()), name="pods")
        await pods.start(directory / "pods.sock")
        port = free_port() if "{port}" in row.arguments else 0
        fill = {"d": name, "port": str(port)}
        words = [*place.plugin, *(word.format(**fill) for word in row.arguments.split())]
        env = {key: value.format(**fill) for key, value in row.env.items()}
        try:
            async with place.start(words, directory, env):
                return await measure_plugin(kubelet, directory, size, port, row.page)
        finally:
            await pods.stop()
            await kubelet.stop()


async def measure_plugin(
    kubelet: Kubelet, directory: Path, size: Size, port: int, page: str
) -> Sample:
    """Measure a plugin that was just started: its times, and its memory after `size.settle`."""
    # `began` is wall time, the kubelet records times of the event loop's clock.
    offset = time.time() - asyncio.get_running_loop().time()
    registered = await kubelet.next_registration() + offset
    path = socket_of_plugin(directory / "p")
    async with await GrpcChannel.dial(path) as channel:
        stream = DevicePluginClient(channel).list_and_watch()
        async with contextlib.aclosing(stream), asyncio.timeout(DEADLINE):
            devices = await anext(stream)
            listed = time.time()
            assert len(devices) == DEVICES, devices
            if port:
                assert page.encode() in await get_page(port, "/metrics")
            await asyncio.sleep(size.settle)
            pss = measure.memory(listening_process(path))["pss"]
    began = int((directory / "began").read_text()) / 1e9
    return Sample(pss, (registered - began) * 1e3, (listed - began) * 1e3)


async def get_page(port: int, path: str) -> bytes:
    """Return the whole HTTP response to a GET, headers included."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def bare(place: Place, modules: str) -> Sample:
    """Run a Python that imports `modules` and waits; its time ends after the imports."""
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as name:
        directory = Path(name)
        (directory / "p").mkdir()
        path = directory / "bare.sock"
        program = BARE.format(modules=f"_socket, time, {modules}".rstrip(", "), path=str(path))
        async with place.start([*place.python, "-c", program], directory, {}):
            await until(lambda: listening_process(path), DEADLINE)
            pss = measure.memory(listening_process(path))["pss"]
            began, ended = ((directory / name).read_text() for name in ("began", "bare.sock.at"))
            return Sample(pss, (int(ended) - int(began)) / 1e6)


class Footprints(NamedTuple):
    """Medians in one place: of a Python without imports, of a Python with imports, of each row."""

    python: Sample
    imports: Sample
    rows: Mapping[str, Sample]


async def measure_rows(place: Place, size: Size, rows: Sequence[Row] = ROWS) -> Footprints:
    """Measure all rows in each round; return the medians of the rounds."""
    pythons: list[Sample] = []
    imports: list[Sample] = []
    samples: dict[str, list[Sample]] = {row.title: [] for row in rows}
    for _ in range(size.rounds):
        pythons.append(await bare(place, ""))
        imports.append(await bare(place, IMPORTS))
        for row in rows:
            samples[row.title].append(await sample(place, row, size))
    found = {title: medians(each) for title, each in samples.items()}
    return Footprints(medians(pythons), medians(imports), found)


def print_footprints(title: str, found: Footprints, rows: Sequence[Row] = ROWS) -> None:
    """Print each row with its difference to the row that it is compared with."""
    known = {PYTHON: found.python, TRANSPORT: found.imports, **found.rows}
    lines = [[PYTHON, "", f"{found.python.pss:.1f}", "", f"{found.python.register:.0f}", "", ""]]
    compared = [(TRANSPORT, PYTHON), *((row.title, row.compared_with) for row in rows)]
    for name, compared_with in compared:
        here, other = known[name], known.get(compared_with, found.imports)
        pss = [f"{here.pss:.1f}", f"{here.pss - other.pss:+.1f}"]
        times = [f"{here.register:.0f}", f"{here.register - other.register:+.0f}"]
        listed = f"{here.first_list:.0f}" if here.first_list else ""
        lines.append([name, compared_with, *pss, *times, listed])
    header = ["", "compared with", "PSS", "difference", "to Register", "difference"]
    header.append("to the first list")
    measure.table(
        f"{title}: memory in MB, milliseconds from the start of the process", header, lines
    )


def medians(samples: Sequence[Sample]) -> Sample:
    """Return a sample that has the median of each number."""
    columns = zip(*((each.pss, each.register, each.first_list) for each in samples), strict=True)
    return Sample(*map(measure.median, columns))


def print_sizes(host: ImageHost) -> None:
    """Print the sizes of the parts of the image."""
    header = ["base", "Debian's Python, compiled", "kubedevices and its dependencies", "total"]
    measure.table(
        "The image: MB of files",
        [*header, "target for kubedevices"],
        [[*(f"{value:.1f}" for value in image_sizes(host)), f"≤ {LAYER_LIMIT}"]],
    )


async def main(*, quick: bool = False) -> None:
    """Print the tables; if no image can be built, only the table outside a container."""
    size = QUICK if quick else FULL
    print_footprints("Outside a container", await measure_rows(OnHost(), size))
    if quick:
        print("\nWith --quick no image is built.")
        return
    try:
        with image_host() as host:
            build_image(host)
            print_footprints("In a container", await measure_rows(InContainer(host), size))
            print_sizes(host)
    except Skipped as reason:
        print(f"\nNo image could be built, so no container was measured: {reason}")
