"""The kubelet's plugin registry: what registered, and what the check answers."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import RegistrationError
from kubedevices.node.arrival.plugin_directory import accepts_connections
from kubedevices.testing.dra_kubelet.connection import CallTiming
from kubedevices.testing.dra_kubelet.drivers import Drivers, OnHealth
from kubedevices.values.allocation import PluginInfo


class DriverArrival(NamedTuple):
    """An answer to GetInfo, and whether the driver accepted calls then."""

    info: PluginInfo
    accepts: bool


class Refused(RegistrationError):
    """The check refuses a registration on purpose."""


class DriverRegistry(Drivers):
    """Records what registers, with paths of the host; a `refusal` refuses all registrations."""

    def __init__(
        self,
        wipe: Callable[[str], Awaitable[None]],
        on_health: OnHealth,
        outside: Callable[[str], Path],
        timing: CallTiming,
    ) -> None:
        super().__init__(wipe, on_health, timing=timing)
        self._outside = outside
        self.arrivals: list[DriverArrival] = []
        self.refusal = ""

    def explain(self, info: PluginInfo) -> RegistrationError | None:
        """Record an answer to GetInfo; return why the kubelet does not accept it."""
        accepts = bool(info.endpoint) and accepts_connections(self._outside(info.endpoint))
        self.arrivals.append(DriverArrival(info, accepts))
        return Refused(self.refusal) if self.refusal else super().explain(info)

    async def connect(self, info: PluginInfo, socket: Path) -> None:
        """Connect to an instance; raises `DriverNotAccepted`."""
        await super().connect(info, self._outside(str(socket)))

    def disconnect(self, name: str, socket: Path) -> None:
        """Disconnect an instance whose registration socket is gone."""
        super().disconnect(name, self._outside(str(socket)))
