"""One device type from its first devices to its removal: look up, list, serve, register, retry.

Each type has a task of its own, so that a slow look-up or a failing socket of one type does not
delay the other types. The runner owns the tasks.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from kubedevices.errors import CannotAsk, DeviceListTooLarge, KubedevicesError
from kubedevices.host import deadlines
from kubedevices.host.file_watch import FileWatch
from kubedevices.host.sysfs import NumaReader
from kubedevices.plugin import hook_threads
from kubedevices.plugin.cdi import CdiFiles
from kubedevices.plugin.device_list import DeviceList, DeviceListBuilder
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.numa_lookup import NumaLookup
from kubedevices.plugin.options import Settings
from kubedevices.plugin.registrar import Registrar
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.timing import back_off
from kubedevices.plugin.watched_plugin import WatchedPlugin
from kubedevices.values.device import Device
from kubedevices.values.resource_name import ResourceName

if TYPE_CHECKING:
    from kubedevices.plugin.cdi_form import AnswerForm

_log = logging.getLogger(__name__)


class ServedType:
    """Serves one resource. `update` may be called at any time; the newest devices count.

    The constructor raises `SocketPathTooLong`, before a task is started.
    """

    def __init__(
        self,
        resource: ResourceName,
        devices: Mapping[str, Device],
        *,
        hooks: Hooks,
        settings: Settings,
        watch: FileWatch,
        cdi: CdiFiles,
        sent: bytes = b"",
    ) -> None:
        self.resource = str(resource)
        self.server: PluginServer | None = None
        self.registrar: Registrar | None = None
        self._type = resource.device_type
        self._hooks, self._settings, self._watch = hooks, settings, watch
        self._cdi = cdi
        self._answer_form: AnswerForm | None = None  # created for the first device that needs it
        self._socket = settings.socket_of(self.resource, self._type)
        self._devices, self._sent = devices, sent
        self._updated = asyncio.Event()
        self.too_large: DeviceListTooLarge | None = None
        """Why some devices are not offered; without a server: why no device is offered."""

    def update(self, devices: Mapping[str, Device], sent: bytes = b"") -> None:
        """Take new devices by ID; returns at once. `sent` as in `DeviceTree.sent`."""
        self._devices, self._sent = devices, sent
        self._updated.set()

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted our registration of this resource."""
        return self.registrar is not None and self.registrar.is_registered

    @property
    def is_serving(self) -> bool:
        """Whether the socket is bound and accepts calls."""
        return self.registrar is not None and self.registrar.is_serving

    async def run(self) -> NoReturn:
        """Serve until cancelled; raises lasting errors unless `on_server_error` is `isolate`."""
        loop, timing = asyncio.get_running_loop(), self._settings.timing
        failures = 0
        while True:
            started = loop.time()
            try:
                await self._hooks.on_type_added(self._type)
                try:
                    await self._serve()
                finally:
                    # Before the hook runs: readiness and metrics must not report a socket that was
                    # given up.
                    self.server = self.registrar = None
                    await self._hooks.on_type_removed(self._type, timing.removed_grace)
            except (KubedevicesError, OSError) as error:
                if self._settings.on_server_error == "exit":
                    if isinstance(error, KubedevicesError):
                        raise
                    raise CannotAsk(f"{self.resource}: {error}") from error
                if loop.time() - started > timing.isolate_last:
                    failures = 0
                pause = back_off(timing.isolate_first, timing.isolate_last, failures)
                failures += 1
                _log.error(  # no traceback: it is a message for the operator
                    "%s: not served: %s (again in %g s or when its devices change)",
                    self.resource, error, pause,
                )  # fmt: skip
                await deadlines.within(pause, self._updated.wait())

    async def _serve(self) -> NoReturn:
        settings = self._settings
        reader = NumaReader(sysfs_root=settings.sysfs_root, dev_root=settings.dev_root)
        lookup = NumaLookup(reader)
        builder = DeviceListBuilder(self.resource, settings.max_list_size)
        server = PluginServer(
            self.resource,
            self._hooks,
            # The first list that a kubelet reads must be complete: after an empty list the capacity
            # of the node would be 0 until the next list.
            await self._first_list(lookup, builder),
            settings,
            self._cdi.ensure,
        )
        watched = WatchedPlugin(
            self.resource,
            try_again=lambda: registrar.unlink_socket(),  # noqa: PLW0108 - defined below
            endpoint=settings.endpoint_of(self._socket),
        )
        registrar = Registrar(
            server,
            self._socket,
            settings.kubelet_socket,
            self._watch,
            settings.timing,
            watched=watched if settings.registration == "watch" else None,
        )
        self.server, self.registrar = server, registrar
        await run_together(
            (f"registrar of {self.resource}", registrar.run()),
            (f"updates of {self.resource}", self._follow(server, lookup, builder)),
            (f"refusal of {self.resource}", watched.watch()),
        )
        raise AssertionError("unreachable: both run until cancelled or until one raises")

    async def _first_list(self, lookup: NumaLookup, builder: DeviceListBuilder) -> DeviceList:
        """Wait for devices that fit into a list; the other types are served meanwhile."""
        while True:
            try:
                return await self._build(lookup, builder)
            except DeviceListTooLarge as error:
                if self.too_large is None:
                    _log.error("%s; it is not served until it fits", error)
                self.too_large = error
                await self._updated.wait()

    async def _follow(
        self, server: PluginServer, lookup: NumaLookup, builder: DeviceListBuilder
    ) -> NoReturn:
        while True:
            await self._updated.wait()
            # `_build` clears the event first. So devices that come while it runs are built in the
            # next round.
            server.publish(await self._build(lookup, builder))
            _log.debug("%s: updated, %r", self.resource, server)

    async def _build(self, lookup: NumaLookup, builder: DeviceListBuilder) -> DeviceList:
        """Build the list of the newest devices, in a thread: it reads /sys, and lists can be long.

        The list of another plugin is passed on unchanged, without a thread, because this is quick.
        """
        self._updated.clear()
        # Cleared before the devices are read: an update in between sets the event again.
        given, sent = self._devices, self._sent

        def build() -> DeviceList:
            if sent:
                return builder.build(given, sent)
            devices = lookup.complete_type(self._type, given)
            if self._cdi.needs_form(devices.values()):
                self._answer_form = self._answer_form or self._cdi.answer_form(self._type)
                devices = self._answer_form.complete(devices)
            return builder.build(devices)

        is_made = 0 < len(sent) <= self._settings.max_list_size
        made = build() if is_made else await hook_threads.call(build)
        if made.too_large and not self.too_large:
            _log.error(
                "%s; %d are offered as before, %d are left out until all fit again",
                made.too_large, len(made.devices), made.left_out,
            )  # fmt: skip
        elif self.too_large and not made.too_large:
            _log.warning("%s: all %d devices fit again", self.resource, len(made.devices))
        self.too_large = made.too_large
        return made


async def run_together(*named: tuple[str, Coroutine[Any, Any, object]]) -> None:
    """Run coroutines until the first one ends; cancel the others; raise the first error.

    Unlike in a task group, also an end without an error cancels the others, and the error is raised
    alone, not in a group.
    """
    tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in named]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # Also when we are cancelled: these tasks remove their sockets in `finally`.
        await asyncio.wait(tasks)
        errors = [error for task in tasks if not task.cancelled() and (error := task.exception())]
    if errors:
        raise errors[0]
