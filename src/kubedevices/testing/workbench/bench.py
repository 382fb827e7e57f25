"""`Bench`: a node for tests of device plugins, with synchronous calls.

`Bench` only passes calls on: the device manager decides, and `node` has the faults. A program with
its own event loop uses `DeviceManager` directly.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, Unpack, overload

from kubedevices.errors import (
    AdmissionRejected,
    KubedevicesError,
    NoPrivateView,
    NotInTime,
    UnregisteredResource,
    UsageError,
)
from kubedevices.host.cdi_specs import GENERATED_DIRECTORY
from kubedevices.node.inventory.inventory import GRACE_PERIOD
from kubedevices.node.pods.container_options import container_options
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import DEFAULTS, NodeSettings
from kubedevices.node.topology.options import TopologySettings
from kubedevices.plugin.options import RunnerOptions
from kubedevices.plugin.scanner import Scanner
from kubedevices.testing.kubelet.kubelet import Wipe
from kubedevices.testing.kubelet.mounts import Bind, launcher
from kubedevices.testing.workbench.claims import ClaimCalls
from kubedevices.testing.workbench.faults import FaultCalls
from kubedevices.testing.workbench.loop_thread import LoopThread
from kubedevices.testing.workbench.node import BenchNode, Registrations
from kubedevices.testing.workbench.plugins import ProcessPlugin, RunningPlugin, ScannerPlugin
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.device import Health, ReportedDevice
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, POD_RESOURCES, POD_RESOURCES_SOCKET

if TYPE_CHECKING:
    from kubedevices.dra.options import DraOptions
    from kubedevices.kubelet_api.pod_resources import PodEntry
    from kubedevices.testing.workbench.dra_node import DriverPlugin

__tracebackhide__ = True  # a failing test shows its own lines, not ours

_LAST_STOP_LIMIT = 2.0
_LONGEST_TEMPORARY_DIRECTORY = 30
"""Characters. The path of a socket may have at most 107 bytes on Linux."""


class Numbers(NamedTuple):
    """The number of all devices of a resource, and of the healthy devices."""

    capacity: int
    allocatable: int


@dataclass(frozen=True)
class Allocated:
    """The devices of a container. `options` are the merged answers of its plugins."""

    by_resource: Mapping[str, tuple[str, ...]]
    options: ContainerOptions

    @property
    def devices(self) -> tuple[str, ...]:
        """The IDs of all devices of the container, resource by resource."""
        return tuple(each for ids in self.by_resource.values() for each in ids)


class Bench(ClaimCalls, FaultCalls):
    """A node in its own directory, which runs until `close` or until the end of `with`.

    Every method returns when it is done, and raises errors of `kubedevices.errors`.
    `grace_period` is the time in seconds for which the devices of a lost plugin stay in the
    capacity. `pod_resources` is the path of a podresources socket, for tools that ask a kubelet
    which pod holds which device and which claim.
    """

    def __init__(
        self,
        *,
        grace_period: float = GRACE_PERIOD,
        topology: TopologySettings = DEFAULTS.topology,
    ) -> None:
        self._root = _short_directory()
        # As below the root directory of a kubelet.
        self.socket_dir = self._root / DEVICE_PLUGIN_DIR.name
        self.cdi_dir = self._root / "cdi"
        self.pod_resources = self._root / POD_RESOURCES
        self._settings = NodeSettings(grace_period=grace_period, topology=topology)
        self._registrations = Registrations()
        self._plugins: list[RunningPlugin] = []
        self._thread = LoopThread(f"bench {self._root.name}")
        try:
            self._node = self._thread.call(self._start_node("sockets"))
        except BaseException:
            self._thread.close()
            shutil.rmtree(self._root, ignore_errors=True)
            raise

    def __repr__(self) -> str:
        return f"<Bench {self.socket_dir}: {len(self._plugins)} plugins>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        failure = self._close()
        if error is None and failure:
            raise failure

    def close(self) -> None:
        """End plugins and node, remove all files, and raise a plugin's failure that nobody saw."""
        if failure := self._close():
            raise failure

    def _close(self) -> BaseException | None:
        failure = None
        plugins, self._plugins = self._plugins, []
        for plugin in plugins:
            try:
                plugin.raise_failure()
                plugin.stop(_LAST_STOP_LIMIT)
            except NotInTime:
                plugin.kill()  # no failure: a test of the stop time calls stop() itself
            except BaseException as error:
                plugin.kill()
                failure = failure or error
        if self._thread.is_running:
            if self._dra is not None:
                self._thread.call(self._dra.stop())
            self._thread.call(self._node.stop())
            self._thread.close()
        shutil.rmtree(self._root, ignore_errors=True)
        return failure

    # ------------------------------------------------------------ plugins

    @overload
    def start(
        self,
        scanner: Scanner,
        *,
        domain: str,
        mode: Literal["device-plugin"] = ...,
        **options: Unpack[RunnerOptions],
    ) -> ScannerPlugin: ...

    @overload
    def start(
        self,
        scanner: Scanner,
        *,
        domain: str,
        mode: Literal["dra"],
        **options: "Unpack[DraOptions]",
    ) -> "DriverPlugin": ...

    def start(
        self, scanner: Scanner, *, domain: str, mode: str = "device-plugin", **options: Any
    ) -> "ScannerPlugin | DriverPlugin":
        """Serve `scanner` against this node, as `kubedevices.run` would.

        `wait_for` the devices of a plugin; `claim` waits for those of a driver.
        """
        if mode == "dra":
            plugin: ScannerPlugin | DriverPlugin = self._start_driver(scanner, domain, options)
        else:
            options.setdefault("socket_dir", self.socket_dir)
            plugin = ScannerPlugin(self._thread, scanner, domain, **options)
        self._plugins.append(plugin)
        return plugin

    def attach(
        self,
        *command: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        kubelet_paths: bool = False,
    ) -> ProcessPlugin:
        """Start a plugin in any language; raises `PluginNotStarted`.

        `env` is added to our own environment. In `command` and in `env`, `{socket_dir}` becomes the
        directory of kubelet.sock, and `{pod_resources}` the podresources socket. With
        `kubelet_paths` the plugin, and no other process, also finds them below /var/lib/kubelet,
        and `cdi_dir` at /var/run/cdi. This needs root or user namespaces; else it raises
        `NoPrivateView`.
        """
        words = [self._with_our_paths(os.fspath(word)) for word in command]
        added = {key: self._with_our_paths(value) for key, value in (env or {}).items()}
        log = self._root / f"output-{len(self._plugins)}"
        before = self._private_view() if kubelet_paths else []
        plugin = ProcessPlugin([*before, *words], env=os.environ | added, cwd=cwd, log=log)
        self._plugins.append(plugin)
        return plugin

    def _with_our_paths(self, text: str) -> str:
        there = text.replace("{socket_dir}", str(self.socket_dir))
        return there.replace("{pod_resources}", str(self.pod_resources))

    def _private_view(self) -> list[str]:
        """Return the words to write before a command that needs the kubelet's usual paths."""
        self.cdi_dir.mkdir(exist_ok=True)
        words = launcher(
            [
                Bind(str(self.socket_dir), str(DEVICE_PLUGIN_DIR)),
                Bind(str(self.pod_resources.parent), str(POD_RESOURCES_SOCKET.parent)),
                Bind(str(self.cdi_dir), str(GENERATED_DIRECTORY)),
            ]
        )
        tried = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        if tried.returncode:
            raise NoPrivateView(tried.stderr.strip())
        return words

    def kill_plugin(self, plugin: RunningPlugin | None = None) -> None:
        """Kill a plugin, so its socket stays. Without `plugin`, exactly one plugin must run."""
        if plugin is None:
            running = [each for each in self._plugins if each.is_running]
            if len(running) != 1:
                raise UsageError(f"kill_plugin needs an argument: {len(running)} plugins run")
            (plugin,) = running
        plugin.kill()

    # ------------------------------------------------------------ devices and pods

    def wait_for(
        self,
        resource: str,
        *,
        capacity: int | None = None,
        allocatable: int | None = None,
        timeout: float = 20,
    ) -> None:
        """Return as soon as `resource` is registered and has these numbers.

        Raises `NotInTime` with the numbers of all resources. If a plugin fails, raises its error
        at once.
        """
        try:
            waiting = self._node.wait_for(
                resource, capacity=capacity, allocatable=allocatable, timeout=timeout
            )
            self._call(waiting)
        except NotInTime as error:
            for plugin in self._plugins:
                error.add_note(f"{plugin!r}\n{plugin.last_words()}".rstrip())
            raise

    def devices(self, resource: str) -> dict[str, ReportedDevice]:
        """Return all devices of `resource` by ID, with the health that the node uses."""
        inventory = self._node.inventory

        def look() -> dict[str, ReportedDevice]:
            states = dict.fromkeys(inventory.healthy(resource), Health.HEALTHY)
            return {
                name: device._replace(health=states.get(name, Health.UNHEALTHY))
                for name, device in inventory.devices(resource).items()
            }

        return self._thread.do(look)

    def numbers(self, resource: str) -> Numbers:
        """Return capacity and allocatable, as in a Node's status; 0 for an unknown resource."""
        now = self._thread.do(self._node.get_capacity)
        return Numbers(now.capacity.get(resource, 0), now.allocatable.get(resource, 0))

    def allocate(self, pod: str, container: str, limits: Mapping[str, int]) -> Allocated:
        """Admit a pod with this container; return the devices of the container.

        If the pod exists already, the container is added to it. A refused pod keeps only the
        devices that it held before. Raises the reason, for example `DevicesUnavailable` (an
        `AllocationError`) or the `RpcError` of the plugin; `AdmissionRejected` if the NUMA
        alignment fails; `UnregisteredResource` for a resource that no plugin has registered (a
        kubelet would start the container without devices).
        """
        return self._thread.call(self._allocate(pod, Container(container, dict(limits))))

    async def _allocate(self, name: str, container: Container) -> Allocated:
        for resource, count in container.limits.items():
            if count and not self._node.inventory.is_known(resource):
                raise UnregisteredResource(resource)
        new = Pod(name)
        before = self._node.get_pod(new.uid) or new
        others = tuple(each for each in before.containers if each.name != container.name)
        pod = Pod(name, containers=(*others, container))
        try:
            holdings = await self._node.allocate(pod)
        except AdmissionRejected as error:
            if isinstance(cause := error.__cause__, KubedevicesError):
                raise cause from cause.__cause__
            raise
        merged = container_options(self._node.pod_devices.of_container(pod.uid, container.name))
        options = merged.options if merged else ContainerOptions()
        return Allocated(holdings.get(container.name, {}), options)

    def options(self, pod: str, container: str) -> ContainerOptions | None:
        """Start a container: return its container options, None if it has no device.

        Calls PreStartContainer of plugins that require it. Raises `AllocationError`, and
        `UsageError` for an unknown pod.
        """
        return self._thread.call(self._options(Pod(pod).uid, container))

    async def _options(self, uid: str, container: str) -> ContainerOptions | None:
        pod = self._node.get_pod(uid)
        if pod is None:
            raise UsageError(f"there is no pod {uid} to start: allocate something for it first")
        return await self._node.get_device_run_container_options(pod, container)

    def release(self, pod: str) -> Mapping[str, tuple[str, ...]]:
        """End a pod; return the IDs of its devices of device plugins, by resource.

        ResourceClaims that no other pod uses are freed; raises `DynamicResourcesFailed`.
        """
        if self._dra is not None and pod in self._dra.pods:
            self._call(self._dra.release(pod))
        return self._thread.call(self._node.release(Pod(pod).uid))

    # ------------------------------------------------------------ restarts of the node

    def restart(self, *, wipe: Wipe = "sockets", away: float = 0, reboot: bool = False) -> None:
        """Restart the node: it reads pods and devices back, and plugins must register again.

        `wipe` says what the node removes from the plugin directory at its start: `sockets` like a
        kubelet since 1.33, `everything` except the checkpoint like an older kubelet. `nothing`
        removes only kubelet.sock. `away` is the time in seconds between stop and start. With
        `reboot` the files of `/var/run/cdi` are lost meanwhile; plugins on this bench go on.
        """
        self._thread.call(self._restart(wipe, away, reboot))

    async def _restart(self, wipe: Wipe, away: float, reboot: bool) -> None:
        await self._node.stop()
        await asyncio.sleep(away)
        self._node = await self._start_node(wipe)
        if self._dra is not None:
            await self._dra.restart(away, reboot=reboot)

    async def _start_node(self, wipe: Wipe) -> BenchNode:
        node = BenchNode(self.socket_dir, settings=self._settings)
        node.registrations, node.wipe = self._registrations, wipe
        node.pod_resources, node.pods_with_claims = self.pod_resources, self._pods_with_claims
        await node.start()
        return node

    def _pods_with_claims(self) -> "Iterable[PodEntry]":
        return self._dra.pod_entries() if self._dra is not None else ()

    def wipe(self) -> None:
        """Restart and remove all files in the plugin directory, like a kubelet before 1.33."""
        self.restart(wipe="everything")

    def replace_socket(self) -> None:
        """Restart and replace only kubelet.sock: the sockets of the plugins stay."""
        self.restart(wipe="nothing")

    def advance(self, *, minutes: float = 0, seconds: float = 0) -> None:
        """Move the clock of the node and of scanners on this bench forward, not of processes."""
        self._thread.advance(60 * minutes + seconds)


def _short_directory() -> Path:
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= _LONGEST_TEMPORARY_DIRECTORY else "/tmp"
    return Path(tempfile.mkdtemp(prefix="kd-bench-", dir=parent))
