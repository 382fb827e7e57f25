"""The calls of the DevicePlugin service of one resource, made directly."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import KubedevicesError, RpcError, StatusCode
from kubedevices.plugin.allocate_response import explain_preference
from kubedevices.plugin.timing import Timing
from kubedevices.values.allocation import (
    ContainerAllocateRequest,
    ContainerPreferredRequest,
    PluginOptions,
)
from tests.server_rig import RESOURCE, UNHEALTHY, Served, reading, widgets
from tests.waiting import until


def request(*ids: str) -> kd.AllocateRequest:
    return kd.AllocateRequest((ContainerAllocateRequest(ids),))


def preference(
    *available: str, must: Iterable[str] = (), size: int = 1
) -> kd.PreferredAllocationRequest:
    return kd.PreferredAllocationRequest((ContainerPreferredRequest(available, tuple(must), size),))


# ---------------------------------------------------------------- options and missing hooks


class Everything(kd.Allocator, kd.PostAllocator, kd.PreferredAllocator, kd.ContainerPreStarter):
    """All abilities; what they do is put in by a test."""

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        self.on_allocate: Callable[[kd.AllocateRequest], Any] = lambda _: kd.USE_DEFAULT
        self.on_post: Callable[..., None] = lambda *_: None
        self.on_prefer: Callable[[kd.PreferredAllocationRequest], Any] = lambda _: None
        self.on_pre_start: Callable[[kd.PreStartContainerRequest], None] = lambda _: None
        vars(self).update(hooks)

    def allocate(self, request: kd.AllocateRequest) -> Any:
        return self.on_allocate(request)

    def post_allocate(self, response: kd.AllocateResponse, request: kd.AllocateRequest) -> None:
        self.on_post(response, request)

    def get_preferred_allocation(self, request: kd.PreferredAllocationRequest) -> Any:
        return self.on_prefer(request)

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        self.on_pre_start(request)


async def test_options_say_which_hooks_there_are() -> None:
    """GetDevicePluginOptions and Register say the same, after what the plugin object can do."""
    without, with_all = Served().server, Served(Everything()).server
    assert await without.get_device_plugin_options() == without.options == PluginOptions()
    assert await with_all.get_device_plugin_options() == PluginOptions(True, True)
    assert with_all.options == PluginOptions(True, True)


async def test_calls_without_a_hook_are_unimplemented() -> None:
    """The two optional calls answer UNIMPLEMENTED with the texts that existing tools know."""
    server = Served(devices=widgets("w1")).server
    with pytest.raises(RpcError) as caught:
        await server.get_preferred_allocation(preference("w1"))
    assert (caught.value.code, caught.value.message) == (
        StatusCode.UNIMPLEMENTED,
        "GetPreferredAllocation should not be called as this device plugin doesn't implement it",
    )
    with pytest.raises(RpcError) as caught:
        await server.pre_start_container(kd.PreStartContainerRequest(("w1",)))
    assert (caught.value.code, caught.value.message) == (
        StatusCode.UNIMPLEMENTED,
        "PreStartContainer() should not be called as this device plugin doesn't implement it",
    )


# ---------------------------------------------------------------- Allocate


@pytest.mark.parametrize(
    ("ids", "code", "text"),
    [
        (("w1", "w9"), StatusCode.NOT_FOUND, "non-existing device w9"),
        (("w1", "bad"), StatusCode.FAILED_PRECONDITION, "unhealthy device bad"),
    ],
)
async def test_allocate_refuses_what_cannot_be_given(
    ids: tuple[str, ...], code: StatusCode, text: str
) -> None:
    """One unknown or unhealthy device fails the whole call with its status and its ID."""
    server = Served(devices=[*widgets("w1"), *widgets("bad", health=UNHEALTHY)]).server
    with pytest.raises(RpcError) as caught:
        await server.allocate(request(*ids))
    assert caught.value.code is code
    assert caught.value.message == f"Invalid allocation request with {text}"
    assert server.counts == {"failed_allocations": 1}


async def test_allocate_makes_the_default_response() -> None:
    """Without a hook each device's files are given, in natural order."""
    server = Served(devices=widgets("w2", "w10")).server
    response = await server.allocate(request("w10", "w2"))
    paths = [spec.host_path for spec in response.containers[0].devices]
    assert paths == ["/dev/w2", "/dev/w10"]
    assert server.counts == {"allocations": 1}


