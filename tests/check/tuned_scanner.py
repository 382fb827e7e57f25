"""A scanner whose devices a claim can configure."""

from dataclasses import dataclass

import kubedevices as kd
from kubedevices.values.cdi import ContainerEdits


@dataclass(frozen=True)
class WidgetConfig:
    """The parameters of a claim."""

    api_version: str = ""
    watts: int = 100

    def __post_init__(self) -> None:
        """Refuse another version."""
        if self.api_version not in ("", "example.com/v1"):
            raise ValueError(f"apiVersion: unknown version {self.api_version}")


class Tuned(kd.PolledScanner, kd.ClaimPreparer):
    """Three devices with a variable that the parameters set."""

    interval = 0.1
    parameters = WidgetConfig

    def list_devices(self) -> kd.DeviceTree:
        """Return the devices."""
        return kd.DeviceTree({"widget": [kd.Device(name) for name in "abc"]})

    def prepare_claim(self, claimed: kd.ClaimedDevices) -> ContainerEdits:
        """Return the variable."""
        return ContainerEdits(env=(f"WATTS={claimed.parameters.watts}",))

    def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        """Undo nothing."""
