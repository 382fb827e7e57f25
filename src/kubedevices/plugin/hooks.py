"""The abilities of one plugin object as coroutines. For the plugin server.

Only this module finds out which abilities an object has, and calls its methods. Exceptions of a
hook pass through: the server decides what to answer.
"""

import inspect
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kubedevices.errors import BadHookAnswer, HookFailed, KubedevicesError
from kubedevices.host import deadlines
from kubedevices.plugin import hook_threads
from kubedevices.plugin.author_errors import describe
from kubedevices.plugin.capabilities import (
    USE_DEFAULT,
    AllocateAnswer,
    Allocator,
    ClaimPreparer,
    ContainerPreStarter,
    PostAllocator,
    PreferredAllocator,
    StandIn,
    TypeStarter,
    TypeStopper,
    UseDefault,
)
from kubedevices.plugin.hook_threads import Deadline
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ClaimedDevices,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kubedevices.values.cdi import ContainerEdits

_METHODS: dict[str, type] = {
    "allocate": Allocator,
    "post_allocate": PostAllocator,
    "get_preferred_allocation": PreferredAllocator,
    "pre_start_container": ContainerPreStarter,
    "prepare_claim": ClaimPreparer,
    "unprepare_claim": ClaimPreparer,
    "on_type_added": TypeStarter,
    "on_type_removed": TypeStopper,
}

_ANSWERS = (AllocateResponse, UseDefault)
_STARTED = PreStartContainerResponse()

_log = logging.getLogger(__name__)