async def test_allocate_without_hooks_has_the_same_answer() -> None:
    """The same answer and the same refusal, counted alike; hooks and CDI files take their time."""
    server = Served(devices=[*widgets("w1"), kd.Device("named", cdi="v.com/c=d")]).server
    assert server.allocate_at_once(request("w1")) == await server.allocate(request("w1"))
    with pytest.raises(RpcError) as caught:
        server.allocate_at_once(request("w9"))
    assert caught.value.code is StatusCode.NOT_FOUND
    assert server.allocate_at_once(request("w1", "named")) is None
    assert Served(Everything(), widgets("w1")).server.allocate_at_once(request("w1")) is None
    assert server.counts == {"allocations": 2, "failed_allocations": 1}


async def test_a_device_changed_invisibly_is_allocated_as_it_is_now() -> None:
    """Although no list is sent, Allocate answers with the new environment."""
    served = Served(devices=[kd.Device("w1", env={"V": "old"})])
    served.publish(kd.Device("w1", env={"V": "new"}))
    response = await served.server.allocate(request("w1"))
    assert response.containers[0].env == {"V": "new"}


async def test_an_own_answer_is_sent_as_it_is() -> None:
    """The answer of `allocate` is final; `post_allocate` is not called."""
    plugin = Everything()
    own = kd.AllocateResponse([kd.ContainerAllocateResponse(env={"OWN": "1"})])
    plugin.on_allocate = lambda _: own
    plugin.on_post = lambda *_: pytest.fail("called")
    assert await Served(plugin).server.allocate(request("unknown")) is own


async def test_use_default_goes_on_to_post_allocate() -> None:
    """USE_DEFAULT gives the default answer, which `post_allocate` edits in place."""
    plugin = Everything()

    def post(response: kd.AllocateResponse, asked: kd.AllocateRequest) -> None:
        response.containers[0].env["IDS"] = ",".join(asked.containers[0].device_ids)

    plugin.on_post = post
    response = await Served(plugin, widgets("w1")).server.allocate(request("w1"))
    assert response.containers[0].env == {"IDS": "w1"}
    assert len(response.containers[0].devices) == 1


def raising(error: BaseException) -> Callable[..., Any]:
    def hook(*_: object) -> None:
        raise error

    return hook


@pytest.mark.parametrize("hook", ["on_allocate", "on_post"])
@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("no firmware"), StatusCode.UNKNOWN, "no firmware"),
        (OSError(), StatusCode.UNKNOWN, "OSError"),
        (KubedevicesError("said so"), StatusCode.UNKNOWN, "said so"),
        (RpcError(StatusCode.ABORTED, "try later"), StatusCode.ABORTED, "try later"),
    ],
)
async def test_a_raising_hook_fails_the_call(
    hook: str, error: Exception, code: StatusCode, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The author's text reaches the node, an RpcError with its own status; it is logged."""
    plugin = Everything()
    setattr(plugin, hook, raising(error))
    with pytest.raises(RpcError) as caught:
        await Served(plugin, widgets("w1")).server.allocate(request("w1"))
    if not isinstance(error, RpcError):
        text += f" (test_server.py:{raising.__code__.co_firstlineno + 2})"
    assert (caught.value.code, caught.value.message) == (code, text)
    assert f"{RESOURCE}: Allocate w1 failed: {text}" in caplog.text


async def test_a_wrong_type_is_named() -> None:
    """A hook that forgot its `return` is told so, not answered with nonsense."""
    plugin = Everything(on_allocate=lambda _: None)
    with pytest.raises(RpcError, match="AllocateResponse"):
        await Served(plugin, widgets("w1")).server.allocate(request("w1"))


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"env": {"": "x"}}, "answered with '', which cannot be a name"),
        ({"env": {"A=B": "x"}}, "answered with 'A=B', which cannot be a name"),
        ({"annotations": {"": "x"}}, "answered with '', which cannot be a name"),
        ({"devices": [kd.DeviceSpec("/a", "/x"), kd.DeviceSpec("/b", "/x")]}, "cannot both be /x"),
        ({"mounts": [kd.Mount("/a", "/x"), kd.Mount("/b", "/x")]}, "cannot both be /x"),
        ({"mounts": [kd.Mount("a", "/x")]}, "the path 'a' must be absolute"),
    ],
)
async def test_an_answer_with_a_wrong_part_is_an_error(parts: dict[str, Any], text: str) -> None:
    """The pod is refused with the reason instead of a container that lacks it, or never starts."""
    plugin = Everything()
    answer = kd.AllocateResponse([kd.ContainerAllocateResponse(**parts)])
    plugin.on_allocate = lambda _: answer
    with pytest.raises(RpcError, match=text):
        await Served(plugin, widgets("w1")).server.allocate(request("w1"))


