"""The plugin of the node's tables: `python -m benchmarks.node_plugin DIRECTORY NUMA_NODES TYPE=N…`.

The plugin serves N devices of each TYPE, distributed over the NUMA nodes. For every line on
standard input, the plugin changes the health of one device of the first type.
"""

import asyncio
import os
import sys
from pathlib import Path

import kubedevices as kd

MAX_LIST_SIZE = 64 * 1024 * 1024


class Devices(kd.Scanner):
    def __init__(self, numa_nodes: int, counts: dict[str, int]) -> None:
        self.types = {
            name: [_device(name, number, numa_nodes) for number in range(count)]
            for name, count in counts.items()
        }
        self.first, *_ = counts
        self.other = _device(self.first, 0, numa_nodes, kd.Health.UNHEALTHY)

    async def scan(self, notifier: kd.Notifier) -> None:
        commands: asyncio.Queue[bytes] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(0, lambda: commands.put_nowait(os.read(0, 4096)))
        devices = self.types[self.first]
        while True:
            notifier.notify(kd.DeviceTree(self.types))
            if not await commands.get():
                return
            devices[0], self.other = self.other, devices[0]


def _device(
    name: str, number: int, numa_nodes: int, health: kd.Health = kd.Health.HEALTHY
) -> kd.Device:
    return kd.Device(
        f"{name}-{number}",
        paths=[f"/dev/{name}-{number}"],
        numa_nodes=(number % numa_nodes,) if numa_nodes else (),
        health=health,
    )


def main() -> None:
    directory, numa_nodes, *types = sys.argv[1:]
    counts = {name: int(count) for name, _, count in (each.partition("=") for each in types)}
    kd.run(
        Devices(int(numa_nodes), counts),
        domain="bench.example.com",
        socket_dir=Path(directory),
        max_list_size=MAX_LIST_SIZE,
    )


if __name__ == "__main__":
    main()
