"""A DRA driver from start to stop: one scanner, two sockets, the slices of one node. asyncio.

The driver is used like `plugin.runner`: call `run` once, and `stop` at any time. The service socket
is created before the registration socket, by which a kubelet finds the driver, and removed after
it.
"""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, NoReturn, Unpack

from kubedevices.dra.abandoned_search import AbandonedSearch
from kubedevices.dra.allocations import Allocations
from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.claim_log import FILE_NAME as REFUSED_FILE
from kubedevices.dra.claim_log import ClaimLog
from kubedevices.dra.deployment_lock import FILE_NAME as LOCK_OF_DEPLOYMENT
from kubedevices.dra.deployment_lock import DeploymentLock, deployment_of
from kubedevices.dra.device_plugin_guard import Guard, KubeletGuard
from kubedevices.dra.kubeconfig import find_access
from kubedevices.dra.names import DeviceKey, check_driver_name
from kubedevices.dra.options import DraOptions, DraSettings
from kubedevices.dra.parameters import check_schema
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.prepared_file import FILE_NAME
from kubedevices.dra.publisher import Publisher, Slices
from kubedevices.dra.service import ClaimService
from kubedevices.dra.slices import (
    Offer,
    describe_left_out,
    describe_refused,
    describe_repeated,
    offer_of,
)
from kubedevices.dra.sockets import DriverSockets
from kubedevices.dra.state_files import StateFiles
from kubedevices.dra.tree_lookup import TreeLookup
from kubedevices.host.boot_id import read_boot_id
from kubedevices.host.file_watch import FileWatch
from kubedevices.kubelet_api.dra import HEALTH_SERVICES, PLUGIN_SERVICES, PLUGIN_TYPE, dra_methods
from kubedevices.plugin import hook_threads, scan_task
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.scan_task import TreeUpdates
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.stoppable import Stoppable
from kubedevices.values.allocation import PluginInfo
from kubedevices.values.device_tree import DeviceTree

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kubedevices.dra.prepared_file import PreparedClaim

# Seconds for a scan to end, and for claims that are still being prepared when the calls have ended.
_STOP_GRACE = 2.0
_log = logging.getLogger(__name__)


