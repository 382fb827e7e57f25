"""Before a container starts: PreStartContainer calls, and the options from the plugins' answers."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubedevices.errors import (
    AllocationError,
    EndpointNotFound,
    NodeError,
    NothingAllocated,
    PreStartFailed,
    RpcError,
    StatusCode,
)
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.values.allocation import AllocateResponse, ContainerAllocateResponse
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.golden_data import load
from tests.waiting import until

MESSAGES = load("messages")
GADGET = "example.com/gadget"
POD = Pod("p", uid="p", containers=(Container("c", {RESOURCE: 2}), Container("d", {RESOURCE: 0})))


@asynccontextmanager
async def node(*plugins: FakePlugin, **options: float) -> AsyncIterator[DeviceManager]:
    """Serve a manager with `plugins` registered."""
    async with (
        DeviceManager(plugins[0].socket_dir, settings=NodeSettings(**options)) as manager,  # type: ignore[arg-type]
        contextlib.AsyncExitStack() as stack,
    ):
        for plugin in plugins:
            await stack.enter_async_context(plugin)
            await plugin.register()
            await manager.wait_for(plugin.resource)
        yield manager


async def test_the_options_are_the_answer_of_the_plugin(plugins: Path) -> None:
    """A plugin without PreStartContainer gets no call."""
    one = FakePlugin(plugins, devices=healthy("a", "b"))
    async with node(one) as manager:
        await manager.allocate(POD)
        options = await manager.get_device_run_container_options(POD, "c")
        assert options is not None
        assert options.env == {"IDS": "a,b"}
        assert [spec.container_path for spec in options.devices] == ["/dev/a", "/dev/b"]
        assert one.pre_starts == []


async def test_pre_start_gets_exactly_the_containers_devices(plugins: Path) -> None:
    """One call at each start. A container without devices causes no call."""
    one = FakePlugin(plugins, devices=healthy("a", "b", "c"), pre_start=True)
    async with node(one) as manager:
        got = await manager.allocate(POD)
        for _ in range(2):
            assert await manager.get_device_run_container_options(POD, "c")
        assert one.pre_starts == [got["c"][RESOURCE]] * 2
        assert await manager.get_device_run_container_options(POD, "d") is None
        assert len(one.pre_starts) == 2


async def test_a_failing_pre_start_keeps_the_devices(plugins: Path) -> None:
    """The start of the container fails and can be repeated."""
    one = FakePlugin(plugins, devices=healthy("a", "b"), pre_start=True)
    one.errors["pre_start"] = RpcError(StatusCode.INTERNAL, "reset failed")
    async with node(one) as manager:
        await manager.allocate(POD)
        with pytest.raises(PreStartFailed) as error:
            await manager.get_device_run_container_options(POD, "c")
        assert str(error.value) == (
            MESSAGES["prefixes"][1] + "rpc error: code = Internal desc = reset failed"
        )
        one.errors.clear()
        assert await manager.get_device_run_container_options(POD, "c")


async def test_pre_start_for_a_pod_that_holds_nothing_is_refused(plugins: Path) -> None:
    """The text is the kubelet's."""
    one = FakePlugin(plugins, devices=healthy("a", "b"), pre_start=True)
    async with node(one) as manager:
        with pytest.raises(NothingAllocated) as error:
            await manager.get_device_run_container_options(POD, "c")
    golden = MESSAGES["prestart_no_devices"].replace("v.example/r", RESOURCE)
    assert str(error.value) == golden


async def test_after_the_grace_period_a_container_cannot_start(plugins: Path) -> None:
    """No plugin exists that could be asked about the devices."""
    one = FakePlugin(plugins, devices=healthy("a", "b"))
    async with node(one, grace_period=0.05) as manager:
        await manager.allocate(POD)
        await one.stop()
        await until(lambda: not manager.get_capacity().capacity)
        with pytest.raises(EndpointNotFound) as error:
            await manager.get_device_run_container_options(POD, "c")
    assert str(error.value) == MESSAGES["no_endpoint"].replace("v.example/r", RESOURCE)


@pytest.mark.parametrize("pre_start", [False, True])
async def test_within_the_grace_period_only_pre_start_needs_the_plugin(
    plugins: Path, pre_start: bool
) -> None:
    """The stored answer is enough for a start.

    A plugin with PreStartContainer has to be connected.
    """
    one = FakePlugin(plugins, devices=healthy("a", "b"), pre_start=pre_start)
    async with node(one) as manager:
        await manager.allocate(POD)
        await one.stop()
        await manager.wait_for(RESOURCE, allocatable=0)
        if not pre_start:
            assert await manager.get_device_run_container_options(POD, "c")
            return
        with pytest.raises(AllocationError, match=r"rpc failed with err: endpoint .* has been sto"):
            await manager.get_device_run_container_options(POD, "c")


@pytest.mark.parametrize("pre_start", [False, True])
async def test_a_resource_registered_after_the_admission_is_allocated_at_the_start(
    manager: DeviceManager, plugins: Path, pre_start: bool
) -> None:
    """The pod was admitted before its plugin registered.

    At its start it gets its devices, after PreStartContainer.
    """
    one = FakePlugin(plugins, devices=healthy("a", "b"), pre_start=pre_start)
    async with one:
        assert await manager.allocate(POD) == {}
        await one.register()
        await manager.wait_for(RESOURCE, allocatable=2)
        options = await manager.get_device_run_container_options(POD, "c")
        assert options is not None
        assert options.env == {"IDS": "a,b"}
        assert one.pre_starts == ([("a", "b")] if pre_start else [])


async def test_a_released_pod_gets_no_options_and_no_devices(plugins: Path) -> None:
    """The start does not allocate devices for the pod again."""
    one = FakePlugin(plugins, devices=healthy("a", "b"))
    async with node(one) as manager:
        await manager.allocate(POD)
        await manager.release("p")
        assert await manager.get_device_run_container_options(POD, "c") is None
        assert len(one.allocations) == 1


async def test_options_of_several_resources_are_merged(
    plugins: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the order of the resource names. A conflict is logged."""
    one = FakePlugin(plugins, devices=healthy("a"))
    two = FakePlugin(plugins, GADGET, socket_name="gadget.sock", devices=healthy("x"))
    two.allocate_answer = lambda _: AllocateResponse(
        [ContainerAllocateResponse(env={"IDS": "x", "MORE": "y"}, cdi_devices=["v/c=x"])]
    )
    asked = Pod("p", containers=(Container("c", {RESOURCE: 1, GADGET: 1}),))
    async with node(one, two) as manager:
        await manager.allocate(asked)
        options = await manager.get_device_run_container_options(asked, "c")
    assert options is not None
    assert dict(options.env) == {"IDS": "x", "MORE": "y"}
    assert options.cdi_devices == ("v/c=x",)
    assert "environment variable 'IDS'" in caplog.text


async def test_a_container_that_is_not_in_the_pod_is_an_error(manager: DeviceManager) -> None:
    """A misspelt name must not look like a container without devices."""
    with pytest.raises(NodeError, match='pod "default/p" has no container "x"'):
        await manager.get_device_run_container_options(POD, "x")
