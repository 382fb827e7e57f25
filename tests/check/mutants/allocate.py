"""Answers to Allocate."""

import asyncio
import os
from typing import Any

import grpc

from tests.check import wire_names as wire
from tests.check.good_plugin import GoodPlugin
from tests.check.mutants.registry import mutation


@mutation("allocate-fails", fails=["allocate.answers"])
class AllocateFails(GoodPlugin):
    """Answers every Allocate with an error."""

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.UNKNOWN, "out of order")


@mutation("allocate-hangs", fails=["allocate.answers"])
class AllocateHangs(GoodPlugin):
    """Answers no Allocate."""

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        await asyncio.Event().wait()


@mutation("allocate-says-nothing", fails=["allocate.answers"])
class AllocateSaysNothing(GoodPlugin):
    """Answers without a container response, as the kubelet's own test stub does by default."""

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        return wire.AllocateResponse()


@mutation("kubevirt-one-response", warns=["allocate.per-container"])
class OneResponse(GoodPlugin):
    """Always answers for one container, like kubevirt's kvm plugin."""

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = await super().Allocate(request, context)
        del response.container_responses[1:]
        return response


@mutation("responses-swapped", warns=["allocate.per-container"])
class ResponsesSwapped(GoodPlugin):
    """Answers in the wrong order."""

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = await super().Allocate(request, context)
        answers = list(response.container_responses)
        del response.container_responses[:]
        response.container_responses.extend(reversed(answers))
        return response


@mutation("counts-allocations", warns=["allocate.repeatable"])
class CountsAllocations(GoodPlugin):
    """Writes into the answer how often it was asked for these devices."""

    last: tuple[str, ...] = ()
    times = 0

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        self.times += tuple(ids) == self.last
        self.last = tuple(ids)
        answer.envs["TIMES"] = str(self.times)


@mutation("intel-order-of-ids-matters", warns=["allocate.id-order"])
class OrderOfIdsMatters(GoodPlugin):
    """Numbers its variables in the order of the IDs in the request, like Intel's QAT."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        answer.envs["FIRST"] = self.devices[ids[0]].file.name


@mutation("rocm-unknown-id-accepted", fails=["allocate.unknown-id"])
class UnknownIdAccepted(GoodPlugin):
    """Answers OK without content for an unknown device, like ROCm and SR-IOV."""

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        for container in request.container_requests:
            known = [name for name in container.devices_ids if name in self.devices]
            if known != list(container.devices_ids):
                response = wire.AllocateResponse()
                response.container_responses.add(envs={"WIDGETS": ""})
                return response
        return await super().Allocate(request, context)


@mutation("unknown-id-crash", fails=["allocate.unknown-id", "life.dies"])
class UnknownIdCrash(GoodPlugin):
    """Crashes on an unknown device."""

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        for container in request.container_requests:
            if any(name not in self.devices for name in container.devices_ids):
                os._exit(2)
        return await super().Allocate(request, context)


@mutation("unhealthy-id-accepted", fails=["allocate.unhealthy-id"])
class UnhealthyIdAccepted(GoodPlugin):
    """Does not check the health of a device when it answers."""

    async def check_ids(self, ids: list[str], context: Any) -> None:
        healthy = [
            name
            for name in ids
            if name not in self.devices or self.devices[name].health == "Healthy"
        ]
        if healthy or not ids:
            await super().check_ids(healthy, context)


@mutation("empty-ids-accepted", notes=["allocate.empty-ids"])
class EmptyIdsAccepted(GoodPlugin):
    """Answers OK to a request without IDs, like all plugins."""

    async def check_ids(self, ids: list[str], context: Any) -> None:
        if ids:
            await super().check_ids(ids, context)


@mutation("ten-workers", fails=["allocate.concurrent"])
class TenWorkers(GoodPlugin):
    """Serves streams and calls with the same ten workers, like many one-file plugins."""

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self.workers = asyncio.Semaphore(10)

    async def ListAndWatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        async with self.workers:
            async for each in super().ListAndWatch(request, context):
                yield each

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        async with self.workers:
            return await super().Allocate(request, context)


@mutation("hang-up-keeps-lock", fails=["allocate.hang-up"])
class HangUpKeepsLock(GoodPlugin):
    """Does not release its lock when a call is cancelled."""

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self.lock = asyncio.Lock()

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self.lock.acquire()
        await asyncio.sleep(0.01)
        response = await super().Allocate(request, context)
        self.lock.release()
        return response

    async def check_ids(self, ids: list[str], context: Any) -> None:
        try:
            await super().check_ids(ids, context)
        except BaseException:
            if self.lock.locked():
                self.lock.release()
            raise


# ---------------------------------------------------------------- what the container gets


@mutation("relative-path", fails=["allocate.paths"])
class RelativePath(GoodPlugin):
    """Sends paths without the first slash."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        for device in answer.devices:
            device.container_path = device.container_path.lstrip("/")


