"""One copy of the driver with an API server and a kubelet of its own."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from kubedevices.check.check import Broken, NotPassed, NotTried, PluginLost
from kubedevices.check.drivers.cluster import Cluster
from kubedevices.check.drivers.node_files import NodeFiles
from kubedevices.check.drivers.registry import DriverRegistry
from kubedevices.check.drivers.target import NODE_NAME, DriverTarget
from kubedevices.check.drivers.timing import SLOWEST_HELPER, DriverTiming
from kubedevices.check.processes import Process
from kubedevices.check.program_copy import ProgramCopy, Workplace
from kubedevices.check.shared_state import SharedState
from kubedevices.check.target import TriggerRun
from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.dra import PLUGIN_TYPE, ClaimAnswer, DeviceHealth, HealthStatus
from kubedevices.node.arrival.plugin_watcher import PluginWatcher, WatcherTiming
from kubedevices.testing.dra_kubelet.connection import CallTiming, DriverConnection
from kubedevices.testing.kubelet.change_signal import ChangeSignal
from kubedevices.values.allocation import ClaimReference

_IN_A_POD = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_UNHEALTHY = HealthStatus.UNHEALTHY
_LOOK = 0.05  # seconds between two looks at what changes without an event


class DriverNode(ProgramCopy):
    """One copy of the driver, and everything around it. `driver` is its name, once registered."""

    def __init__(
        self,
        target: DriverTarget,
        timing: DriverTiming,
        shared: SharedState,
        place: Workplace,
        files: NodeFiles,
    ) -> None:
        super().__init__(shared, place, ChangeSignal(look_every=_LOOK))
        self.target, self.timing, self.files = target, timing, files
        self.node_name = NODE_NAME
        self.cluster = Cluster(NODE_NAME)
        self.driver = ""
        self.record: object = None  # of the trigger, see `trigger_record`
        self.health: list[tuple[float, tuple[DeviceHealth, ...] | None]] = []
        self._watcher: PluginWatcher | None = None
        self.registry = self._new_kubelet()

    def __repr__(self) -> str:
        return f"<DriverNode {' '.join(self.target.command)} {self.driver}>"

    # ------------------------------------------------------------ kubelet

    def _new_kubelet(self) -> DriverRegistry:
        timing = CallTiming(call=self.timing.call, redial=0.1, longest_redial=1)
        return DriverRegistry(self._wipe, self._record_health, self.path_map.outside, timing)

    async def _wipe(self, driver: str) -> None:
        await self.cluster.api.delete_slices(self.node_name, driver)
        self.changed.notify()

    def _record_health(self, _driver: str, devices: tuple[DeviceHealth, ...] | None) -> None:
        self.health.append((asyncio.get_running_loop().time(), devices))
        self.changed.notify()

    def missing(self, problem: str) -> NotPassed:
        """Return that slices are not back in time: a quick run cannot tell slow from never."""
        if self.target.quick:
            later = f"a driver on upstream's helper may need {SLOWEST_HELPER:g} s"
            return NotTried(f"{problem}; {later}: run it without --quick")
        return Broken(problem, self.last_words())

    async def start_kubelet(self, *, refusal: str = "") -> None:
        """Start a kubelet: it deletes all slices of the node, and looks for drivers."""
        self.registry = self._new_kubelet()
        self.registry.refusal = refusal
        self._watcher = PluginWatcher(
            self.files.kubelet / "plugins_registry",
            {PLUGIN_TYPE: self.registry},
            timing=WatcherTiming(interval=0.1),
        )
        await self._watcher.start()
        self.registry.start()

    async def stop_kubelet(self) -> None:
        """Stop the kubelet. Files stay."""
        if self._watcher is not None:
            await self._watcher.stop()
            await self.registry.stop()
            self._watcher = None

    async def restart_kubelet(self) -> None:
        """Stop the kubelet for a moment and start it again."""
        await self.stop_kubelet()
        await self.pause(self.timing.absent)
        await self.start_kubelet()

    def connections(self) -> tuple[DriverConnection, ...]:
        """Return the connections to the instances of the driver."""
        return self.registry.instances(self.driver)

    def is_connected(self) -> bool:
        """Whether a kubelet runs and an instance of the driver is connected."""
        return any(each.is_connected for each in self.connections())

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, ClaimAnswer]:
        """NodePrepareResources; return the answers by UID.

        An error of the whole call is the answer for each claim: upstream's helper answers so when
        it cannot get one of them. Raises `Broken` if a claim has no answer.
        """
        try:
            answers = await self.connection().prepare(claims)
        except RpcError as error:
            if error.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
                raise Broken(f"Prepare: {error}", self.last_words()) from error
            return {each.uid: str(error) for each in claims}
        for each in claims:
            if each.uid not in answers:
                raise Broken(f"Prepare did not answer for the claim {each.name}")
        return answers

    async def unprepare(self, claims: Sequence[ClaimReference]) -> str:
        """NodeUnprepareResources; return the first error, `""` if all succeeded."""
        try:
            answers = await self.connection().unprepare(claims)
        except RpcError as error:
            return str(error)
        missing = [each.name for each in claims if each.uid not in answers]
        if missing:
            return f"no answer for the claim {missing[0]}"
        return next((text for text in answers.values() if text), "")

    def connection(self) -> DriverConnection:
        """Return the connection to the newest instance; raises `Broken` if there is none."""
        found = [each for each in self.connections() if each.is_connected]
        if not found:
            raise Broken("the driver is not connected", self.last_words())
        return found[-1]

    async def run_trigger(self) -> None:
        """Run the user's trigger; raises `NotTried` if there is none, or if it fails."""
        changes = self.shared.changes
        if not changes.trigger.command:
            raise NotTried("needs --trigger, a command that changes a device")
        await self._must_succeed(changes.next(), "trigger")

    async def undo_trigger(self) -> bool:
        """Undo what the trigger did; return whether the user said how. Raises `NotTried`."""
        calls = self.shared.changes.undoing()
        for call in calls:
            await self._must_succeed(call, "undo")
        return bool(calls)

    async def _must_succeed(self, call: TriggerRun, what: str) -> None:
        if problem := await self.run_in_shell(call, what, self.timing.call):
            raise NotTried(problem)

    def sick(self) -> dict[str, str]:
        """Return the devices that the last health list calls unhealthy, with their messages."""
        last = next((devices for _, devices in reversed(self.health) if devices), ())
        return {each.device: each.message for each in last if each.health is _UNHEALTHY}

    # ------------------------------------------------------------ processes

    async def launch(self, kubelet_dir: Path | None = None) -> Process:
        """Start one more process of the driver, with another root directory of the kubelet."""
        root = kubelet_dir or self.files.kubelet
        places = {
            "{kubeconfig}": str(self.files.kubeconfig),
            "{node}": self.node_name,
            "{kubelet_dir}": str(root),
            "{registry_dir}": str(root / "plugins_registry"),
            "{cdi_dir}": str(self.files.cdi),
            "{pod_uid}": str(uuid4()),
        }
        env = self._environment() | {"KUBECONFIG": places["{kubeconfig}"]}
        return await self.launch_command(self.target.command, places, env)

    def _environment(self) -> dict[str, str]:
        """Return our variables, with those of a pod if the driver sees its service account.

        Without it there are none: those of a real pod around the check lead to a real cluster.
        """
        found = {name: text for name, text in os.environ.items() if name not in _IN_A_POD}
        if self.path_map.binds:
            place = ("127.0.0.1", str(self.cluster.api.tls_port))
            found |= dict(zip(_IN_A_POD, place, strict=True))
        return found | {"NODE_NAME": self.node_name}

    @asynccontextmanager
    async def unwritable_state(self) -> AsyncIterator[None]:
        """Let the driver not write into its plugin directory inside the block.

        Raises `NotTried` without a private view: then the mount would be one of the host.
        """
        binds, plugins = self.path_map.binds, self.files.kubelet / "plugins"
        if not binds:
            raise NotTried("needs root, or a driver with the usual paths of a kubelet")
        inside = [bind.inside for bind in binds if bind.host == str(self.files.kubelet)]
        paths = [str(plugins), *(f"{each}/{plugins.name}" for each in inside)]
        await self.supervisor.ask("make_read_only", paths=paths)
        try:
            yield
        finally:
            await self.supervisor.ask("unmount", paths=paths)

    async def ready(self) -> None:
        """Start the driver unless it is registered and has published; raises `PluginLost`."""
        if self.is_ready():
            return
        await self.start_fresh()
        if problem := await self.until_ready(self.timing.start):
            raise PluginLost(problem)

    async def start_fresh(self, *, kubelet: bool = True) -> Process:
        """Start the driver on an empty node."""
        await self.end_processes()
        await self.stop_kubelet()
        self.files.wipe()
        for plural in ("resourceslices", "resourceclaims"):
            for each in self.cluster.api.find(plural):
                metadata = each["metadata"]
                name, namespace = metadata["name"], metadata.get("namespace", "")
                self.cluster.api.delete(plural, name, namespace)
        self.health.clear()
        self.is_suspect = False
        if kubelet:
            await self.start_kubelet()
        self.process = await self.launch()
        return self.process

    async def restart_driver(self, *, kill: bool = False) -> None:
        """End the driver and start it again; raises `Broken` if it does not return.

        SIGTERM ends it as an update does, or SIGKILL as a crash does.
        """
        await self.relaunch(kill=kill)
        if problem := await self.until_ready(self.timing.start):
            raise Broken(f"after its restart: {problem}", self.last_words())

    async def relaunch(self, *, kill: bool = False) -> None:
        """End the driver and start it again, until it registers."""
        assert self.process is not None
        await self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        await self.lost_time.wait(self.process.wait, self.timing.stop)
        await self.start_again()

    async def start_again(self) -> str:
        """Start the driver beside what it left; return what is missing until it is registered."""
        known = len(self.registry.arrivals)
        self.process = await self.launch()
        came = await self.until(lambda: len(self.registry.arrivals) > known, self.timing.start)
        return await self.until_registered(self.timing.start if came else 0)

    async def end_processes(self) -> None:
        """Kill the driver and each process that it started."""
        await self.supervisor.kill_all()
        self.process = None

    def is_ready(self) -> bool:
        """Whether the driver runs, is registered at the usual kubelet, and has published."""
        running = self.process is not None and self.process.running
        usual = not self.is_suspect and not self.registry.refusal
        return running and usual and self.is_connected() and bool(self.cluster.slices())

    async def until_ready(self, limit: float) -> str:
        """Wait until the driver is registered and publishes nothing new; return what is missing."""
        if problem := await self._until_came(self._has_published, limit):
            return problem
        await self.until_quiet()
        return ""

    async def until_registered(self, limit: float) -> str:
        """Wait until the driver is registered and connected; return what is missing."""
        return await self._until_came(self._is_registered, limit)

    async def _until_came(self, has_come: Callable[[], bool], limit: float) -> str:
        began = asyncio.get_running_loop().time()
        if await self.until(has_come, limit):
            return ""
        waited = self.lost_time.spent(began)
        if ended := self.how_ended():
            return f"{ended} after {waited:.1f} s"
        if not self.registry.arrivals:
            return f"no registration socket of a DRA driver within {waited:.0f} s"
        what = "connected" if not self.is_connected() else "published"
        return f"not {what} within {waited:.0f} s"

    async def until_quiet(self) -> None:
        """Wait until slices and health have not changed for a moment."""
        before: list[object] = []
        while before != (now := [*self.cluster.content(), self.sick()]):
            before = [*now]
            await self.pause(self.timing.settle)

    def _is_registered(self) -> bool:
        if self.registry.arrivals:
            self.driver = self.registry.arrivals[-1].info.name
        return not self.how_ended() and self.is_connected()

    def _has_published(self) -> bool:
        return self._is_registered() and bool(self.cluster.slices())

    async def pause(self, seconds: float) -> None:
        """Wait `seconds` own seconds of the driver, or until its end."""
        await self.until(lambda: False, seconds)

    def without_directories(self, text: str) -> str:
        """Remove the paths of this run from a text."""
        return text.replace(f"{self.directories.root}/", "")
