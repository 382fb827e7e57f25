"""Sets up a `Harness`: directories, the plugin's private view, and the probe."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubedevices.check.directories import InPlaceDirectories, RunDirectories
from kubedevices.check.harness import Harness
from kubedevices.check.program_copy import workplace
from kubedevices.check.shared_state import DeviceChanges, SharedState
from kubedevices.check.target import Target, registry_beside
from kubedevices.check.timing import CheckTiming
from kubedevices.testing.kubelet.kubelet import Probe
from kubedevices.testing.kubelet.mounts import Bind


@asynccontextmanager
async def open_harness(
    target: Target, timing: CheckTiming, shared: SharedState | None = None
) -> AsyncIterator[Harness]:
    """Open a workplace with a probe; in the end clean up all. Raises `NoPrivateView`."""
    needed = target.needs_private_view or bool(target.binds)
    private = bool(target.command) and not target.in_place and (needed or os.geteuid() == 0)
    kind = InPlaceDirectories if target.in_place else RunDirectories
    directories = kind.choose(has_registry=target.registry)
    shared = shared or SharedState(DeviceChanges(target.trigger))
    binds = directories.binds(target.binds) if private else []

    def create() -> list[Bind]:
        directories.create()
        return binds

    async with workplace(directories, create, needs_view=needed) as place:
        registry = directories.registry if target.command else registry_beside(target.directory)
        probe = Probe(
            target.directory or directories.sockets,
            registry if target.registry else None,
            directories.pod_resources if target.command else None,
            dial_limit=timing.dial,
            outside=place.path_map.outside,
            ask=place.lost_time.ask,
        )
        harness = Harness(target, timing, shared, place, probe)
        async with probe:
            try:
                yield harness
            finally:
                harness.keep_logs()