class Hooks:
    """What `plugin` can do besides scanning."""

    def __init__(self, plugin: object) -> None:
        self.name = plugin.stands_for if isinstance(plugin, StandIn) else type(plugin).__name__
        own = frozenset(each for each in _METHODS.values() if isinstance(plugin, each))
        self.offered = offered = plugin.offered if isinstance(plugin, StandIn) else own
        """The abilities that the plugin has: classes of `capabilities`."""

        self._unknown_options = plugin.unknown_options if isinstance(plugin, StandIn) else b""
        methods = {
            method: getattr(plugin, method)
            for method, ability in _METHODS.items()
            if ability in offered
        }
        self._allocate = methods.get("allocate")
        # Found out once: behind a proxy, a call passes through many objects of this class.
        self._is_awaited = inspect.iscoroutinefunction(self._allocate)
        self._post_allocate = methods.get("post_allocate")
        # PostAllocate of Go plugins takes only the response; here it may take the request, too.
        self._post_arguments = 2
        if self._post_allocate is not None:
            self._post_arguments = _count_arguments(self._post_allocate)
        self._prefer = methods.get("get_preferred_allocation")
        self._pre_start = methods.get("pre_start_container")
        self._prepare = methods.get("prepare_claim")
        self._unprepare = methods.get("unprepare_claim")
        self.parameters: type | None = getattr(plugin, "parameters", None)
        """The dataclass of the parameters that claims can set, if the plugin prepares claims."""
        self._type_added = methods.get("on_type_added")
        self._type_removed = methods.get("on_type_removed")
        self.can_prefer = "get_preferred_allocation" in methods
        self.can_pre_start = "pre_start_container" in methods
        self.can_post_allocate = "post_allocate" in methods
        self.can_prepare = "prepare_claim" in methods
        self.is_asked_to_allocate = not methods.keys().isdisjoint(("allocate", "post_allocate"))
        self.cordon_file: Path | None = getattr(plugin, "cordon_file", None)
        """The list of cordoned devices that a middleware of the plugin follows."""

        self._warn_of_methods_without_ability(plugin)

    @property
    def options(self) -> PluginOptions:
        """The options in the answer to GetDevicePluginOptions and in Register."""
        return PluginOptions(
            pre_start_required=self.can_pre_start,
            get_preferred_allocation_available=self.can_prefer,
            unknown=self._unknown_options,
        )

    # Each of the next four methods raises `HookTimedOut` after `deadline`, unless it is None.

    async def allocate(
        self, request: AllocateRequest, deadline: Deadline | None = None
    ) -> AllocateAnswer:
        """Return the plugin's own answer, or `USE_DEFAULT` if the plugin has no `allocate`."""
        if self._allocate is None:
            return USE_DEFAULT
        if self._is_awaited and (deadline is None or deadline.at == math.inf):
            answer: object = await self._allocate(request)
        else:
            answer = await hook_threads.call(self._allocate, request, deadline=deadline)
        if not isinstance(answer, _ANSWERS):
            raise BadHookAnswer(self.name, "allocate", "AllocateResponse or USE_DEFAULT", answer)
        return answer

    async def post_allocate(
        self,
        response: AllocateResponse,
        request: AllocateRequest,
        deadline: Deadline | None = None,
    ) -> None:
        """Let the plugin edit `response`, if it has `post_allocate`."""
        if self._post_allocate is not None:
            arguments = (response, request)[: self._post_arguments]
            await hook_threads.call(self._post_allocate, *arguments, deadline=deadline)

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest, deadline: Deadline | None = None
    ) -> PreferredAllocationResponse:
        """Ask the plugin; return no preference if it has no such method (see `can_prefer`)."""
        if self._prefer is None:
            return PreferredAllocationResponse()
        answer: object = await hook_threads.call(self._prefer, request, deadline=deadline)
        if not isinstance(answer, PreferredAllocationResponse):
            expected = "PreferredAllocationResponse"
            raise BadHookAnswer(self.name, "get_preferred_allocation", expected, answer)
        return answer

    async def pre_start_container(
        self, request: PreStartContainerRequest, deadline: Deadline | None = None
    ) -> PreStartContainerResponse:
        """Let the plugin prepare the devices, if it has the method (see `can_pre_start`)."""
        answer = None
        if self._pre_start is not None:
            answer = await hook_threads.call(self._pre_start, request, deadline=deadline)
        # A hook of an author returns nothing; a plugin behind the proxy returns an answer.
        return answer if isinstance(answer, PreStartContainerResponse) else _STARTED

    async def prepare_claim(self, claimed: ClaimedDevices) -> "ContainerEdits | None":
        """Let the plugin make devices ready; return what it adds for containers."""
        if self._prepare is None:
            return None
        answer: object = await hook_threads.call(self._prepare, claimed)
        # Recognised by an attribute: an import of the class would load all of CDI.
        if answer is not None and not hasattr(answer, "device_nodes"):
            raise BadHookAnswer(self.name, "prepare_claim", "ContainerEdits or None", answer)
        return cast("ContainerEdits | None", answer)

    async def unprepare_claim(self, claimed: ClaimedDevices) -> None:
        """Let the plugin undo `prepare_claim`."""
        if self._unprepare is not None:
            await hook_threads.call(self._unprepare, claimed)

    async def on_type_added(self, device_type: str) -> None:
        """Let the plugin prepare what a device type needs; raises `HookFailed`."""
        if self._type_added is None:
            return
        try:
            await hook_threads.call(self._type_added, device_type)
        except KubedevicesError:
            raise
        except Exception as error:
            raise HookFailed(self.name, "on_type_added", error, describe(error)) from error

    async def on_type_removed(self, device_type: str, timeout: float | None) -> None:
        """Tell the plugin that a device type is no longer served; errors are only logged.

        `timeout` in seconds; None if a caller has a deadline already.
        """
        if self._type_removed is None:
            return
        try:
            async with deadlines.timeout(timeout):
                await hook_threads.call(self._type_removed, device_type)
        except TimeoutError:
            _log.warning(
                "%s: %s.on_type_removed() has not returned after %g s: not waited for",
                device_type, self.name, timeout,
            )  # fmt: skip
        except Exception as error:  # the type is gone in any case
            failure = HookFailed(self.name, "on_type_removed", error, describe(error))
            _log.exception("%s: %s", device_type, failure)

    def _warn_of_methods_without_ability(self, plugin: object) -> None:
        for method, ability in _METHODS.items():
            if callable(getattr(plugin, method, None)) and not isinstance(plugin, ability):
                _log.warning(
                    "%s.%s() is never called: %s does not inherit kubedevices.%s",
                    self.name, method, self.name, ability.__name__,
                )  # fmt: skip


def _count_arguments(method: Callable[..., Any]) -> int:
    """Return 1 for a `post_allocate` that takes only the response, as Go plugins write it."""
    try:
        inspect.signature(method).bind(None, None)
    except TypeError:
        return 1
    except ValueError:  # some C functions have no signature
        return 2
    return 2
