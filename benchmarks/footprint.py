"""What our plugins weigh as processes: memory and start, alone and with each optional part.

The same rows outside a container, with this machine's Python, and in a container of the image, with
Debian's; rows take turns, so that a busy machine hits all of them. The kubelet is a small one. How
the image is built without a registry is in `tests/image_host.py`.
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
from benchmarks.footprint_places import Inside, Outside, Place
from benchmarks.plugin_process import Kubelet
from kubedevices.conformance.process_figures import listening_process
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
    """How often and how patiently each row is measured; `settle` in seconds."""

    rounds: int
    settle: float


FULL, QUICK = Size(7, 1), Size(1, 0)


class Row(NamedTuple):
    """A plugin with one optional part more than `beside`, which is what it is compared with.

    `arguments` may name the directory of the run as {d} and a free port as {port}; /metrics there
    says `page`.
    """

    title: str
    arguments: str
    beside: str = TRANSPORT
    env: Mapping[str, str] = {}
    page: str = "kubedevices_plugin_devices{"


PLAIN = "simulate --socket-dir {d}/p"
EXPOSED = "expose --config {d}/config/expose.yaml --dev-root {d}/dev --socket-dir {d}/p"
LISTEN = " --listen 127.0.0.1:{port}"
ROWS = (
    Row("simulate", PLAIN + " --number-devices 8"),
    Row("simulate, looking instead of watching", PLAIN + " --number-devices 8", "simulate",
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
    """One process: PSS in MB; milliseconds from its start to Register and to the first list."""

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

    async def get_allocatable(self) -> Sequence[DeviceEntry]:
        return ()

    async def list_pods_v1alpha1(self) -> Iterable[PodEntry]:
        return ()


def prepare(directory: Path) -> None:
    """Fill a directory with what the rows name."""
    for name in ("p", "dev", "cdi", "config", "hidden"):
        (directory / name).mkdir()
    for number in range(DEVICES):
        (directory / "dev" / f"widget{number}").touch()
    (directory / "simulate.yaml").write_text(SIMULATE)
    (directory / "config/expose.yaml").write_text(EXPOSE.format(devices="/dev"))
    (directory / "hidden/ctypes.py").write_text("raise ImportError('hidden')\n")


async def sample(place: Place, row: Row, size: Size) -> Sample:
    """Run a plugin once, from nothing to its first list and a look at its pages."""
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
                return await look(kubelet, directory, size, port, row.page)
        finally:
            await pods.stop()
            await kubelet.stop()


async def look(kubelet: Kubelet, directory: Path, size: Size, port: int, page: str) -> Sample:
    """Take the times of a plugin that was just started, and its memory when it has settled."""
    wall = time.time() - asyncio.get_running_loop().time()
    registered = await kubelet.next_registration() + wall
    (path,) = (file for file in (directory / "p").glob("*.sock") if file.name != "kubelet.sock")
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
    """Return the answer to a GET."""
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
    """Run a Python that imports `modules` and waits; its time is that of the imports' end."""
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


class Weights(NamedTuple):
    """Medians of one place: of a Python alone, with imports, and every row."""

    python: Sample
    imports: Sample
    rows: Mapping[str, Sample]


async def weigh(place: Place, size: Size, rows: Sequence[Row] = ROWS) -> Weights:
    """Measure the rows in turn, round after round."""
    pythons: list[Sample] = []
    imports: list[Sample] = []
    samples: dict[str, list[Sample]] = {row.title: [] for row in rows}
    for _ in range(size.rounds):
        pythons.append(await bare(place, ""))
        imports.append(await bare(place, IMPORTS))
        for row in rows:
            samples[row.title].append(await sample(place, row, size))
    found = {title: middle(each) for title, each in samples.items()}
    return Weights(middle(pythons), middle(imports), found)


def print_weights(title: str, weights: Weights, rows: Sequence[Row] = ROWS) -> None:
    """Print each row beside the row it adds something to."""
    known = {PYTHON: weights.python, TRANSPORT: weights.imports, **weights.rows}
    lines = [
        [PYTHON, "", f"{weights.python.pss:.1f}", "", f"{weights.python.register:.0f}", "", ""]
    ]
    for name, beside in [(TRANSPORT, PYTHON), *((row.title, row.beside) for row in rows)]:
        here, other = known[name], known.get(beside, weights.imports)
        pss = [f"{here.pss:.1f}", f"{here.pss - other.pss:+.1f}"]
        times = [f"{here.register:.0f}", f"{here.register - other.register:+.0f}"]
        listed = f"{here.first_list:.0f}" if here.first_list else ""
        lines.append([name, beside, *pss, *times, listed])
    header = ["", "beside", "PSS", "difference", "to Register", "difference", "to the first list"]
    measure.table(
        f"{title}: memory in MB, milliseconds from the start of the process", header, lines
    )


def middle(samples: Sequence[Sample]) -> Sample:
    """Return the median of each figure."""
    columns = zip(*((each.pss, each.register, each.first_list) for each in samples), strict=True)
    return Sample(*map(measure.median, columns))


def print_sizes(host: ImageHost) -> None:
    """Print what the image is made of."""
    measure.table(
        "The image: MB of files",
        ["base", "Debian's Python, compiled", "we and what we need", "whole", "target for us"],
        [[*(f"{value:.1f}" for value in image_sizes(host)), f"≤ {LAYER_LIMIT}"]],
    )


async def main(*, quick: bool = False) -> None:
    """Print the tables; where no image can be built, those of the process alone."""
    size = QUICK if quick else FULL
    print_weights("Outside a container", await weigh(Outside(), size))
    if quick:
        print("\nThe image is not built for a quick look.")
        return
    try:
        with image_host() as host:
            build_image(host)
            print_weights("In a container", await weigh(Inside(host), size))
            print_sizes(host)
    except Skipped as reason:
        print(f"\nNo image could be built, so there is no container to measure: {reason}")
