"""The device manager of a bench: it can refuse Register, delay it, and clean its directory.

It handles devices like every `DeviceManager`. Only registration and the content of the plugin
directory at a start can differ. It serves a podresources socket while it runs.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from kubedevices.errors import RegistrationError
from kubedevices.kubelet_api.pod_resources import PodEntry, pod_to_wire
from kubedevices.node.arrival.plugin_directory import make_directory
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.services.pod_resources import PodResourcesServer
from kubedevices.testing.kubelet.arrival import LIKE_A_KUBELET, RegisterBehavior
from kubedevices.testing.kubelet.change_signal import ChangeSignal
from kubedevices.testing.kubelet.kubelet import Wipe, wipe_plugin_directory


class Registrations:
    """How the node answers Register, and the number of attempts. Survives restarts of the node."""

    def __init__(self) -> None:
        self.behavior = LIKE_A_KUBELET
        self.attempts: Counter[str] = Counter()
        self._changed = ChangeSignal()

    def behave(self, behavior: RegisterBehavior) -> None:
        """Answer Register like this from now on; Register calls that wait continue at once."""
        self.behavior = behavior
        self._changed.notify()

    async def begin(self, resource: str) -> None:
        """Count a Register call, and wait or raise `RegistrationError` as the behavior says."""
        behavior = self.behavior
        self.attempts[resource] += 1
        self._changed.notify()
        if behavior.refusal:
            raise RegistrationError(behavior.refusal)
        await self._changed.until(lambda: self.behavior is not behavior, behavior.delay)

    async def wait_attempts(self, resource: str, number: int, timeout: float) -> bool:
        """Return whether `resource` has called Register `number` times within `timeout` seconds."""
        return await self._changed.until(lambda: self.attempts[resource] >= number, timeout)


class BenchPodResources(PodResourcesServer):
    """The podresources service with the claims of pods, which a kubelet lists too."""

    def __init__(
        self, node: DeviceManager, socket: Path, pods_with_claims: Callable[[], Iterable[PodEntry]]
    ) -> None:
        super().__init__(node, socket)
        self._pods_with_claims = pods_with_claims

    async def list_pods(self) -> Iterable[bytes]:
        """Answer v1.List; a pod with devices and claims has two entries."""
        return [*await super().list_pods(), *map(pod_to_wire, self._pods_with_claims())]


class BenchNode(DeviceManager):
    """A device manager with a podresources socket, which answers Register by `registrations`."""

    registrations: Registrations
    wipe: Wipe = "sockets"
    pod_resources: Path
    pods_with_claims: Callable[[], Iterable[PodEntry]]
    _who_holds_what: PodResourcesServer | None = None

    async def start(self) -> None:
        """Start, then serve the podresources socket; raises `CannotAsk`."""
        await super().start()
        self._who_holds_what = BenchPodResources(self, self.pod_resources, self.pods_with_claims)
        await self._who_holds_what.start()

    async def stop(self) -> None:
        """Remove both sockets. A second call does nothing."""
        server, self._who_holds_what = self._who_holds_what, None
        if server is not None:
            await server.stop()
        await super().stop()

    def prepare_directory(self, kubelet_socket: Path) -> None:
        """Create the plugin directory, and clean it as `wipe` says."""
        make_directory(kubelet_socket.parent, 0o750)
        wipe_plugin_directory(kubelet_socket, self.wipe)

    async def connect_plugin(self, resource: str, socket: Path) -> None:
        """Connect a plugin that called Register, after a delay; or refuse it."""
        await self.registrations.begin(resource)
        await super().connect_plugin(resource, socket)
