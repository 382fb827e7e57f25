"""A bench as a whole node for `explain` and `devices`, and a driver of another vendor on it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.cli import main
from kubedevices.kubelet_api.dra import (
    PLUGIN_SERVICES,
    PLUGIN_TYPE,
    ClaimAnswer,
    DeviceHealth,
    dra_methods,
)
from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.testing.workbench import Bench
from kubedevices.testing.workbench.dra_node import NODE_NAME
from kubedevices.values.allocation import ClaimDevice, ClaimReference, PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer

DOMAIN = "example.com"
WIDGET = f"{DOMAIN}/widget"
FOREIGN = "gpu.vendor.org"
"""The driver of another vendor."""


class Widgets(kd.PolledScanner):
    interval = 3600

    def __init__(self, count: int = 2, kind: str = "widget") -> None:
        self.devices = [kd.Device(f"w-{n}", env={"W": str(n)}) for n in range(count)]
        self.kind = kind

    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree({self.kind: self.devices})


@dataclass
class Shown:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str

    def lines(self, result: str) -> list[str]:
        """The lines with this result."""
        return [line for line in self.out.splitlines() if line.startswith(result)]

    @property
    def first_problem(self) -> str:
        """The first line about a problem, empty if there is none."""
        return next(iter(self.lines("problem")), "")


@dataclass
class NodeHost:
    """The bench and the command line."""

    bench: Bench
    capsys: pytest.CaptureFixture[str]
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    @property
    def root(self) -> Path:
        """The root directory of the kubelet."""
        return self.bench.socket_dir.parent

    @property
    def cdi_dir(self) -> Path:
        return self.bench.cdi_dir

    @property
    def registry(self) -> Path:
        return self.root / "plugins_registry"

    async def on_bench(self, call: Any, *words: Any, **options: Any) -> Any:
        """Do a call of the bench, which blocks, beside this loop."""
        return await asyncio.to_thread(call, *words, **options)

    async def run(self, verb: str, *words: str) -> Shown:
        """Run a command beside this loop."""
        self.capsys.readouterr()
        places = ["--socket-dir", str(self.bench.socket_dir)]
        places += ["--cdi-dir", str(self.cdi_dir)] if verb == "explain" else []
        code = await asyncio.to_thread(main, [verb, *words, *places])
        return Shown(code, *self.capsys.readouterr())

    async def explain(self, *words: str) -> Shown:
        return await self.run("explain", *words)

    async def serve_both_apis(self, mode: Any, **options: Any) -> None:
        """Serve two widgets in a mode that may change."""
        dra = await self.on_bench(lambda: self.bench.dra)
        places: dict[str, Any] = {
            "socket_dir": self.bench.socket_dir,
            "kubelet_dir": self.root,
            "node_name": NODE_NAME,
            "kubeconfig": dra.kubeconfig,
            "cdi_dir": self.cdi_dir,
        }
        served = kd.serve(Widgets(), domain=DOMAIN, mode=mode, **places, **options)
        await self.stack.enter_async_context(served)


class ForeignDriver:
    """A DRA driver that only answers: each claim gets `devices`.

    Its sockets are those of upstream's helper for drivers.
    """

    def __init__(
        self,
        host: NodeHost,
        name: str = FOREIGN,
        *,
        suffix: str = "",
        versions: Sequence[str] = PLUGIN_SERVICES[:1],
    ) -> None:
        self.name = name
        self.service = host.root / "plugins" / name / f"dra{suffix}.sock"
        self.registration = host.registry / f"{name}{suffix}-reg.sock"
        self._info = PluginInfo(PLUGIN_TYPE, name, str(self.service), tuple(versions))
        self.names = (f"{name}/gpu=gpu-0",)
        self.devices = (ClaimDevice(("gpu",), NODE_NAME, "gpu-0", self.names),)

    @contextlib.asynccontextmanager
    async def serving(self, *, calls: bool = True) -> AsyncIterator[None]:
        """Serve both sockets, or without `calls` only the socket for the registration."""
        servers = [(self.registration, GrpcServer(plugin_registration_methods(self), name="reg"))]
        if calls:
            servers.insert(0, (self.service, GrpcServer(dra_methods(self), name="dra")))
        for path, server in servers:
            path.parent.mkdir(parents=True, exist_ok=True)
            await server.start(path)
        try:
            yield
        finally:
            for _, server in reversed(servers):
                await server.stop()

    async def get_info(self) -> PluginInfo:
        return self._info

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        pass

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        return {each.uid: self.devices for each in claims}

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        return dict.fromkeys((each.uid for each in claims), "")

    async def watch_health(self) -> AsyncIterator[list[DeviceHealth]]:
        yield []


def write_cdi(directory: Path, kind: str, *devices: str, name: str = "vendor.json") -> Path:
    """Write a CDI file of a vendor."""
    directory.mkdir(exist_ok=True)
    listed = [{"name": each, "containerEdits": {"env": ["A=1"]}} for each in devices]
    content = {"cdiVersion": "0.6.0", "kind": kind, "devices": listed}
    file = directory / name
    file.write_text(json.dumps(content))
    return file


async def publish_foreign(host: NodeHost, driver: str = FOREIGN, *, devices: int = 1) -> None:
    """Let another vendor's driver have a slice with `gpu-0`, `gpu-1` and so on."""
    dra = await host.on_bench(lambda: host.bench.dra)
    spec = {
        "driver": driver,
        "nodeName": NODE_NAME,
        "pool": {"name": NODE_NAME, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
    }

    async def put() -> None:
        dra.api.put("resourceslices", {"metadata": {"name": f"s-{driver}"}, "spec": spec})
        expression = f'device.driver == "{driver}"'
        selectors = [{"cel": {"expression": expression}}]
        dra.api.put(
            "deviceclasses", {"metadata": {"name": driver}, "spec": {"selectors": selectors}}
        )

    await host.on_bench(host.bench._thread.call, put())


async def claim_foreign(host: NodeHost, pod: str, driver: str = FOREIGN) -> Any:
    """Let a pod have a claim of another vendor's driver."""
    wanted = [{"name": "gpu", "exactly": {"deviceClassName": driver}}]
    return await host.on_bench(host.bench.claim, pod, wanted)
