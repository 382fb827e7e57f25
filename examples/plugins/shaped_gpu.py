"""A DRA driver with configuration: a claim chooses the power limit of a GPU. Run with --mode dra.

The claim has `opaque: {driver: example.com, parameters: {powerWatts: 150}}`.
"""

from dataclasses import dataclass
from pathlib import Path

import kubedevices as kd
from kubedevices.values.cdi import ContainerEdits


@dataclass(frozen=True)
class GpuConfig:
    power_watts: int = 100


class ShapedGpus(kd.PolledScanner, kd.ClaimPreparer):
    parameters = GpuConfig

    def __init__(self, sysfs_root: Path = Path("/sys"), dev_root: Path = Path("/dev")) -> None:
        self.drm, self.dev = sysfs_root / "class/drm", dev_root

    def list_devices(self) -> kd.DeviceTree:
        cards = [each.name for each in sorted(self.drm.glob("card[0-9]"))]
        return kd.DeviceTree({"gpu": [kd.Device(n, paths=[self.dev / "dri" / n]) for n in cards]})

    def prepare_claim(self, claimed: kd.ClaimedDevices) -> ContainerEdits:
        watts = claimed.parameters.power_watts
        for card in claimed.device_ids:
            self.limit(card).write_text(f"{watts * 1_000_000}\n")
        return ContainerEdits(env=(f"POWER_WATTS={watts}",))

    def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        for card in claimed.device_ids:
            usual = self.limit(card).with_name("power1_cap_default").read_text()
            self.limit(card).write_text(usual)

    def limit(self, card: str) -> Path:
        return next((self.drm / card / "device/hwmon").glob("hwmon*")) / "power1_cap"
