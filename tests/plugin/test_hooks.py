"""The abilities of a plugin object, as the server calls them."""

import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import BadHookAnswer
from kubedevices.plugin.hooks import Hooks
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
)

REQUEST = AllocateRequest((ContainerAllocateRequest(("w1", "w0")),))
PREFER = PreferredAllocationRequest((ContainerPreferredRequest(("w0", "w1"), (), 1),))
PRE_START = PreStartContainerRequest(("w0",))


def allocator(answer: Callable[[AllocateRequest], Any]) -> Hooks:
    """Return the hooks of a plugin that allocates by `answer`."""

    class Widgets(kd.Allocator):
        def allocate(self, request: AllocateRequest) -> Any:
            return answer(request)

    return Hooks(Widgets())


async def test_an_object_without_abilities() -> None:
    """Nothing is announced, and every call leaves things to the framework."""
    hooks = Hooks(object())
    response = AllocateResponse([ContainerAllocateResponse()])
    assert hooks.options == PluginOptions()
    assert not hooks.can_prefer
    assert not hooks.can_pre_start
    assert await hooks.allocate(REQUEST) is kd.USE_DEFAULT
    await hooks.post_allocate(response, REQUEST)
    assert response == AllocateResponse([ContainerAllocateResponse()])
    assert await hooks.get_preferred_allocation(PREFER) == PreferredAllocationResponse()
    await hooks.pre_start_container(PRE_START)


async def test_an_own_answer_is_returned_as_it_is() -> None:
    """The object that the plugin returned is the answer, odd or not."""
    answer = AllocateResponse([])
    assert await allocator(lambda request: answer).allocate(REQUEST) is answer


async def test_the_hook_gets_the_request() -> None:
    """The plugin sees the very request, IDs in the kubelet's order."""
    seen = []

    def remember(request: AllocateRequest) -> object:
        seen.append(request)
        return kd.USE_DEFAULT

    assert await allocator(remember).allocate(REQUEST) is kd.USE_DEFAULT
    assert seen == [REQUEST]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "Widgets.allocate() must return AllocateResponse or USE_DEFAULT, not None"),
        (ContainerAllocateResponse(), "USE_DEFAULT, not ContainerAllocateResponse"),
        (kd.Allocator, "USE_DEFAULT, not ABCMeta <class"),
    ],
)
async def test_a_wrong_answer_is_named(answer: object, text: str) -> None:
    """A forgotten `return` gives an error with plugin, method and what was expected."""
    with pytest.raises(BadHookAnswer, match=re.escape(text)):
        await allocator(lambda request: answer).allocate(REQUEST)


class Everything(kd.Allocator, kd.PostAllocator, kd.PreferredAllocator, kd.ContainerPreStarter):
    """Has every ability and remembers the threads that used them."""

    def __init__(self) -> None:
        self.threads: dict[str, int] = {}

    def _note(self, name: str) -> None:
        self.threads[name] = threading.get_ident()

    def allocate(self, request: AllocateRequest) -> kd.AllocateResponse:
        self._note("allocate")
        return AllocateResponse()

    def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
        self._note("post_allocate")
        response.containers[0].env["IDS"] = " ".join(request.containers[0].device_ids)

    def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        self._note("get_preferred_allocation")
        return PreferredAllocationResponse((request.containers[0].available[:1],))

    def pre_start_container(self, request: PreStartContainerRequest) -> None:
        self._note("pre_start_container")
        assert request.device_ids == ("w0",)


class EverythingAsync(
    kd.Allocator, kd.PostAllocator, kd.PreferredAllocator, kd.ContainerPreStarter
):
    """Does the same on the loop."""

    def __init__(self) -> None:
        self.plain = Everything()
        self.threads = self.plain.threads

    async def allocate(self, request: AllocateRequest) -> kd.AllocateResponse:
        return self.plain.allocate(request)

    async def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
        self.plain.post_allocate(response, request)

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        return self.plain.get_preferred_allocation(request)

    async def pre_start_container(self, request: PreStartContainerRequest) -> None:
        self.plain.pre_start_container(request)


@pytest.mark.parametrize("plugin_class", [Everything, EverythingAsync])
async def test_every_ability_as_def_and_async_def(
    plugin_class: type[Everything | EverythingAsync],
) -> None:
    """`def` runs in a thread and `async def` on the loop, with the same results."""
    plugin = plugin_class()
    hooks = Hooks(plugin)
    response = AllocateResponse([ContainerAllocateResponse()])
    assert hooks.options == PluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True
    )
    assert hooks.can_prefer
    assert hooks.can_pre_start
    assert await hooks.allocate(REQUEST) == AllocateResponse()
    await hooks.post_allocate(response, REQUEST)
    assert response.containers[0].env == {"IDS": "w1 w0"}
    preferred = await hooks.get_preferred_allocation(PREFER)
    assert preferred == PreferredAllocationResponse((("w0",),))
    await hooks.pre_start_container(PRE_START)
    on_loop = plugin_class is EverythingAsync
    assert len(plugin.threads) == 4
    assert all((ident == threading.get_ident()) == on_loop for ident in plugin.threads.values())


async def test_post_allocate_with_one_parameter() -> None:
    """A hook written as in Go, with the response only, works too."""

    class Widgets(kd.PostAllocator):
        def post_allocate(self, response: AllocateResponse) -> None:  # type: ignore[override]
            response.containers[0].annotations["a"] = "b"

    response = AllocateResponse([ContainerAllocateResponse()])
    await Hooks(Widgets()).post_allocate(response, REQUEST)
    assert response.containers[0].annotations == {"a": "b"}


async def test_post_allocate_that_takes_anything() -> None:
    """A hook with `*args` gets both arguments."""
    seen: list[object] = []

    class Widgets(kd.PostAllocator):
        def post_allocate(self, *args: object) -> None:
            seen.extend(args)

    response = AllocateResponse()
    await Hooks(Widgets()).post_allocate(response, REQUEST)
    assert seen == [response, REQUEST]


async def test_a_wrong_preference_is_named() -> None:
    """A list of IDs is no response."""

    class Widgets(kd.PreferredAllocator):
        def get_preferred_allocation(self, request: PreferredAllocationRequest) -> Any:
            return ["w0"]

    text = "Widgets.get_preferred_allocation() must return PreferredAllocationResponse, not list"
    with pytest.raises(BadHookAnswer, match=re.escape(text)):
        await Hooks(Widgets()).get_preferred_allocation(PREFER)


@pytest.mark.parametrize("method", ["allocate", "get_preferred_allocation", "pre_start_container"])
async def test_a_raising_hook(method: str) -> None:
    """Whatever the plugin raises reaches the server, which judges it."""

    class Widgets(kd.Allocator, kd.PreferredAllocator, kd.ContainerPreStarter):
        def fail(self, request: object) -> Any:
            raise LookupError("no firmware")

        allocate = get_preferred_allocation = pre_start_container = fail

    with pytest.raises(LookupError, match="no firmware"):
        await getattr(Hooks(Widgets()), method)(PREFER)


def test_a_method_without_its_ability_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    """A method that is never called because its class is not inherited is warned of."""

    class Widgets(kd.PostAllocator):
        def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
            pass

        def pre_start_container(self, request: PreStartContainerRequest) -> None:
            pass

    assert not Hooks(Widgets()).can_pre_start
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0] == (
        "Widgets.pre_start_container() is never called: "
        "Widgets does not inherit kubedevices.ContainerPreStarter"
    )
