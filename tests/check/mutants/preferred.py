"""Preferred allocation and PreStart."""

import asyncio
from typing import Any

import grpc

from tests.check import wire_names as wire
from tests.check.good_plugin import GoodPlugin
from tests.check.mutants.registry import PLAIN, mutation


@mutation("preference-fails", fails=["preferred.answers"])
class PreferenceFails(GoodPlugin):
    """Answers with an error instead of a preference."""

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.INTERNAL, "no idea")


@mutation("foreign-preference", fails=["preferred.answers"])
class ForeignPreference(GoodPlugin):
    """Prefers a device that is not available."""

    def prefer(self, available: list[str], must: list[str], size: int) -> list[str]:
        return ["w77::0"] * size


@mutation("intel-ignores-must-include", warns=["preferred.must-include"])
class IgnoresMustInclude(GoodPlugin):
    """Ignores the must-include devices, like Intel's gpu plugin with the balanced policy."""

    def prefer(self, available: list[str], must: list[str], size: int) -> list[str]:
        return sorted(available)[:size]


@mutation("prefers-too-few", warns=["preferred.size"])
class PrefersTooFew(GoodPlugin):
    """Returns one device less than requested, if several are requested."""

    def prefer(self, available: list[str], must: list[str], size: int) -> list[str]:
        return super().prefer(available, must, size - 1 if size > 2 else size)


@mutation("too-large-preference", notes=["preferred.too-large"])
class TooLargePreference(GoodPlugin):
    """Returns all available devices if more are requested."""

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        for container in request.container_requests:
            most = len(container.available_deviceIDs)
            container.allocation_size = min(container.allocation_size, most)
        return await super().GetPreferredAllocation(request, context)


@mutation("generic-empty-preference", notes=["preferred.not-offered"], options=PLAIN)
class EmptyPreference(GoodPlugin):
    """Answers OK to a call that it does not offer: generic, smarter, GCE, SR-IOV."""

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        return wire.PreferredAllocationResponse()


@mutation("pre-start-fails", fails=["prestart.answers"])
class PreStartFails(GoodPlugin):
    """Answers every PreStartContainer with an error."""

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.INTERNAL, "reset failed")


@mutation("pre-start-slow", fails=["prestart.answers"])
class PreStartSlow(GoodPlugin):
    """Takes longer than a kubelet waits."""

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self.check_ids(list(request.devices_ids), context)
        await asyncio.sleep(5)
        return wire.PreStartContainerResponse()


@mutation("pre-start-any-id", warns=["prestart.unknown-id"])
class PreStartAnyId(GoodPlugin):
    """Does not check the IDs."""

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        return wire.PreStartContainerResponse()


@mutation("pre-start-not-offered", notes=["prestart.not-offered"], options=PLAIN)
class PreStartNotOffered(PreStartAnyId):
    """Answers OK although it does not require the call."""
