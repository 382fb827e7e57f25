"""The counterpart of `minimal_grpcio_plugin`, with kubedevices: `count` devices of one type.

For every line on standard input, the plugin changes the health of one device.
"""

import asyncio
import os
import sys
from pathlib import Path

import kubedevices as kd


class Widgets(kd.Scanner):
    def __init__(self, count: int) -> None:
        self.devices = [
            kd.Device(f"widget-{n}", paths=[f"/dev/widget-{n}"], numa_nodes=())
            for n in range(count)
        ]

    async def scan(self, notifier: kd.Notifier) -> None:
        loop = asyncio.get_running_loop()
        commands: asyncio.Queue[bytes] = asyncio.Queue()
        loop.add_reader(0, lambda: commands.put_nowait(os.read(0, 4096)))
        other = kd.Device(
            "widget-0", paths=["/dev/widget-0"], numa_nodes=(), health=kd.Health.UNHEALTHY
        )
        while True:
            notifier.notify(kd.DeviceTree({"widget": self.devices}))
            if not await commands.get():
                return
            self.devices[0], other = other, self.devices[0]


if __name__ == "__main__":
    kd.run(Widgets(int(sys.argv[2])), domain="bench.example.com", socket_dir=Path(sys.argv[1]))
