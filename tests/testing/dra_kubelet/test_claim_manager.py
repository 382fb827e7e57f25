"""`ClaimManager`: which pod may use a claim, and the order of the calls to a driver."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import DynamicResourcesFailed
from kubedevices.kubelet_api.dra import (
    PLUGIN_TYPE,
    ClaimAnswer,
    DeviceHealth,
    dra_methods,
)
from kubedevices.testing.dra_kubelet.claim_manager import ClaimManager, DraPod
from kubedevices.values.allocation import ClaimDevice, ClaimReference, PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer
from tests.waiting import until

GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g-uid"}
POD = {"resource": "pods", "name": "p", "uid": "p-uid"}


class Api:
    """Has one claim of an unregistered driver, with the reservations `reserved`."""

    def __init__(self, *reserved: Mapping[str, str]) -> None:
        self._reserved = reserved

    async def get_claim(self, claim: ClaimReference) -> Mapping[str, Any]:
        results = [{"driver": "x.com", "pool": "n", "device": "d", "request": "r"}]
        allocation = {"devices": {"results": results}}
        status = {"reservedFor": [*self._reserved], "allocation": allocation}
        return {"metadata": {"uid": "uid-1"}, "status": status}

    async def delete_slices(self, node_name: str, driver: str) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("reserved", "pod", "may_use"),
    [
        ((POD,), DraPod("p-uid", "p", ("c",)), True),
        ((POD,), DraPod("other", "p", ("c",)), False),
        ((), DraPod("p-uid", "p", ("c",)), False),
        ((GROUP,), DraPod("p-uid", "p", ("c",), group="g"), True),
        ((GROUP, POD), DraPod("other", "o", ("c",), group="g"), True),
        ((GROUP,), DraPod("p-uid", "p", ("c",), group="other"), False),
        ((GROUP,), DraPod("p-uid", "p", ("c",)), False),
        ((GROUP | {"name": ""},), DraPod("p-uid", "p", ("c",)), False),
        ((GROUP | {"resource": "workloads"},), DraPod("p-uid", "p", ("c",), group="g"), False),
        ((GROUP | {"apiGroup": "x.com"},), DraPod("p-uid", "p", ("c",), group="g"), False),
    ],
)
async def test_a_claim_is_for_the_pods_and_pod_groups_that_reserved_it(
    tmp_path: Path, reserved: tuple[Mapping[str, str], ...], pod: DraPod, may_use: bool
) -> None:
    """A kubelet knows the UID of a pod, but only the name of its PodGroup."""
    kubelet = ClaimManager(tmp_path, "n", Api(*reserved))
    reason = "x.com is not registered" if may_use else "is not allowed to use ResourceClaim c"
    with pytest.raises(DynamicResourcesFailed, match=reason):
        await kubelet.prepare(pod)


class SlowDriver:
    """Notes its calls; a call ends when `may_end` is set."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.calls: list[str] = []
        self.may_end = asyncio.Event()

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        await self._note("prepare")
        return {each.uid: (ClaimDevice((), "n", "d", ()),) for each in claims}

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        await self._note("unprepare")
        return {each.uid: "" for each in claims}

    async def watch_health(self) -> AsyncIterator[list[DeviceHealth]]:
        yield []
        await asyncio.Event().wait()

    async def _note(self, call: str) -> None:
        self.calls.append(call)
        await self.may_end.wait()
        self.calls.append(f"{call} ends")


class AnyApi(Api):
    """Lets all pods use the claim, and has no slices."""

    def __init__(self) -> None:
        super().__init__(*(POD | {"uid": uid} for uid in ("a", "b")))

    async def delete_slices(self, node_name: str, driver: str) -> None:
        """There are none."""


@contextlib.asynccontextmanager
async def serving(directory: Path, driver: SlowDriver) -> AsyncIterator[Path]:
    socket = directory / f"dra{driver.name}.sock"
    server = GrpcServer(dra_methods(driver), name="driver")
    await server.start(socket)
    try:
        yield socket
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def kubelet_of(
    directory: Path, *sockets: Path, pods: tuple[str, ...] = ()
) -> AsyncIterator[ClaimManager]:
    manager = ClaimManager(directory, "n", AnyApi())
    await manager.start(pods)
    for socket in sockets:
        info = PluginInfo(PLUGIN_TYPE, "x.com", str(socket), ("v1.DRAPlugin",))
        await manager.drivers.connect(info, socket)
    await until(lambda: all(each.is_connected for each in manager.drivers.instances("x.com")))
    try:
        yield manager
    finally:
        await manager.stop()


