"""The proxy between kubelet and plugins: what passes, and what each resource can do to another."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import DialPluginFailed, PluginOptionsFailed, RpcError, StatusCode
from kubedevices.kubelet_api import convert, services
from kubedevices.kubelet_api.protobuf import with_unknown
from kubedevices.proxy.plugin_calls import CallLimits
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    PluginOptions,
    PreferredAllocationRequest,
    PreStartContainerRequest,
)
from kubedevices.values.device import Mount, ReportedDevice
from tests.fake_plugin import RESOURCE, FakePlugin, as_list, healthy, unhealthy
from tests.proxy_rig import ask, first_list, proxied, ruled
from tests.waiting import until
from tests.widgets import QUICK

ODD = (
    *healthy("z", "a", numa=(1, 0)),
    *healthy("b", numa=()),
    *unhealthy("c"),
    ReportedDevice("word", "Sick", (-1,)),
    *healthy("z"),
    ReportedDevice("", "Healthy"),
)
"""What our own plugins never send: no order, two of one ID, other words, an empty ID."""


async def test_lists_pass_byte_for_byte(short_dir: Path) -> None:
    """Order, doubled IDs, odd words and topologies reach the kubelet as the plugin sent them."""
    async with proxied(short_dir, rules=ruled(repair=False)) as rig:
        plugin = await rig.plugin(*ODD)
        served = await rig.served(5 + 1)
        assert await first_list(served) == as_list(ODD)
        turned = ODD[::-1]
        await plugin.send(turned)
        await until(lambda: rig.kubelet.lists(RESOURCE)[-1] == turned)
        assert await first_list(served) == as_list(turned)


async def test_fields_of_a_later_api_pass(short_dir: Path) -> None:
    """In options, lists, requests, answers; 16 calls at once. `test_convert` has every message."""
    later = b"\xba\x01\x03new"  # the field 23
    async with proxied(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"), pre_start=True)
        await rig.served(1)
        plugin.options = PluginOptions(pre_start_required=True, unknown=later)
        message = as_list([*healthy("b"), with_unknown(healthy("a")[0], later)]) + later
        await plugin.send_bytes(message)
        await plugin.register()
        await until(lambda: rig.kubelet.accepted[-1].options.unknown == later)
        served = await rig.served(2)
        assert await first_list(served) == message
        plugin.allocate_answer = lambda asked: AllocateResponse(
            [
                ContainerAllocateResponse(
                    {"IDS": ids[0]},
                    mounts=[with_unknown(Mount("m", "/m"), later)],
                    unknown=later + extra,
                )
                for ids, extra in asked.containers
            ],
            asked.unknown,
        )
        requests = [
            AllocateRequest((ContainerAllocateRequest((f"{each}",), later),) * 2, later * each)
            for each in range(16)
        ]
        answers = await asyncio.gather(
            *(
                ask(served, services.ALLOCATE, convert.ALLOCATE_REQUEST.to_wire(each))
                for each in requests
            )
        )
        assert answers == [
            convert.ALLOCATE_RESPONSE.to_wire(plugin.allocate_answer(each)) for each in requests
        ]
        assert answers[3].endswith(later * 3)
        starts = convert.PRE_START_REQUEST.to_wire(PreStartContainerRequest(("a",), later))
        assert await ask(served, services.PRE_START_CONTAINER, starts) == later


@pytest.mark.parametrize("prefers", [False, True])
@pytest.mark.parametrize("pre_starts", [False, True])
async def test_options_pass(short_dir: Path, *, prefers: bool, pre_starts: bool) -> None:
    """The kubelet calls what the plugin offers, and nothing else."""
    async with proxied(short_dir) as rig:
        await rig.plugin(
            *healthy("a"), pre_start=pre_starts, preferred=(lambda _: ()) if prefers else None
        )
        served = await rig.served(1)
        assert served.options == PluginOptions(pre_starts, prefers)


async def test_a_plugin_without_options_has_the_defaults(short_dir: Path) -> None:
    """A kubelet would refuse it; any other error of that call is a refusal here too."""
    async with proxied(short_dir) as rig:
        plugin = FakePlugin(rig.inside, devices=healthy("a"))
        async with plugin:
            plugin.options = RpcError(StatusCode.INTERNAL, "not now")
            with pytest.raises(RpcError, match="not now"):
                await plugin.register()
            plugin.options = RpcError(StatusCode.UNIMPLEMENTED, "unknown method")
            await plugin.register()
            assert (await rig.served(1)).options == PluginOptions()


async def test_without_mend_a_plugin_without_options_is_refused(short_dir: Path) -> None:
    """From its first registration on, as by a kubelet."""
    async with proxied(short_dir, rules=ruled(repair=False)) as rig:
        async with FakePlugin(rig.inside, devices=healthy("a")) as plugin:
            plugin.options = RpcError(StatusCode.UNIMPLEMENTED, "unknown method")
            with pytest.raises(RpcError, match="unknown method"):
                await plugin.register()
        assert not rig.proxy.resources


async def test_calls_of_several_containers_pass(short_dir: Path) -> None:
    """Every container of a request gets what the plugin answered for it."""
    async with proxied(short_dir, rules=ruled(repair=False)) as rig:
        plugin = await rig.plugin(
            *healthy("a", "b", "c"), pre_start=True, preferred=lambda asked: asked.available[::-1]
        )
        served = await rig.served(3)
        request = AllocateRequest(
            (ContainerAllocateRequest(("b", "a")), ContainerAllocateRequest(("c", "unknown")))
        )
        payload = convert.ALLOCATE_REQUEST.to_wire(request)
        answer = await ask(served, services.ALLOCATE, payload)
        assert answer == convert.ALLOCATE_RESPONSE.to_wire(plugin.allocate_answer(request))

        wanted = PreferredAllocationRequest(
            (
                ContainerPreferredRequest(("a", "b"), ("a",), 1),
                ContainerPreferredRequest(("c",), (), 7),
            )
        )
        payload = convert.PREFERRED_REQUEST.to_wire(wanted)
        answer = await ask(served, services.GET_PREFERRED_ALLOCATION, payload)
        assert convert.PREFERRED_RESPONSE.from_wire(answer).containers == (("b", "a"), ("c",))
        assert tuple(plugin.preferred_requests) == wanted.containers

        starts = PreStartContainerRequest(("c", "a"))
        payload = convert.PRE_START_REQUEST.to_wire(starts)
        assert await ask(served, services.PRE_START_CONTAINER, payload) == b""
        assert plugin.pre_starts == [("c", "a")]


@pytest.mark.parametrize("code", [StatusCode.DATA_LOSS, StatusCode.DEADLINE_EXCEEDED])
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("allocate", services.ALLOCATE),
        ("preferred", services.GET_PREFERRED_ALLOCATION),
        ("pre_start", services.PRE_START_CONTAINER),
    ],
)
async def test_errors_keep_code_and_text(
    short_dir: Path, name: str, method: str, code: StatusCode
) -> None:
    """What the plugin refuses with is what the kubelet hears, also if the plugin waited in vain."""
    async with proxied(short_dir, rules=ruled(repair=False)) as rig:
        plugin = await rig.plugin(*healthy("a"), pre_start=True, preferred=lambda _: ())
        served = await rig.served(1)
        plugin.errors[name] = RpcError(code, "ein Fehler: 100 %")
        with pytest.raises(RpcError) as refused:
            await ask(served, method)
        assert (refused.value.code, refused.value.message) == (code, "ein Fehler: 100 %")


async def test_a_plugin_that_hangs_ends_at_its_deadline(short_dir: Path) -> None:
    """Allocate and PreStart fail with the names of plugin and call; no preference is answered;
    another resource is not delayed.
    """
    limits = CallLimits(allocate=0.2, preferred=0.2, pre_start=0.3)
    async with proxied(short_dir, limits=limits) as rig:
        plugin = await rig.plugin(*healthy("a"), pre_start=True, preferred=lambda _: ("a",))
        served = await rig.served(1)
        await rig.plugin(*healthy("x"), resource="example.com/other", socket_name="other.sock")
        other = await rig.served(1, "example.com/other")
        for method in ("allocate", "preferred", "pre_start"):
            plugin.hang(method)
        payload = convert.ALLOCATE_REQUEST.to_wire(
            AllocateRequest((ContainerAllocateRequest(("a",)),))
        )
        hanging = asyncio.create_task(ask(served, services.ALLOCATE, payload))
        await until(lambda: plugin.allocations)
        assert await ask(other, services.ALLOCATE, payload)
        for call, name, limit in (
            (hanging, "Allocate", "0.2 s"),
            (ask(served, services.PRE_START_CONTAINER), "PreStartContainer", "0.3 s"),
        ):
            with pytest.raises(RpcError) as late:
                await call
            assert late.value.code is StatusCode.DEADLINE_EXCEEDED
            for word in (RESOURCE, "widget.sock", name, limit):
                assert word in late.value.message
        payload = convert.PREFERRED_REQUEST.to_wire(
            PreferredAllocationRequest((ContainerPreferredRequest(("a",), (), 1),))
        )
        answer = await ask(served, services.GET_PREFERRED_ALLOCATION, payload)
        assert convert.PREFERRED_RESPONSE.from_wire(answer).containers == ((),)


async def test_a_call_that_the_kubelet_cancels_is_cancelled_inside(short_dir: Path) -> None:
    """The plugin hears that nobody waits any more."""
    async with proxied(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"))
        served = await rig.served(1)
        began, ended = asyncio.Event(), asyncio.Event()

        async def hang(_request: object) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        plugin.allocate = hang  # type: ignore[assignment,method-assign]
        call = asyncio.create_task(ask(served, services.ALLOCATE))
        async with asyncio.timeout(20):
            await began.wait()
        call.cancel()
        async with asyncio.timeout(20):
            await ended.wait()


async def test_a_call_that_runs_when_the_proxy_stops_is_answered(short_dir: Path) -> None:
    """The plugins inside stay connected until the sockets outside are gone."""
    async with proxied(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"), pre_start=True)
        served = await rig.served(1)
        gate = plugin.hang("pre_start")
        call = asyncio.create_task(ask(served, services.PRE_START_CONTAINER))
        await until(lambda: plugin.pre_starts)
        rig.proxy.stop()
        await until(lambda: [each.name for each in rig.outside.iterdir()] == ["kubelet.sock"])
        gate.set()
        assert await call == b""


async def test_a_health_change_passes(short_dir: Path) -> None:
    """The kubelet sees what the plugin sees."""
    async with proxied(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        await rig.served(2)
        await plugin.send([*unhealthy("a"), *healthy("b")])
        await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy", "b": "Healthy"})
        await plugin.send([])
        await rig.kubelet.wait_for(RESOURCE, {})


async def test_devices_of_a_killed_plugin_are_gone_outside(short_dir: Path) -> None:
    """Without `hold` a kubelet sees what it would see without a proxy; and the return."""
    async with proxied(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"))
        await rig.served(1)
        await plugin.stop()
        await until(lambda: not rig.kubelet.connected(RESOURCE))
        await plugin.start()
        await plugin.register()
        await rig.served(1)


async def test_a_plugin_that_registers_again_leaves_no_gap(short_dir: Path) -> None:
    """The kubelet has one registration, one stream and no empty list, whatever happens inside."""
    async with proxied(short_dir) as rig:
        first = await rig.plugin(*healthy("a"))
        served = await rig.served(1)
        second = await rig.plugin(*healthy("a", "b"), socket_name="second.sock")
        await rig.served(2)
        await until(lambda: first.open_streams == 0)
        await first.stop()
        await second.register()
        assert (second.streams_opened, second.open_streams) == (1, 1)
        await second.send(healthy("a", "b", "c"))
        await rig.served(3)
        assert rig.kubelet.connected(RESOURCE) == [served]
        assert len(rig.kubelet.requests) == 1
        assert [] not in [[*each] for each in rig.kubelet.lists(RESOURCE)]


async def test_a_plugin_with_other_options_is_registered_again(short_dir: Path) -> None:
    """A kubelet learns only from a registration what a plugin offers."""
    async with proxied(short_dir) as rig:
        first = await rig.plugin(*healthy("a"))
        assert not (await rig.served(1)).options.pre_start_required
        await first.stop()
        await rig.plugin(*healthy("a", "b"), pre_start=True)
        assert (await rig.served(2)).options.pre_start_required


async def test_a_restarted_proxy_finds_a_plugin_that_registered_once(short_dir: Path) -> None:
    """Its socket is remembered; nobody has to register again."""
    async with proxied(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"))
        await rig.served(1)
        await rig.stop_proxy()
        await until(lambda: not rig.kubelet.connected(RESOURCE))
        await plugin.send(unhealthy("a"))
        await rig.start_proxy()
        await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy"})


async def test_a_plugin_that_registered_once_may_be_slow_when_the_proxy_starts(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a whole node starts, a plugin can listen for seconds before it answers.

    So it is dialled again within the second, and one that hangs for good every half minute.
    """
    sleep, pauses = asyncio.sleep, list[float]()

    async def pause(seconds: float) -> None:
        task = asyncio.current_task()
        if task is not None and task.get_name() == f"known plugin of {RESOURCE}":
            pauses.append(seconds)
            seconds = 0
        await sleep(seconds)

    async with proxied(short_dir) as rig:
        await rig.plugin(*healthy("a"))
        await rig.served(1)
        await rig.stop_proxy()
        await until(lambda: not rig.kubelet.connected(RESOURCE))
        failures = [DialPluginFailed("slow"), PluginOptionsFailed("slow")] * 4
        connect = PluginScanner.connect

        async def slow(*args: Any, **options: Any) -> None:
            if failures:
                raise failures.pop()
            await connect(*args, **options)

        monkeypatch.setattr(PluginScanner, "connect", slow)
        monkeypatch.setattr(asyncio, "sleep", pause)
        await rig.start_proxy()
        await rig.served(1)
        assert failures == []
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.5, 30.0)


async def test_a_restarted_kubelet_gets_everything_again(short_dir: Path) -> None:
    """The plugin inside notices nothing of it. The new kubelet's socket is told by a file event,
    and not found by the next look, which would come too late.
    """
    async with proxied(short_dir, timing=QUICK._replace(look_interval=3600.0)) as rig:
        plugin = await rig.plugin(*healthy("a"))
        await rig.served(1)
        await rig.kubelet.restart()
        await rig.kubelet.wait_for(RESOURCE, 1)
        assert (plugin.streams_opened, len(rig.kubelet.requests)) == (1, 2)
