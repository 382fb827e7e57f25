"""The handle of a scanner that runs as a DRA driver on a bench. Needs h11."""

from pathlib import Path

from kubedevices.bench.loop_thread import LoopThread
from kubedevices.bench.plugins import RunnerPlugin
from kubedevices.dra.driver import DraDriver
from kubedevices.dra.options import DraOptions
from kubedevices.plugin.scanner import Scanner


class DriverPlugin(RunnerPlugin[DraDriver]):
    """A scanner served by the bench's own thread; made by `Bench.start` with `mode="dra"`."""

    def __init__(
        self, thread: LoopThread, scanner: Scanner, domain: str, options: DraOptions
    ) -> None:
        async def make() -> DraDriver:
            return DraDriver(scanner, domain=domain, **options)

        super().__init__(thread, scanner, domain, make())

    def socket_files(self) -> list[Path]:
        """Return both sockets: the one for calls, and the one by which a kubelet finds it."""
        return [self.runner.sockets.service, self.runner.sockets.registration]