def a_pod(uid: str) -> DraPod:
    return DraPod(uid, "p", ("c",))


async def test_a_new_pod_waits_for_an_unprepare_under_way(short_dir: Path) -> None:
    """Then the claim is prepared for it again; it would have no devices otherwise."""
    driver = SlowDriver()
    driver.may_end.set()
    async with serving(short_dir, driver) as socket, kubelet_of(short_dir, socket) as kubelet:
        await kubelet.prepare(a_pod("a"))
        driver.may_end.clear()
        ending = asyncio.create_task(kubelet.unprepare("a"))
        await until(lambda: driver.calls[-1] == "unprepare")
        starting = asyncio.create_task(kubelet.prepare(a_pod("b")))
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert driver.calls[-1] == "unprepare"
        driver.may_end.set()
        await asyncio.wait_for(asyncio.gather(ending, starting), 60)
        assert driver.calls[2:] == ["unprepare", "unprepare ends", "prepare", "prepare ends"]
        assert any(kubelet.claims_of("b"))


async def test_a_pod_that_ends_while_it_starts_is_unprepared_afterwards(short_dir: Path) -> None:
    """A kubelet makes one call for a pod at a time."""
    driver = SlowDriver()
    async with serving(short_dir, driver) as socket, kubelet_of(short_dir, socket) as kubelet:
        starting = asyncio.create_task(kubelet.prepare(a_pod("a")))
        await until(lambda: driver.calls)
        ending = asyncio.create_task(kubelet.unprepare("a"))
        driver.may_end.set()
        await asyncio.wait_for(asyncio.gather(starting, ending), 60)
        assert driver.calls == ["prepare", "prepare ends", "unprepare", "unprepare ends"]
        assert not any(kubelet.claims_of("a"))


async def test_a_restart_in_the_middle_of_a_prepare_repeats_the_call(short_dir: Path) -> None:
    """The pod still runs; its claim is in the state file, but not prepared."""
    driver = SlowDriver()
    async with serving(short_dir, driver) as socket:
        async with kubelet_of(short_dir, socket) as kubelet:
            starting = asyncio.create_task(kubelet.prepare(a_pod("a")))
            await until(lambda: driver.calls)
        with pytest.raises(DynamicResourcesFailed):
            await starting
        driver.may_end.set()
        async with kubelet_of(short_dir, socket, pods=("a",)) as kubelet:
            assert any(kubelet.claims_of("a"))
            await kubelet.prepare(a_pod("a"))
        assert driver.calls[-2:] == ["prepare", "prepare ends"]


async def test_a_restart_in_the_middle_of_an_unprepare_repeats_the_call(short_dir: Path) -> None:
    """The pod has ended, so nobody else would."""
    driver = SlowDriver()
    driver.may_end.set()
    async with serving(short_dir, driver) as socket:
        async with kubelet_of(short_dir, socket) as kubelet:
            await kubelet.prepare(a_pod("a"))
            driver.may_end.clear()
            ending = asyncio.create_task(kubelet.unprepare("a"))
            await until(lambda: driver.calls[-1] == "unprepare")
        with pytest.raises(DynamicResourcesFailed):
            await ending
        driver.may_end.set()
        async with kubelet_of(short_dir, socket) as kubelet:
            await kubelet.unprepare("a")  # unless the start has done it already
            assert not any(kubelet.claims_of("a"))
        assert driver.calls[-2:] == ["unprepare", "unprepare ends"]


async def test_the_newest_connected_instance_is_called(short_dir: Path) -> None:
    """And the older one when the newer is gone."""
    older, newer = SlowDriver("1"), SlowDriver("2")
    older.may_end.set()
    newer.may_end.set()
    async with (
        serving(short_dir, older) as first,
        serving(short_dir, newer) as second,
        kubelet_of(short_dir, first, second) as kubelet,
    ):
        await kubelet.prepare(a_pod("a"))
        assert (older.calls, newer.calls) == ([], ["prepare", "prepare ends"])
        kubelet.drivers.disconnect("x.com", second)
        await kubelet.unprepare("a")
        assert older.calls == ["unprepare", "unprepare ends"]
