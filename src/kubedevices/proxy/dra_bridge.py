"""Plugins behind the proxy as DRA drivers: one driver for each domain of resources. asyncio.

Each device type of a domain may come from another plugin. The lists of these plugins become one
tree for the driver. Prepare becomes an Allocate call for exactly the devices that the scheduler
chose. Needs h11.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kubedevices.dra.driver import DraDriver
from kubedevices.dra.kubeconfig import find_access
from kubedevices.dra.names import DeviceKey
from kubedevices.dra.options import DraOptions, DraSettings
from kubedevices.dra.state_files import StateFiles
from kubedevices.errors import CannotAsk
from kubedevices.host import deadlines
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.host.state_file import StateFile
from kubedevices.plugin import scan_task
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scan_task import TreeUpdates
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.supervised_tasks import SupervisedTasks
from kubedevices.rules.hold import Holders
from kubedevices.values.device_tree import DeviceTree

FILE_NAME = "dra-domains.json"
FIRST_LIST_TIMEOUT = 5.0
"""Seconds that plugins have to send a list before the driver begins without them."""

_SIZE_LIMIT = 2**20
_VERSION = 1
_log = logging.getLogger(__name__)


class DomainScanner(Scanner):
    """Joins the scanners of all resources of a domain."""

    def __init__(self) -> None:
        # The last tree of each plugin, None before the first.
        self._trees: dict[object, DeviceTree | None] = {}
        # By device type, also of removed plugins: the driver may still have to unprepare claims of
        # their devices.
        self._types: dict[str, Scanner] = {}
        self._changed = asyncio.Event()

    def add(self, plugin: object) -> None:
        """Expect trees of a plugin. A tree from before, by an older rule, counts until then."""
        self._trees.setdefault(plugin, None)

    def remove(self, plugin: object) -> None:
        """Remove the devices of a plugin; its calls stay, for claims that are unprepared later."""
        if plugin in self._trees:
            del self._trees[plugin]
            self._changed.set()

    def take(self, plugin: object, scanner: Scanner, tree: DeviceTree) -> bool:
        """Store the newest tree of a plugin; return whether a type has another scanner now."""
        self._trees[plugin] = tree
        is_new = any(self._types.get(kind) is not scanner for kind in tree)
        self._types |= dict.fromkeys(tree, scanner)
        self._changed.set()
        return is_new

    async def scan(self, notifier: Notifier) -> None:
        """Report all trees when every scanner has one, or after `FIRST_LIST_TIMEOUT`."""
        # A tree without a plugin's devices would delete its ResourceSlices. So after a restart of
        # the proxy all plugins have `FIRST_LIST_TIMEOUT` to send a list.
        until = asyncio.get_running_loop().time() + FIRST_LIST_TIMEOUT
        while not self._trees or None in self._trees.values():
            self._changed.clear()
            if not await deadlines.until(until, self._changed.wait()):
                break
        while True:
            self._changed.clear()
            trees = [each for each in self._trees.values() if each is not None]
            notifier.notify(
                DeviceTree(
                    {kind: [*each.devices(kind).values()] for each in trees for kind in each}
                )
            )
            await self._changed.wait()

    def abilities_of(self, device_type: str) -> object:
        """Return the abilities of the plugin of this type."""
        scanner = self._types.get(device_type)
        return scanner.abilities_of(device_type) if scanner is not None else object()


class DraBridge:
    """The DRA drivers of all domains; a driver starts when its first resource is served.

    `run` has to run while `serve` is called. Raises `UsageError` and `CannotRead` if the settings
    permit no driver.
    """

    def __init__(self, options: DraOptions, state_dir: Path) -> None:
        self._options = options
        directory = SharedDirectory(state_dir)
        self._file = StateFile(directory, FILE_NAME, limit=_SIZE_LIMIT, version=_VERSION)
        self._settings = DraSettings(**options)
        # So a wrong kubeconfig is an error at the start, not an error of each driver later.
        find_access(self._settings.kubeconfig)
        self._scanners: dict[str, DomainScanner] = {}
        self._wanted = asyncio.Event()
        self._started: set[str] = set()
        self.tasks = SupervisedTasks()
        """The task of each driver: a driver that fails is started again after a pause."""

        self.drivers: dict[str, DraDriver] = {}
        """The driver of each domain."""

        self.driver_made: Callable[[DraDriver], None] = lambda _: None
        """Called with each new driver before it runs, also with one that starts again."""

    async def serve(self, domain: str, scanner: Scanner, plugin: object) -> None:
        """Give the trees of `scanner` to the driver of `domain`, until cancelled.

        Afterwards the last tree stays, until `serve` for the same plugin has another, or `forget`.
        So a change of a rule takes no device out of the slices for a moment.
        """
        whole = self._scanner_of(domain)
        for each in self._scanners.values():
            if each is not whole:
                each.remove(plugin)
        updates = TreeUpdates()
        whole.add(plugin)
        try:
            await run_together(
                ("scan", scan_task.scan(scanner, updates.notifier)),
                ("lists", self._pass_on(domain, scanner, plugin, updates)),
            )
        finally:
            updates.stop()

    def forget(self, plugin: object) -> None:
        """Remove the devices of a plugin that is gone, or that no rule serves."""
        for each in self._scanners.values():
            each.remove(plugin)

    async def _pass_on(
        self, domain: str, scanner: Scanner, plugin: object, updates: TreeUpdates
    ) -> None:
        while True:
            tree, _ = await updates.next()
            if self._scanners[domain].take(plugin, scanner, tree) and domain in self.drivers:
                # A new middleware chain has its own abilities: the driver must not call the old.
                self.drivers[domain].renew_abilities()

    async def run(self) -> None:
        """Run the drivers until cancelled."""
        for domain in self._known():
            if StateFiles(self._settings.data_dir(domain)).need_a_driver():
                # The kubelet unprepares claims of ended pods, also before the plugin registers.
                self._scanner_of(domain)
        try:
            while True:
                self._wanted.clear()
                for domain in self._scanners.keys() - self._started:
                    self._started.add(domain)
                    self.tasks.start(f"DRA driver {domain}", partial(self._drive, domain))
                await self._wanted.wait()
        finally:
            await self.tasks.stop()
            self._started.clear()

    @property
    def problems(self) -> Iterator[str]:
        """Why a driver is not ready; nothing if all are."""
        yield from (f"{name}: {error}" for name, error in self.tasks.failed.items())
        for domain in self._scanners:
            driver = self.drivers.get(domain)
            if driver is None:
                yield f"driver {domain}: has not started"
            else:
                yield from driver.why_not_ready

    def holders(self, domain: str) -> Holders:
        """Return the question which devices of `domain` claims hold; raises `CannotAsk`."""

        async def ask() -> set[DeviceKey]:
            driver = self.drivers.get(domain)
            if driver is None or (offer := driver.offer) is None:
                raise CannotAsk(f"the DRA driver {domain} has not read its claims yet")
            results = (result for claim in driver.claims for result in claim.results)
            labels = {each.device for each in results if each.device in offer.devices}
            return {key for label in labels for key in offer.keys_of(label)}

        return ask

    def unlink_sockets(self) -> None:
        """Remove the drivers' socket files at once."""
        for driver in self.drivers.values():
            driver.unlink_sockets()

    async def _drive(self, domain: str) -> None:
        driver = DraDriver(self._scanners[domain], domain=domain, **self._options)
        self.drivers[domain] = driver
        self.driver_made(driver)
        await driver.run()

    def _scanner_of(self, domain: str) -> DomainScanner:
        if domain not in self._scanners:
            self._scanners[domain] = DomainScanner()
            self._note()
            self._wanted.set()
        return self._scanners[domain]

    def _known(self) -> list[str]:
        """Return the domains that an earlier process served."""
        return self._file.read_or(_domains, [])

    def _note(self) -> None:
        try:
            # No domain is ever removed: a domain without plugins may still have claims or slices.
            self._file.write({"domains": sorted({*self._known(), *self._scanners})})
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._file.path, error.strerror)


def _domains(document: Any) -> list[str]:
    # Before versions the file was the list.
    found = document["domains"] if isinstance(document, dict) else document
    return [each for each in found if isinstance(each, str)]
