"""Sets up a `Harness`: directories, the supervisor, the plugin's private view, and the probe."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubedevices.check.busy_machine import LostTime
from kubedevices.check.directories import InPlaceDirectories, PathMap, RunDirectories
from kubedevices.check.harness import Harness
from kubedevices.check.processes import Supervisor, SupervisorRefused
from kubedevices.check.shared_state import DeviceChanges, SharedState
from kubedevices.check.target import Target, registry_beside
from kubedevices.check.timing import CheckTiming
from kubedevices.errors import NoPrivateView
from kubedevices.testing.kubelet.kubelet import Probe


@asynccontextmanager
async def open_harness(
    target: Target, timing: CheckTiming, shared: SharedState | None = None
) -> AsyncIterator[Harness]:
    """Prepare directories, supervisor and probe; afterwards end all processes and remove the files.

    Raises `NoPrivateView` if the plugin needs a private view and the host does not allow one.
    """
    needed = target.needs_private_view or bool(target.binds)
    private = bool(target.command) and not target.in_place and (needed or os.geteuid() == 0)
    kind = InPlaceDirectories if target.in_place else RunDirectories
    directories = kind.choose(has_registry=target.registry)
    shared = shared or SharedState(DeviceChanges(target.trigger))
    binds = directories.binds(target.binds) if private else []
    # Before the directories exist: the supervisor removes them even if this process is killed.
    supervisor = await Supervisor.open(directories.root)
    try:
        directories.create()
        try:
            await supervisor.enter_private_view(binds)
        except SupervisorRefused as error:
            if needed:
                raise NoPrivateView(str(error)) from error
            # Root in a container may not mount. The command names the directories, so the plugin
            # needs no private view.
            await supervisor.close()
            supervisor, binds = await Supervisor.open(directories.root), []
            directories.create()
        path_map = PathMap(binds)
        lost_time = LostTime(supervisor.pid)
        registry = directories.registry if target.command else registry_beside(target.directory)
        probe = Probe(
            target.directory or directories.sockets,
            registry if target.registry else None,
            directories.pod_resources if target.command else None,
            dial_limit=timing.dial,
            outside=path_map.outside,
            ask=lost_time.ask,
        )
        harness = Harness(
            target,
            timing,
            shared,
            probe=probe,
            supervisor=supervisor,
            lost_time=lost_time,
            path_map=path_map,
            directories=directories,
        )
        async with probe, watched(lost_time):
            try:
                yield harness
            finally:
                harness.keep_logs()
    finally:
        await supervisor.close()
        directories.leave()


@asynccontextmanager
async def watched(lost_time: LostTime) -> AsyncIterator[None]:
    """Measure the time that is lost to other programs."""
    watching = asyncio.create_task(lost_time.watch(), name="time lost to other programs")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
