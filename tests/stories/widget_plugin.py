"""A small plugin as a separate program, for tests of signals and exit codes.

`python -m tests.stories.widget_plugin SOCKET_DIR DEVICES [WHAT]`: the devices are the files of a
directory; WHAT makes it misbehave or wait.
"""

import asyncio
import logging
import sys
import time
from pathlib import Path

import kubedevices as kd


class Widgets(kd.PolledScanner, kd.Allocator, kd.ContainerPreStarter):
    """One device per file; healthy unless the file says otherwise."""

    interval = 0.05

    def __init__(self, directory: Path, what: str) -> None:
        self.directory, self.what = directory, what

    def list_devices(self) -> kd.DeviceTree:
        if self.what == "raise":
            raise ValueError("no bus")
        return kd.DeviceTree({"widget": [self._device(p) for p in self.directory.iterdir()]})

    def _device(self, path: Path) -> kd.Device:
        health = kd.Health(path.read_text() or "Healthy")
        return kd.Device(path.name, health=health, paths=["/dev/null"], numa_nodes=())

    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        self._maybe_hang("allocate")
        if self.what == "talk":
            print("x" * 8000, flush=True)
            logging.getLogger(__name__).error("y" * 8000)
        return kd.USE_DEFAULT  # type: ignore[return-value]

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        self._maybe_hang("pre_start")

    def _maybe_hang(self, hook: str) -> None:
        if self.what == hook:
            (self.directory.parent / "hanging").touch()
            time.sleep(60)


class Blocking(kd.Scanner):
    """Blocks the event loop, as a wrong scanner does."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    async def scan(self, notifier: kd.Notifier) -> None:
        notifier.notify(kd.DeviceTree({"widget": [kd.Device("w1")]}))
        await asyncio.sleep(0.2)
        self.marker.touch()
        time.sleep(60)  # noqa: ASYNC251


class Finished(kd.Scanner):
    """A scanner that ends."""

    async def scan(self, notifier: kd.Notifier) -> None:
        notifier.notify(kd.DeviceTree({"widget": [kd.Device("w1")]}))


def main() -> None:
    """Run the scanner that the command line names."""
    socket_dir, directory = Path(sys.argv[1]), Path(sys.argv[2])
    what = sys.argv[3] if len(sys.argv) > 3 else ""
    scanner: kd.Scanner = Widgets(directory, what)
    if what == "block":
        scanner = Blocking(directory.parent / "hanging")
    if what == "finish":
        scanner = Finished()
    domain = "Not A Domain" if what == "domain" else "example.com"
    kd.run(scanner, domain=domain, socket_dir=socket_dir)


if __name__ == "__main__":
    main()