async def test_an_answer_for_no_container_is_an_error() -> None:
    """An empty answer would leak the devices in a kubelet, so it is an error here."""
    plugin = Everything(on_allocate=lambda _: kd.AllocateResponse([]))
    with pytest.raises(RpcError, match="answered for 0 containers, 1 were asked for"):
        await Served(plugin, widgets("w1")).server.allocate(request("w1"))


async def test_strict_allocate_and_env_merge_are_passed_on() -> None:
    """The two options reach the default response."""
    two = [kd.Device("a", env={"V": "1"}), kd.Device("b", env={"V": "2"})]
    joined = await Served(devices=two, env_merge="join").server.allocate(request("a", "b"))
    assert joined.containers[0].env == {"V": "1,2"}
    clash = [
        kd.Device("a", specs=[kd.DeviceSpec("/dev/a", "/dev/x")]),
        kd.Device("b", specs=[kd.DeviceSpec("/dev/b", "/dev/x")]),
    ]
    with pytest.raises(RpcError, match="/dev/x"):
        await Served(devices=clash, strict_allocate=True).server.allocate(request("a", "b"))


async def test_a_call_works_on_the_list_of_its_beginning() -> None:
    """A device that vanishes while the hook runs is still part of this answer."""
    plugin = Everything()
    began, may_go_on = threading.Event(), threading.Event()

    def wait(_: kd.AllocateRequest) -> object:
        began.set()
        may_go_on.wait(10)
        return kd.USE_DEFAULT

    plugin.on_allocate = wait
    served = Served(plugin, widgets("w1"))
    call = asyncio.create_task(served.server.allocate(request("w1")))
    await until(began.is_set)
    served.publish()
    may_go_on.set()
    assert len((await call).containers[0].devices) == 1


async def test_sixteen_hooks_run_at_once_and_streams_go_on() -> None:
    """Sixteen blocked hooks stop neither each other nor the streams."""
    plugin = Everything()
    together = threading.Barrier(17)
    plugin.on_allocate = lambda _: (together.wait(10), kd.USE_DEFAULT)[1]
    served = Served(plugin, widgets("w1"))
    async with reading(served.server) as reader:
        calls = [asyncio.create_task(served.server.allocate(request("w1"))) for _ in range(16)]
        await until(lambda: together.n_waiting == 16)
        served.publish(*widgets("w1", "w2"))
        await until(lambda: reader.seen and len(reader.seen[-1]) == 2)
        assert not any(call.done() for call in calls)
        together.wait(10)
        await asyncio.gather(*calls)


# ---------------------------------------------------------------- preferences


async def test_a_preference_is_passed_on() -> None:
    """What the hook prefers is the answer."""
    plugin = Everything(
        on_prefer=lambda asked: kd.PreferredAllocationResponse((asked.containers[0].available[:1],))
    )
    answer = await Served(plugin).server.get_preferred_allocation(preference("w1", "w2"))
    assert answer.containers == (("w1",),)


