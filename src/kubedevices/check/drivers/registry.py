"""The kubelet's plugin registry: what registered, and what the check answers."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import RegistrationError
from kubedevices.node.arrival.plugin_directory import accepts_connections
from kubedevices.testing.dra_kubelet.drivers import Drivers
from kubedevices.values.allocation import PluginInfo


class DriverArrival(NamedTuple):
    """An answer to GetInfo, and whether the driver accepted calls then; `at` is loop time."""

    info: PluginInfo
    at: float
    accepts: bool


class Refused(RegistrationError):
    """The check refuses a registration on purpose."""


class DriverRegistry:
    """Passes registrations on to `Drivers`, with the paths of the driver as paths of the host.

    Set `refusal` to refuse all registrations with this text.
    """

    def __init__(
        self, drivers: Drivers, outside: Callable[[str], Path], now: Callable[[], float]
    ) -> None:
        self._drivers, self._outside, self._now = drivers, outside, now
        self.arrivals: list[DriverArrival] = []
        self.refusal = ""

    def explain(self, info: PluginInfo) -> RegistrationError | None:
        """Record an answer to GetInfo; return why the kubelet does not accept it."""
        accepts = bool(info.endpoint) and accepts_connections(self._outside(info.endpoint))
        self.arrivals.append(DriverArrival(info, self._now(), accepts))
        return Refused(self.refusal) if self.refusal else self._drivers.explain(info)

    async def connect(self, info: PluginInfo, socket: Path) -> None:
        """Connect to an instance; raises `DriverNotAccepted`."""
        await self._drivers.connect(info, self._outside(str(socket)))

    def disconnect(self, name: str, socket: Path) -> None:
        """Disconnect an instance whose registration socket is gone."""
        self._drivers.disconnect(name, self._outside(str(socket)))