@mutation("permission-x", fails=["allocate.permissions"])
class PermissionX(GoodPlugin):
    """Uses the permission x, which only files have."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        answer.devices[0].permissions = "rwx"


@mutation("generic-one-spec-per-replica")
class OneSpecPerReplica(GoodPlugin):
    """Repeats the same entry for every replica, which does no harm: simple, generic, Intel."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        specs = {spec.host_path: spec for spec in answer.devices}
        again = [specs[str(self.devices[name].file)] for name in sorted(ids)]
        del answer.devices[:]
        answer.devices.extend(again)


@mutation("two-files-in-one-place", fails=["allocate.container-paths"])
class TwoFilesInOnePlace(GoodPlugin):
    """Gives all devices the same container path."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        for device in answer.devices:
            device.container_path = "/dev/widget"


@mutation("missing-host-path", fails=["allocate.host-paths"])
class MissingHostPath(GoodPlugin):
    """Answers with a device file that does not exist."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        answer.mounts.add(host_path="/usr/lib/widgets-driver", container_path="/usr/lib/widgets")


@mutation("simple-dash-in-env-name", warns=["allocate.env-names"])
class DashInEnvName(GoodPlugin):
    """Uses device IDs in names of variables, like simple-device-plugin."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        answer.envs["SIMPLE_dev-node-1"] = "1"


@mutation("invalid-annotation-key", warns=["allocate.annotations"])
class InvalidAnnotationKey(GoodPlugin):
    """Has a space in an annotation key."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        answer.annotations["example.com/my widgets"] = "1"


# ---------------------------------------------------------------- CDI


@mutation("cdi-invalid-name", fails=["allocate.cdi-names"])
class CdiInvalidName(GoodPlugin):
    """Uses a path as CDI name."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        answer.cdi_devices.add(name="/dev/widget")


@mutation("cdi-unknown-key", fails=["allocate.cdi-files"])
class CdiUnknownKey(GoodPlugin):
    """Writes a key that the CDI specification does not have."""

    def cdi_spec(self, names: list[str]) -> dict[str, Any]:
        return super().cdi_spec(names) | {"version": 1}


@mutation("cdi-version-too-low", fails=["allocate.cdi-files"])
class CdiVersionTooLow(GoodPlugin):
    """Uses a feature that its CDI version does not have."""

    def cdi_spec(self, names: list[str]) -> dict[str, Any]:
        spec = super().cdi_spec(names)
        node = {"path": "/dev/widget", "hostPath": "/dev/null"}
        spec["devices"][0]["containerEdits"]["deviceNodes"] = [node]
        return spec


@mutation("cdi-undefined-device", fails=["allocate.cdi-resolvable"])
class CdiUndefinedDevice(GoodPlugin):
    """Answers with a CDI name that its file does not define."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        answer.cdi_devices.add(name="example.com/widget=all")


@mutation("cdi-version-too-high", warns=["allocate.cdi-version"])
class CdiVersionTooHigh(GoodPlugin):
    """Always writes the newest CDI version."""

    def cdi_spec(self, names: list[str]) -> dict[str, Any]:
        return super().cdi_spec(names) | {"cdiVersion": "1.0.0"}


@mutation("one-place-in-two-ways", warns=["allocate.container-paths"])
class OnePlaceInTwoWays(GoodPlugin):
    """Has the same device file twice, with different permissions."""

    def fill(self, answer: Any, ids: list[str]) -> None:
        super().fill(answer, ids)
        again = answer.devices.add()
        again.CopyFrom(answer.devices[0])
        again.permissions = "r"


@mutation("answers-mixed-up", warns=["allocate.per-container"])
class AnswersMixedUp(GoodPlugin):
    """Gives each container of a call the devices of all its containers."""

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = wire.AllocateResponse()
        ids = [name for container in request.container_requests for name in container.devices_ids]
        for container in request.container_requests:
            await self.check_ids(list(container.devices_ids), context)
            self.fill(response.container_responses.add(), ids)
        return response