async def test_a_failing_preference_is_no_preference(caplog: pytest.LogCaptureFixture) -> None:
    """By default the hook's error is logged and counted, and the pod is not refused."""
    plugin = Everything(on_prefer=raising(ValueError("cannot decide")))
    server = Served(plugin).server
    answer = await server.get_preferred_allocation(preference("w1"))
    assert answer == kd.PreferredAllocationResponse(((),))
    assert "cannot decide" in caplog.text
    assert server.counts == {"preferred": 1, "failed_preferred": 1}


async def test_a_failing_preference_can_fail_the_call() -> None:
    """With `preferred_errors="fail"` the node gets the hook's error."""
    plugin = Everything(on_prefer=raising(ValueError("cannot decide")))
    server = Served(plugin, preferred_errors="fail").server
    with pytest.raises(RpcError, match="cannot decide"):
        await server.get_preferred_allocation(preference("w1"))


@pytest.mark.parametrize(
    ("preferred", "problem"),
    [
        ((), ""),
        (("a", "b"), ""),
        (("b", "a", "a"), ""),
        (("a", "x"), "x not available"),
        (("b", "c"), "a missing, though they must be included"),
        (("a",), "1 device instead of 2"),
        (("a", "b", "c"), "3 devices instead of 2"),
        (tuple(f"x{n}" for n in range(7)), "x0, x1, x2, x3, x4 and 2 more not available"),
    ],
)
async def test_an_impossible_preference_is_logged(
    preferred: tuple[str, ...], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Foreign IDs, missing ones and a wrong size are warned of; the answer goes out."""
    asked = preference("a", "b", "c", must=["a"], size=2)
    assert explain_preference(asked.containers[0], preferred) == problem
    plugin = Everything(on_prefer=lambda _: kd.PreferredAllocationResponse((preferred,)))
    answer = await Served(plugin).server.get_preferred_allocation(asked)
    assert answer.containers == (preferred,)
    assert [r.levelno for r in caplog.records] == ([logging.WARNING] if problem else [])
    assert problem in caplog.text


async def test_more_than_is_available_is_the_callers_mistake() -> None:
    """A size above the number of available devices is refused; the hook is not asked."""
    plugin = Everything(on_prefer=raising(AssertionError("asked")))
    with pytest.raises(RpcError, match="cannot prefer 3 of 2 available") as caught:
        await Served(plugin).server.get_preferred_allocation(preference("a", "b", size=3))
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_a_preference_for_no_container_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An answer with too few containers is warned of."""
    plugin = Everything(on_prefer=lambda _: kd.PreferredAllocationResponse())
    await Served(plugin).server.get_preferred_allocation(preference("a"))
    assert "0 answers for 1 containers" in caplog.text


# ---------------------------------------------------------------- PreStartContainer


async def test_pre_start_gets_all_ids_and_fails_with_the_hooks_text() -> None:
    """The hook sees every device of the container; its exception fails the container start."""
    plugin = Everything()
    seen: list[tuple[str, ...]] = []
    plugin.on_pre_start = lambda asked: seen.append(asked.device_ids)
    server = Served(plugin).server
    await server.pre_start_container(kd.PreStartContainerRequest(("w2", "w1")))
    assert seen == [("w2", "w1")]
    plugin.on_pre_start = raising(RuntimeError("no reset line"))
    with pytest.raises(RpcError, match="no reset line") as caught:
        await server.pre_start_container(kd.PreStartContainerRequest(("w1",)))
    assert caught.value.code is StatusCode.UNKNOWN
    assert server.counts == {"pre_starts": 1, "failed_pre_starts": 1}


@pytest.mark.parametrize(("takes", "limit", "warns"), [(0.2, 0.05, True), (0, 20, False)])
async def test_a_slow_pre_start_is_logged_while_it_runs(
    takes: float, limit: float, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Past most of the time it has, a warning says so."""
    plugin = Everything(on_pre_start=lambda _: time.sleep(takes))
    server = Served(plugin, timing=Timing(slow_pre_start=limit)).server
    await server.pre_start_container(kd.PreStartContainerRequest(("w1",)))
    assert (f"pre_start_container for w1 has been running for {limit:g} s" in caplog.text) is warns