class DraDriver(Stoppable):
    """Serves the devices of `scanner` as the driver `domain`. Raises `UsageError`.

    `guard` decides which devices are withheld (default: a `KubeletGuard`).
    """

    offer: Offer | None = None
    """The offer from the scanner's last device tree; None before the first tree."""

    knows_claims = False
    """Whether the checkpoint has been read: until then `reason_to_keep` keeps all devices."""

    def __init__(
        self,
        scanner: Scanner,
        *,
        domain: str,
        guard: Guard | None = None,
        **options: Unpack[DraOptions],
    ) -> None:
        super().__init__()
        scan_task.check_scanner(scanner)
        self.domain = check_driver_name(domain)
        self.settings = settings = DraSettings(**options)
        self._scanner = scanner
        paths = (settings.service_socket(domain), settings.registration_socket(domain))
        self.sockets = DriverSockets(domain, *paths, settings.timing)
        """The sockets by which a kubelet finds and calls the driver."""

        self._api = ApiClient(find_access(settings.kubeconfig))
        self._hooks: dict[str, Hooks] = {}
        self._guard = guard or KubeletGuard(domain, settings.pod_resources, settings.guard_timing)
        directory, node = settings.data_dir(domain), settings.node_name
        self._preparation = Preparation(
            domain, node, directory / FILE_NAME, settings.cdi_dir, read_boot_id()
        )
        self._service = ClaimService(
            domain,
            settings.node_name,
            self._api,
            self._preparation,
            self._hooks_of,
            dev_root=settings.dev_root,
            timeouts=settings.hook_timeouts,
            guard=self._guard,
            metadata=settings.metadata,
        )
        self._abandoned = self._make_search()
        self.allocations = Allocations(self._api, domain, settings.node_name)
        """Finds claims with devices that are in no slice any more."""

        self._deployment = DeploymentLock(
            directory / LOCK_OF_DEPLOYMENT, domain, deployment_of(socket.gethostname(), node)
        )
        self._state_files = StateFiles(directory)
        self.publisher = Publisher(self._api, domain, node)
        """Writes the ResourceSlices."""

        self.claim_log = ClaimLog(self._service, directory / REFUSED_FILE)
        """Receives the kubelet's calls, and has the refused claims."""

        self.withheld: Mapping[DeviceKey, str] = {}
        """The devices that are not published because of the guard, each with the reason."""

        self._tree: DeviceTree | None = None
        self._guard_changed = asyncio.Event()
        # Held while the state file changes, so that the file and the published slices agree.
        self._state_lock = asyncio.Lock()

    def _make_search(self) -> AbandonedSearch:
        search = AbandonedSearch(
            self.domain,
            self._api,
            claims=lambda: self._preparation.claims,
            of_pods=self._guard.claims_of_pods,
            free=self._service.work.unprepare_if,
            # Another API server, after a mistake in a kubeconfig, knows no claim of this node.
            is_trusted=lambda: self.publisher.is_published,
            timing=self.settings.search_timing,
        )
        self._service.holder_wait.on_conflict = search.look_soon
        return search

    def __repr__(self) -> str:
        state = "registered" if self.is_registered else "not registered"
        return f"<DraDriver {self.domain}: {state}>"

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet's last answer accepted this instance of the driver."""
        return self.sockets.is_registered

    @property
    def has_started(self) -> bool:
        """Whether both sockets are served. A kubelet may come later."""
        return self.sockets.has_started

    @property
    def why_not_ready(self) -> "Sequence[str]":
        """The reasons why the driver is not ready; empty if kubelet and API server know it."""
        if self.offer is None:
            return (f"driver {self.domain}: the scanner has not reported yet",)
        missing = []
        if not self.is_registered:
            missing.append(f"driver {self.domain}: no kubelet has registered it")
        if not self.publisher.is_published:
            why = self.publisher.problem or "the API server has not been asked yet"
            missing.append(f"driver {self.domain}: its devices are not published: {why}")
        return missing

    @property
    def claims(self) -> "Sequence[PreparedClaim]":
        """All claims in the checkpoint, also claims of an earlier boot."""
        return self._preparation.claims

    @property
    def requests(self) -> "Mapping[tuple[str, str], int]":
        """The number of calls to the API server, by verb and resource."""
        return self._api.requests

    def reason_to_keep(self, label: str) -> str:
        """Return why the device `label` is still in DRA; empty if it is not."""
        if not self.knows_claims:
            return "the prepared claims are not known yet"
        if self._service.work.is_held(label):
            return "a claim has it"
        return "a ResourceSlice may still have it" if self.publisher.may_have(label) else ""

    async def forget_devices(self, labels: "Collection[str]") -> None:
        """Record that these devices have left DRA, so that the next process need not ask."""
        async with self._state_lock:
            await hook_threads.call(self._state_files.forget_devices, labels)

    async def forget_slices(self) -> None:
        """If no slice is left, record this, so that the next process need not look for slices."""
        async with self._state_lock:
            if not self._guard.publishes and self.publisher.is_empty:
                await hook_threads.call(self._state_files.forget_slices)

    def unlink_sockets(self) -> None:
        """Remove the socket files of this instance at once: for an exit that cannot wait."""
        self.sockets.unlink()

    async def run(self) -> None:
        """Scan and serve until the scanner ends, `stop` is called, or an error ends a part.

        At the end the sockets are removed. Slices, checkpoint and CDI files stay: pods go on.
        """
        if not self._begin():
            return
        try:
            async with scan_task.scanning(self._scanner, _STOP_GRACE) as (updates, scan):
                await run_together(
                    ("driver", self._serve(updates)),
                    ("end of the scan", scan_task.end_of(scan)),
                    ("stop", self._wait_stopped(updates.stop)),
                )
        finally:
            await hook_threads.settle(self.settings.timing.hook_grace)
            self._deployment.release()

    # ------------------------------------------------------------ serving

    async def _serve(self, updates: TreeUpdates) -> NoReturn:
        settings, service = self.settings, self._service
        await service.work.start()
        # The sockets come last: a kubelet calls as soon as it finds them, and the driver must know
        # claims, state files and devices by then.
        published = await hook_threads.call(self._state_files.published)
        if published is not None:
            self.publisher.assume_only(published)
        self.knows_claims = True
        await self.claim_log.begin()
        lookup = TreeLookup(settings.sysfs_root, settings.dev_root)
        tree, _ = await updates.next()
        await self._offer_tree(tree, lookup)
        names = (*PLUGIN_SERVICES, *HEALTH_SERVICES)
        info = PluginInfo(PLUGIN_TYPE, self.domain, str(self.sockets.service), names)
        watch = FileWatch(interval=settings.timing.look_interval, names_only=True)
        try:
            with watch:
                await run_together(
                    ("devices", self._follow(updates, lookup)),
                    ("guard", self._guard.run(self._guard_changed.set)),
                    ("withheld devices", self._follow_guard()),
                    ("slices", self._keep_slices()),
                    ("sockets", self.sockets.run(watch, dra_methods(self.claim_log), info)),
                    ("CDI files", self._keep_files(watch, service)),
                )
        finally:
            # The health streams never end by themselves: `sockets.stop` would wait for them.
            service.begin_end()
            grace = max(settings.timing.exit_grace - _STOP_GRACE, _STOP_GRACE)
            await self.sockets.stop(grace)
            await service.work.settle(_STOP_GRACE)
        raise AssertionError("unreachable: all run until cancelled or until one raises")

    async def _follow(self, updates: TreeUpdates, lookup: TreeLookup) -> NoReturn:
        while True:
            tree, _ = await updates.next()
            await self._offer_tree(tree, lookup)

    async def _follow_guard(self) -> NoReturn:
        while True:
            await self._guard_changed.wait()
            self._guard_changed.clear()
            await self._publish()

    async def _offer_tree(self, tree: DeviceTree, lookup: TreeLookup) -> None:
        """Offer a new tree to claims, to the kubelet and to the API server."""
        for device_type in tree:
            self._hooks_of(device_type)
        # Before the first socket and the first slice: both would harm another deployment.
        await hook_threads.call(self._deployment.take, list(tree))
        found = await hook_threads.call(lookup.complete, tree)
        offer = offer_of(found, self.domain, self.settings.unhealthy_effect)
        before = self.offer or Offer({}, (), {})
        for line in describe_refused(dict(offer.refused.items() - before.refused.items())):
            _log.error("%s", line)
        news = offer.left_out.keys() - before.left_out.keys()
        for line in describe_left_out({key: offer.left_out[key] for key in sorted(news)}):
            _log.warning("%s", line)
        for line in describe_repeated(sorted(offer.repeated - before.repeated)):
            _log.warning("%s", line)
        self._tree, self.offer = tree, offer
        self._service.update(offer)
        await self._publish()

    async def _publish(self) -> None:
        """Publish the devices that the guard does not withhold."""
        assert self._tree is not None
        assert self.offer is not None
        noted: frozenset[str] = frozenset()
        async with self._state_lock:
            while (slices := self._wanted_slices()) is not None:
                names = frozenset(device["name"] for part in slices for device in part)
                if names <= noted:
                    self.publisher.publish(slices)
                    return
                # Write the state file before the slices. After a kill in between, the next process
                # looks for slices that do not exist; in the other order it would not know of slices
                # that exist. During the write other devices may become wanted.
                await hook_threads.call(self._state_files.note_slices, names)
                noted = names

    def _wanted_slices(self) -> Slices | None:
        """Return the slices that the guard allows now.

        None means that the kubelet has not answered yet: slices of an earlier process stay
        unchanged.
        """
        if self._tree is None or self.offer is None:
            return None
        if not self._guard.publishes:
            return ()
        if (withheld := self._guard.withheld(self._tree)) is None:
            return None
        self.withheld = withheld
        return self.offer.slices_without(withheld)

    def renew_abilities(self) -> None:
        """Forget the hooks of each device type: the scanner may return others from now on."""
        self._hooks.clear()

    def _hooks_of(self, device_type: str) -> Hooks:
        """Return the hooks of a device type, also of a type that no longer exists."""
        if device_type not in self._hooks:
            self._hooks[device_type] = self._checked_hooks(device_type)
        return self._hooks[device_type]

    def _checked_hooks(self, device_type: str) -> Hooks:
        hooks = Hooks(self._scanner.abilities_of(device_type))
        if hooks.can_prefer:
            _log.warning(
                "%s.get_preferred_allocation() is not called in mode dra: the scheduler chooses, "
                "by the attributes of the devices", hooks.name,
            )  # fmt: skip
        if hooks.parameters is not None:
            check_schema(hooks.parameters)
        return hooks

    async def _keep_slices(self) -> NoReturn:
        """Run the publisher while no newer instance of the driver runs."""
        while True:
            await self.sockets.lead()
            await run_together(
                ("publisher", self.publisher.run()),
                ("abandoned claims", self._abandoned.run()),
                ("newer", self.sockets.yield_lead()),
            )
            # The newer instance writes now, so the state of the server is unknown when this
            # instance leads again.
            self.publisher.forget_server_state()

    async def _keep_files(self, watch: FileWatch, service: ClaimService) -> NoReturn:
        """Write CDI files again that somebody removed: a container needs them when it restarts.

        Also read the checkpoint after another instance has prepared or unprepared a claim.
        """
        checkpoint = self.settings.data_dir(self.domain) / FILE_NAME
        with watch.subscribe(self.settings.cdi_dir, checkpoint) as files:
            while True:
                await files.changed()
                await service.ensure_files()
