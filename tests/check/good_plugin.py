"""A well-behaved device plugin on grpcio alone: `kubedevices check` must find nothing wrong.

Not for use on a node and no example of our framework; tests start it, and `mutants` are made of it
by overriding one method. It offers the files of a directory as devices, two replicas of each::

    python good_plugin.py --device-dir DIR [--socket-dir DIR] [--cdi-dir DIR]
                          [--plain] [--registry-dir DIR]

A file whose text is "Unhealthy" is an unhealthy device. `--plain` offers neither preferred
allocation nor PreStartContainer; with `--registry-dir` a kubelet finds the socket there by itself.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from tests.check import wire_names as wire
from tests.check.listening import accepts

POLL = 0.1
LIMIT = 30.0


class Refused(Exception):
    """The kubelet refuses us."""


class Device(NamedTuple):
    """One device ID; several replicas share a device file."""

    file: Path
    health: str


def identity(path: Path) -> tuple[int, int, int] | None:
    """Return the identity of a file, which differs for a new file with the same name."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def read(path: str) -> str:
    """Return the text of a small file with few system calls."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096).decode()
    finally:
        os.close(descriptor)


class GoodPlugin:
    """One resource, from start to SIGTERM. Mutants override the methods that they break."""

    resource = "example.com/widget"
    version = "v1beta1"
    register_method = "/v1beta1.Registration/Register"
    replicas = 2
    numa_node = 0
    register_limit = LIMIT

    def __init__(self, args: argparse.Namespace) -> None:
        self.device_dir: Path = args.device_dir
        self.cdi_dir: Path | None = args.cdi_dir
        self.registry_dir: Path | None = args.registry_dir
        self.plain: bool = args.plain
        self.socket_dir: Path = args.registry_dir or args.socket_dir
        self.kubelet = args.socket_dir / "kubelet.sock"
        self.path = self.socket_dir / "example.com-widget.sock"
        self.texts: dict[str, str] = {}
        self.found: dict[str, Device] = {}
        self.devices: dict[str, Device] = {}
        self.version_of_list = 0
        self.changed = asyncio.Condition()
        self.streams: set[object] = set()
        self.stopping = asyncio.Event()
        self.server: Any = None
        self.registered_at: tuple[int, int, int] | None = None
        self.mine: tuple[int, int, int] | None = None

    # ------------------------------------------------------------ devices

    def scan(self) -> dict[str, Device]:
        """Scan the directory. It runs twenty times a second, so it reuses unchanged devices."""
        texts = {}
        for name in sorted(os.listdir(self.device_dir)):  # noqa: PTH208  only names
            with contextlib.suppress(FileNotFoundError):  # removed after the directory was listed
                texts[name] = read(f"{self.device_dir}/{name}")
        if texts != self.texts:
            self.texts = texts
            self.found = {
                f"{name}::{replica}": Device(
                    self.device_dir / name, "Unhealthy" if "Unhealthy" in text else "Healthy"
                )
                for name, text in texts.items()
                for replica in range(self.replicas)
            }
        return dict(self.found)

    async def keep_scanning(self) -> None:
        """Scan again and again, and announce every change to all streams."""
        while True:
            found = self.scan()
            if found != self.devices:
                self.devices = found
                self.write_cdi()
                await self.announce()
            await asyncio.sleep(POLL)

    async def announce(self) -> None:
        """Wake the streams."""
        async with self.changed:
            self.version_of_list += 1
            self.changed.notify_all()

    def write_cdi(self) -> None:
        """Write each file as a CDI device; readers see the old CDI file or the new one."""
        if self.cdi_dir is None:
            return
        names = sorted({device.file.name for device in self.devices.values()})
        content = self.cdi_spec(names)
        self.cdi_dir.mkdir(parents=True, exist_ok=True)
        target = self.cdi_dir / "example.com-widget.json"
        fresh = target.with_suffix(".tmp")
        fresh.write_text(json.dumps(content))
        fresh.chmod(0o644)
        fresh.rename(target)

    def cdi_spec(self, names: list[str]) -> dict[str, Any]:
        """Return the content of our CDI file, in the lowest version that supports it."""
        return {
            "cdiVersion": "0.5.0" if any(name[0].isdigit() for name in names) else "0.3.0",
            "kind": "example.com/widget",
            "devices": [
                {"name": name, "containerEdits": {"env": [f"WIDGET_OF_CDI={name}"]}}
                for name in names
            ],
        }

    # ------------------------------------------------------------ the DevicePlugin service

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.options()

    def options(self) -> Any:
        """Return our options."""
        return wire.DevicePluginOptions(
            pre_start_required=not self.plain, get_preferred_allocation_available=not self.plain
        )

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Send the list at once and after every change; each stream has its own state."""
        streams, one = self.streams, object()
        streams.add(one)
        try:
            while True:
                sent = self.version_of_list
                yield self.device_list()
                async with self.changed:
                    while self.version_of_list == sent:
                        await self.changed.wait()
        finally:
            streams.discard(one)

    def device_list(self) -> Any:
        """Return all devices as one message."""
        response = wire.ListAndWatchResponse()
        for name, device in sorted(self.devices.items()):
            entry = response.devices.add(ID=name, health=device.health)
            entry.topology.nodes.add(ID=self.numa_node)
        return response

    async def check_ids(self, ids: list[str], context: Any) -> None:
        """End the call with an error unless all devices exist and are healthy."""
        if not ids:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no device IDs")
        for name in ids:
            device = self.devices.get(name)
            if device is None:
                await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no device {name}")
            elif device.health != "Healthy":
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{name} is unhealthy")

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = wire.AllocateResponse()
        for container in request.container_requests:
            ids = list(container.devices_ids)
            await self.check_ids(ids, context)
            self.fill(response.container_responses.add(), ids)
        return response

    def fill(self, answer: Any, ids: list[str]) -> None:
        """Fill the container response: each file once; the order of the IDs does not matter."""
        files = sorted({self.devices[name].file for name in ids})
        answer.envs["WIDGETS"] = ",".join(file.name for file in files)
        answer.annotations["example.com/widgets"] = "-".join(file.name for file in files)
        answer.mounts.add(
            host_path=str(self.device_dir), container_path="/run/widgets", read_only=True
        )
        for file in files:
            path = str(file)
            answer.devices.add(
                host_path=path, container_path=f"/dev/widgets/{file.name}", permissions="rw"
            )
            if self.cdi_dir is not None:
                answer.cdi_devices.add(name=f"example.com/widget={file.name}")

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.plain:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not offered")
        response = wire.PreferredAllocationResponse()
        for container in request.container_requests:
            available, size = list(container.available_deviceIDs), container.allocation_size
            must = list(container.must_include_deviceIDs)
            if size > len(available):
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{size} devices asked, {len(available)} available",
                )
            chosen = self.prefer(available, must, size)
            response.container_responses.add(deviceIDs=chosen)
        return response

    def prefer(self, available: list[str], must: list[str], size: int) -> list[str]:
        """Choose the must-include devices, then the first devices by name."""
        return (must + sorted(set(available) - set(must)))[:size]

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.plain:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not offered")
        await self.check_ids(list(request.devices_ids), context)
        return wire.PreStartContainerResponse()

    # ------------------------------------------------------------ the watcher's service

    async def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return wire.PluginInfo(
            type="DevicePlugin",
            name=self.resource,
            endpoint=str(self.path),
            supported_versions=[self.version],
        )

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not request.plugin_registered:
            self.refused = request.error
            asyncio.get_running_loop().call_later(0.05, self.stopping.set)
        return wire.RegistrationStatusResponse()

    refused = ""

    # ------------------------------------------------------------ life

    async def run(self) -> int:
        """Serve until SIGTERM; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        self.devices = self.scan()
        self.write_cdi()
        scanning = asyncio.create_task(self.keep_scanning())
        serving = asyncio.create_task(self.keep_serving())
        stopping = asyncio.create_task(self.stopping.wait())
        done, _ = await asyncio.wait(
            {scanning, serving, stopping}, return_when=asyncio.FIRST_COMPLETED
        )
        scanning.cancel()
        serving.cancel()
        await self.close_server(grace=0.2)
        for task in done - {stopping}:
            if isinstance(error := task.exception(), Refused):
                self.refused = str(error)
            elif error:
                raise error
        if self.refused:
            print(f"refused: {self.refused}", file=sys.stderr)
        return 1 if self.refused else 0

    async def keep_serving(self) -> None:
        """Bind and register, and repeat both whenever a socket is replaced."""
        await self.open_server()
        while True:
            if identity(self.path) != self.mine:
                await self.close_server()
                await self.open_server()
            if self.registry_dir is None and not await self.register():
                continue
            await self.until_lost()

    async def open_server(self) -> None:
        """Serve on our path, unless another instance does."""
        if accepts(self.path):
            raise Refused(f"another instance serves on {self.path}")
        self.path.unlink(missing_ok=True)
        self.server = grpc.aio.server()
        self.streams = set()  # streams of a stopped server may still end, and do not count
        self.server.add_generic_rpc_handlers(tuple(self.services()))
        self.server.add_insecure_port(f"unix:{self.path}")
        await self.server.start()
        self.mine = identity(self.path)

    def services(self) -> list[Any]:
        """Return the handlers of all services."""
        names = ("GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation")
        methods = (*names, "Allocate", "PreStartContainer")
        made = [self.service("v1beta1.DevicePlugin", *methods)]
        return [*made, self.watcher_service()] if self.registry_dir else made

    def watcher_service(self) -> Any:
        """Return the handler of the service that a plugin watcher calls."""
        names = ("GetInfo", "NotifyRegistrationStatus")
        return self.service("pluginregistration.Registration", *names)

    def service(self, name: str, *methods: str) -> Any:
        """Return the handler of a service, whose methods are ours."""
        return wire.handlers(name, {each: getattr(self, each) for each in methods})

    async def close_server(self, grace: float = 0) -> None:
        """Stop serving. grpc removes the socket file, so the file must still be ours."""
        if self.server is not None:
            stream_end = asyncio.create_task(self.server.stop(grace))
            await asyncio.wait({stream_end}, timeout=grace + 1)
            self.server = None
        if self.mine and identity(self.path) == self.mine:
            self.path.unlink(missing_ok=True)

    async def register(self) -> bool:
        """Wait for a kubelet and register; return False if our own socket was removed."""
        pause = POLL
        while True:
            if identity(self.path) != self.mine:
                return False
            if not self.kubelet.exists():
                await asyncio.sleep(POLL)
                continue
            self.registered_at = identity(self.kubelet)
            try:
                await self.call_register()
            except grpc.aio.AioRpcError as error:
                if identity(self.path) != self.mine:
                    return False
                if error.code() not in {
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                }:
                    raise Refused(error.details()) from error
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1)
            else:
                return True

    async def call_register(self) -> None:
        """Call Register once, on a new channel, because grpc shares channels per address."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"unix:{self.kubelet}", options) as channel:
            call = channel.unary_unary(
                self.register_method,
                wire.RegisterRequest.SerializeToString,
                wire.Empty.FromString,
            )
            await call(self.register_request(), timeout=self.register_limit)

    def register_request(self) -> Any:
        """Return the request of Register."""
        return wire.RegisterRequest(
            version=self.version,
            endpoint=self.path.name,
            resource_name=self.resource,
            options=self.options(),
        )

    async def until_lost(self) -> None:
        """Return when a socket was replaced or no kubelet listens any more."""
        silent = 0.0
        while identity(self.path) == self.mine:
            if self.registry_dir is None:
                now = identity(self.kubelet)
                silent = 0 if self.streams or now is None else silent + POLL
                if silent > 0.6 or (now is not None and now != self.registered_at):
                    return
            await asyncio.sleep(POLL)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device-dir", type=Path, required=True)
    parser.add_argument("--socket-dir", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument("--cdi-dir", type=Path)
    parser.add_argument("--registry-dir", type=Path)
    parser.add_argument("--plain", action="store_true")
    return parser


def start(plugin_class: type[GoodPlugin], args: argparse.Namespace) -> int:
    """Run a plugin until it ends."""

    async def main() -> int:
        return await plugin_class(args).run()

    return asyncio.run(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin until it ends; return the exit code."""
    return start(GoodPlugin, arguments().parse_args(argv))


if __name__ == "__main__":
    # Threads of grpc may still run: exit at once, everything is closed.
    os._exit(main())
