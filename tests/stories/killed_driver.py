"""A DRA driver as a separate program, for tests that kill it.

`python -m tests.stories.killed_driver DIRECTORY`. In the directory: `config` is the
kubeconfig, `boot` has the ID of the boot, `extra` the number of devices that no pod claims, and
`journal` gets a line for each call of the author's hooks.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path

import kubedevices as kd
from kubedevices.dra import driver as driver_module
from kubedevices.dra.device_plugin_guard import GuardTiming
from kubedevices.host.boot_id import read_boot_id
from kubedevices.plugin.timing import Timing

DRIVER = "example.com"
WIDGETS = 4


class Widgets(kd.PolledScanner, kd.ClaimPreparer):
    """Widgets for claims, and widgets that are added and removed."""

    interval = 0.02

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def list_devices(self) -> kd.DeviceTree:
        extra = int((self.directory / "extra").read_text())
        widgets = [
            kd.Device(f"w-{i}", env={f"W{i}": "1"}, paths=["/dev/null"]) for i in range(WIDGETS)
        ]
        tree = {"widget": widgets, "extra": [kd.Device(f"x-{i}") for i in range(extra)]}
        return kd.DeviceTree(tree)

    def prepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        self._note("prepare", claimed)

    def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        self._note("unprepare", claimed)

    def _note(self, call: str, claimed: kd.ClaimedDevices) -> None:
        """Write a line in one piece, whenever the process is killed; take a while."""
        line = f"{call} {claimed.claim.uid} {' '.join(claimed.device_ids)}\n"
        file = os.open(self.directory / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, line.encode())
        os.close(file)
        time.sleep(0.002)  # so that a kill may come in the middle of it


def main(directory: Path) -> None:
    vars(driver_module)["read_boot_id"] = partial(read_boot_id, directory / "boot")
    kd.run(
        Widgets(directory),
        domain=DRIVER,
        mode="dra",
        kubelet_dir=directory / "k",
        cdi_dir=directory / "cdi",
        node_name="bench",
        kubeconfig=directory / "k" / "kubeconfig",
        guard_timing=GuardTiming(pending=0.05, idle=0.5, young=0.0),
        timing=Timing(look_interval=0.05),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
