"""The author's code has a deadline: a node admits one pod after the other, and must not wait."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError, StatusCode
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.timing import HookTimeouts
from kubedevices.values.allocation import ContainerAllocateRequest, ContainerPreferredRequest
from tests.server_rig import RESOURCE, Served, widgets

ASKED = kd.AllocateRequest((ContainerAllocateRequest(("w1",)),))
PREFERENCE = kd.PreferredAllocationRequest((ContainerPreferredRequest(("w1",), (), 1),))
START = kd.PreStartContainerRequest(("w1",))
NEVER, EVER = 0.5, 1000.0


class Slow(kd.Allocator, kd.PostAllocator, kd.PreferredAllocator, kd.ContainerPreStarter):
    """Hangs in the hook that is named; `gate` lets its threads go."""

    def __init__(self, hook: str) -> None:
        self.hook, self.gate = hook, threading.Event()

    def _pass(self, hook: str) -> None:
        if hook == self.hook:
            assert self.gate.wait(60)

    def allocate(self, request: kd.AllocateRequest) -> Any:
        self._pass("allocate")
        return kd.USE_DEFAULT

    def post_allocate(self, response: kd.AllocateResponse, request: kd.AllocateRequest) -> None:
        self._pass("post_allocate")

    def get_preferred_allocation(self, request: kd.PreferredAllocationRequest) -> Any:
        self._pass("get_preferred_allocation")
        return kd.PreferredAllocationResponse((("w1",),))

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        self._pass("pre_start_container")


class Deaf(kd.Allocator):
    """An `async` hook that goes on although it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.gate = asyncio.Event()

    async def allocate(self, request: kd.AllocateRequest) -> Any:
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
        return kd.USE_DEFAULT


@pytest.fixture
def slow() -> Iterator[Callable[[str], Slow]]:
    made: list[Slow] = []

    def make(hook: str) -> Slow:
        made.append(Slow(hook))
        return made[-1]

    yield make
    for each in made:
        each.gate.set()


def served(plugin: object, **options: Any) -> PluginServer:
    return Served(plugin, widgets("w1"), **options).server


async def refusal(call: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await call
    return caught.value


@pytest.mark.parametrize("hook", ["allocate", "post_allocate"])
async def test_an_allocate_that_hangs_is_refused_by_name(
    slow: Callable[[str], Slow], hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Both halves share the deadline; pod and log learn which hook, of what, and what to do."""
    server = served(slow(hook), allocate_timeout=NEVER)
    error = await refusal(server.allocate(ASKED))
    assert error.code is StatusCode.DEADLINE_EXCEEDED
    assert error.message == (
        f"{RESOURCE}: Slow.{hook} did not answer within 0.5 s (the plugin's author has to find "
        f"out why Slow.{hook} waits; allocate_timeout or --allocate-timeout gives Slow.{hook} more "
        "time)"
    )
    assert error.message in caplog.text
    assert server.counts == {"failed_allocations": 1, "late_allocate": 1}


async def test_a_preference_that_hangs_is_no_preference(slow: Callable[[str], Slow]) -> None:
    """A kubelet would refuse the pod for an error, and for nothing it waits with all others."""
    plugin = slow("get_preferred_allocation")
    server = served(plugin, preferred_timeout=NEVER)
    assert (await server.get_preferred_allocation(PREFERENCE)).containers == ((),)
    assert server.counts == {"preferred": 1, "failed_preferred": 1, "late_preferred": 1}


async def test_a_start_that_hangs_fails_before_the_kubelet_gives_up(
    slow: Callable[[str], Slow],
) -> None:
    """The kubelet's own deadline would name nobody."""
    plugin = slow("pre_start_container")
    server = served(plugin, pre_start_timeout=NEVER)
    error = await refusal(server.pre_start_container(START))
    assert error.code is StatusCode.DEADLINE_EXCEEDED
    assert "Slow.pre_start_container did not answer within 0.5 s" in error.message
    assert server.counts == {"failed_pre_starts": 1, "late_pre_start": 1}
    assert HookTimeouts().pre_start < 30


async def test_an_async_hook_that_ignores_its_cancellation_is_left_behind() -> None:
    """`asyncio.timeout` would wait for it for ever."""
    plugin = Deaf()
    server = served(plugin, allocate_timeout=NEVER)
    async with asyncio.timeout(30):
        error = await refusal(server.allocate(ASKED))
        await plugin.cancelled.wait()
    assert error.code is StatusCode.DEADLINE_EXCEEDED
    plugin.gate.set()


async def test_a_cdi_file_that_cannot_be_written_in_time_refuses_too() -> None:
    """A disk that hangs is as bad as a hook that does."""

    async def ensure(names: list[str]) -> tuple[list[str], dict[str, str]]:
        await asyncio.Event().wait()
        return names, {}

    class Named(kd.Allocator):
        def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
            named = kd.ContainerAllocateResponse(cdi_devices=["example.com/widget=w1"])
            return kd.AllocateResponse([named])

    server = served(Named(), ensure_cdi=ensure, allocate_timeout=0.5)
    error = await refusal(server.allocate(ASKED))
    assert "writing the CDI file did not answer within 0.5 s" in error.message


async def test_a_cancelled_call_ends_its_hook() -> None:
    """The deadline's own task does not outlive the call."""
    plugin = Deaf()
    server = served(plugin, allocate_timeout=EVER)
    call = asyncio.create_task(server.allocate(ASKED))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    async with asyncio.timeout(30):
        await plugin.cancelled.wait()
        with pytest.raises(asyncio.CancelledError):
            await call
    plugin.gate.set()


async def test_a_late_hook_delays_no_other_call(slow: Callable[[str], Slow]) -> None:
    """While the first call waits for its deadline, the next one is answered."""
    plugin = slow("allocate")
    server = served(plugin, allocate_timeout=EVER)
    first = asyncio.create_task(server.allocate(ASKED))
    await asyncio.sleep(0)
    plugin.hook = "none"
    async with asyncio.timeout(30):
        await server.pre_start_container(START)
    assert not first.done()
    plugin.gate.set()
    await first
