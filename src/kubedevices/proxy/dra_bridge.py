"""Plugins behind the proxy as DRA drivers: one driver for each domain of resources. asyncio.

Each device type of a domain may come from another plugin. The lists of these plugins become one
tree for the driver. Prepare becomes an Allocate call for exactly the devices that the scheduler
chose. Needs h11.
"""

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import Any

from kubedevices.device_tree import DeviceTree
from kubedevices.dra.driver import DraDriver
from kubedevices.dra.kubeconfig import find_access
from kubedevices.dra.options import DraOptions, DraSettings
from kubedevices.dra.state_files import StateFiles
from kubedevices.errors import KubedevicesError
from kubedevices.host import untrusted_files
from kubedevices.plugin import scan_task
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scan_task import TreeUpdates
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.timing import back_off

FILE_NAME = "dra-domains.json"
FIRST_LIST_TIMEOUT = 5.0
"""Seconds that plugins have to send a list before the driver begins without them."""

# Seconds until a failed driver is started again: doubled with each failure.
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
_SIZE_LIMIT = 2**20
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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST_TIMEOUT):
                # A tree without a plugin's devices would delete its ResourceSlices. So after a
                # restart of the proxy all plugins have `FIRST_LIST_TIMEOUT` to send a list.
                while not self._trees or None in self._trees.values():
                    self._changed.clear()
                    await self._changed.wait()
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
        self._options, self._file = options, state_dir / FILE_NAME
        self._settings = DraSettings(**options)
        # So a wrong kubeconfig is an error at the start, not an error of each driver later.
        find_access(self._settings.kubeconfig)
        self._scanners: dict[str, DomainScanner] = {}
        self._wanted = asyncio.Event()
        self.drivers: dict[str, DraDriver] = {}
        """The driver of each domain."""

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
        """Run the drivers until cancelled; a driver that fails is started again after a pause."""
        for domain in self._known():
            if StateFiles(self._settings.data_dir(domain)).need_a_driver():
                # The kubelet unprepares claims of ended pods, also before the plugin registers.
                self._scanner_of(domain)
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                self._wanted.clear()
                for domain in self._scanners.keys() - tasks.keys():
                    tasks[domain] = asyncio.create_task(self._keep(domain), name=f"DRA {domain}")
                await self._wanted.wait()
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def unlink_sockets(self) -> None:
        """Remove the drivers' socket files at once."""
        for driver in self.drivers.values():
            driver.unlink_sockets()

    async def _keep(self, domain: str) -> None:
        failures = 0
        while True:
            try:
                driver = DraDriver(self._scanners[domain], domain=domain, **self._options)
                self.drivers[domain] = driver
                await driver.run()
            except KubedevicesError as error:
                pause = back_off(_FIRST_PAUSE, _LAST_PAUSE, failures)
                failures += 1
                _log.error("%s: no DRA driver: %s (again in %g s)", domain, error, pause)
                await asyncio.sleep(pause)

    def _scanner_of(self, domain: str) -> DomainScanner:
        if domain not in self._scanners:
            self._scanners[domain] = DomainScanner()
            self._note()
            self._wanted.set()
        return self._scanners[domain]

    def _known(self) -> list[str]:
        """Return the domains that an earlier process served."""
        return untrusted_files.read_note(self._file, _domains, [], limit=_SIZE_LIMIT)

    def _note(self) -> None:
        try:
            self._file.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            # No domain is ever removed: a domain without plugins may still have claims or slices.
            known = sorted({*self._known(), *self._scanners})
            untrusted_files.replace(self._file, json.dumps(known).encode())
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._file, error.strerror)


def _domains(found: Any) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
