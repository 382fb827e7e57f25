"""The DevicePlugin service of one resource: sends the device list on each ListAndWatch stream,
answers Allocate, GetPreferredAllocation and PreStartContainer. Knows no socket, no registration.

There is one list with a version number. Each stream remembers the version that it sent last (its
cursor), and nothing is queued per stream. So a stream without a reader takes no list away from the
next stream. `registrar` serves this service at a socket, `served_type` publishes the lists.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeAlias

from kubedevices.errors import (
    AllocationRefused,
    HookTimedOut,
    ImpossiblePreference,
    KubedevicesError,
    RpcError,
    StatusCode,
)
from kubedevices.host import deadlines
from kubedevices.plugin.allocate_response import (
    checked,
    default_response,
    explain_preference,
)
from kubedevices.plugin.author_errors import place_of, without_our_frames
from kubedevices.plugin.capabilities import UseDefault
from kubedevices.plugin.device_list import MAX_LIST_SIZE, DeviceList
from kubedevices.plugin.hook_threads import Deadline
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.open_streams import OpenStreams
from kubedevices.plugin.options import Settings
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device import Device

EnsureCdi: TypeAlias = Callable[[list[str]], Coroutine[Any, Any, tuple[list[str], dict[str, str]]]]

_LEAST_REQUEST = 2**16
"""Bytes of a request, for a plugin without devices."""

_log = logging.getLogger(__name__)


class PluginServer:
    """Answers the node for `resource`: lists its devices, allocates them, calls the hooks.

    Hooks run without a lock. Each call uses the list that was current when the call arrived.
    `counts` has the number of events by name: `allocations`, `failed_allocations`, `pre_starts`,
    `failed_pre_starts`, `preferred`, `failed_preferred`, `lists_sent`, and `late_allocate`,
    `late_preferred`, `late_pre_start` for hooks that did not answer in time.
    """

    def __init__(
        self,
        resource: str,
        hooks: Hooks,
        devices: DeviceList,
        settings: Settings,
        ensure_cdi: EnsureCdi | None = None,
    ) -> None:
        self.resource, self._settings, self._timeouts = resource, settings, settings.hook_timeouts
        self.streams = OpenStreams()
        self.counts: Counter[str] = Counter()
        self._hooks = hooks
        self._list = devices
        self._longest = len(devices.encoded)
        # A stream's cursor is local to `_lists`: the version and the bytes it sent last, and the
        # value of `_ended` at its start. So the server stores nothing per stream.
        self._version = 1
        self._changed = asyncio.Event()
        # Counts `end_streams`: a stream that began with another number ends.
        self._ended = 0
        self._is_refusing = False
        self._default = partial(
            default_response, env_merge=settings.env_merge, strict=settings.strict_allocate
        )
        self._ensure_cdi = ensure_cdi

    def __repr__(self) -> str:
        return f"<PluginServer {self.resource} {self._list!r} {len(self.streams)} streams>"

    @property
    def devices(self) -> Mapping[str, Device]:
        """The devices of the current list, by ID."""
        return self._list.devices

    @property
    def left_out(self) -> int:
        """How many devices are not in the current list because it would be too large."""
        return self._list.left_out

    @property
    def options(self) -> PluginOptions:
        """The options in the answer to GetDevicePluginOptions and in Register."""
        return self._hooks.options

    @property
    def cordon_file(self) -> Path | None:
        """The list of cordoned devices that the plugin follows."""
        return self._hooks.cordon_file

    def request_limit(self) -> int:
        """Return how many bytes a request may have: a request names devices of our list."""
        return min(_LEAST_REQUEST + 2 * self._longest, MAX_LIST_SIZE)

    def publish(self, devices: DeviceList) -> None:
        """Make `devices` the current list; an open stream that sent an equal list skips it."""
        self._list = devices
        self._longest = max(self._longest, len(devices.encoded))
        self._version += 1
        self._wake_streams()

    def end_streams(self) -> None:
        """End every open stream; for a socket that the plugin gives up."""
        self._ended += 1
        self._wake_streams()

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse GetDevicePluginOptions while the context lasts, so that registrations fail."""
        self._is_refusing = True
        try:
            yield
        finally:
            self._is_refusing = False

    def _wake_streams(self) -> None:
        # A new event per change: with one event for all, the first stream would clear it before the
        # streams that still send see it.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ------------------------------------------------------------ the service

    async def get_device_plugin_options(self) -> PluginOptions:
        """Say which optional calls the plugin answers."""
        if self._is_refusing:
            raise RpcError(StatusCode.UNAVAILABLE, "a newer instance of this plugin takes over")
        return self._hooks.options

    async def list_and_watch(self) -> AsyncIterator[bytes]:
        """Send the current list at once, then the newest list after each change."""
        lists, wrap = self._lists(), self._settings.wrap_lists
        wrapped = wrap(self.resource, lists) if wrap else lists
        # Closed here, not by the garbage collector: the registrar must see the end at once.
        async with contextlib.aclosing(lists), contextlib.aclosing(wrapped):
            async for each in wrapped:
                yield each

    async def _lists(self) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        # Version 0 is older than any list, so the first list goes out without a change.
        version, sent, ended = 0, None, self._ended
        with self.streams.stream():
            while ended == self._ended:
                if version == self._version:
                    await self._changed.wait()
                    continue
                version, encoded = self._version, self._list.encoded
                if encoded == sent:  # the list changed and changed back while this stream sent
                    continue
                sent = encoded
                self.counts["lists_sent"] += 1
                sent_at = loop.time()
                yield encoded
                if pause := self._settings.min_update_interval:
                    await self._pause(sent_at + pause, ended)

    async def _pause(self, until: float, ended: int) -> None:
        """Wait until the time `until`, or until the next call of `end_streams`."""
        with contextlib.suppress(TimeoutError):
            async with deadlines.timeout_at(until):
                while ended == self._ended:
                    await self._changed.wait()

    def allocate_at_once(self, request: AllocateRequest) -> AllocateResponse | None:
        """Answer like `allocate` if this needs no hook and no CDI file; otherwise return None."""
        if self._hooks.is_asked_to_allocate:
            return None
        devices = self._list.devices
        for container in request.containers:
            for each in container.device_ids:
                if (device := devices.get(each)) is not None and device.cdi is not None:
                    return None
        started = asyncio.get_running_loop().time()
        try:
            response = checked(self._default(request, devices), request, self._hooks.name)
        except Exception as error:
            self._fail_allocation(request, started, error)
        self._note_allocation(request, started)
        return response

    async def allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Answer with the plugin's own response, or with the default response."""
        devices = self._list.devices
        deadline = self._deadline("allocate", self._timeouts.allocate)
        started = asyncio.get_running_loop().time()
        try:
            # `devices` stays the list of the start: a list that is published while the hook runs
            # changes nothing for this call.
            response = await self._hooks.allocate(request, deadline)
            if isinstance(response, UseDefault):
                response = self._default(request, devices)
                await self._hooks.post_allocate(response, request, deadline)
            if not self._settings.relay:
                response = checked(response, request, self._hooks.name)
            await self._ensure_cdi_files(response, deadline)
        except asyncio.CancelledError:
            self._measure(started)
            raise
        except Exception as error:
            self._fail_allocation(request, started, error)
        self._note_allocation(request, started)
        return response

    def _note_allocation(self, request: AllocateRequest, started: float) -> None:
        """Count and log an answered call."""
        took = self._measure(started)
        self.counts["allocations"] += 1
        if _log.isEnabledFor(logging.INFO):
            text = ("%s: allocated %s (%.1f ms)", self.resource, _all_ids(request), took * 1000)
            asyncio.get_running_loop().call_soon(_log.info, *text)  # after the answer is sent

    def _fail_allocation(
        self, request: AllocateRequest, started: float, error: Exception
    ) -> NoReturn:
        """Count and log a failed call; raise the gRPC status for the node."""
        self._measure(started)
        self.counts["failed_allocations"] += 1
        self._count_late("allocate", error)
        self._fail("Allocate", _all_ids(request), error)

    def _measure(self, started: float) -> float:
        """Return for how many seconds a call ran, after a call of `on_allocated`."""
        took = asyncio.get_running_loop().time() - started
        if self._settings.on_allocated is not None:
            self._settings.on_allocated(self.resource, took)
        return took

    async def _ensure_cdi_files(self, response: AllocateResponse, deadline: Deadline) -> None:
        """Write missing CDI files before their names are sent: a runtime needs them."""
        ensure = self._ensure_cdi
        if ensure is None:
            return
        for container in response.containers:
            if container.cdi_devices:
                work = ensure(container.cdi_devices)
                names, annotations = await deadline.keep(work, "writing the CDI file")
                container.cdi_devices = names
                container.annotations = {**annotations, **container.annotations}

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Ask the plugin. Its error is only logged, because a kubelet would refuse the pod."""
        if not self._hooks.can_prefer:
            raise RpcError(
                StatusCode.UNIMPLEMENTED,
                "GetPreferredAllocation should not be called as this device plugin "
                "doesn't implement it",
            )
        self.counts["preferred"] += 1
        for asked in () if self._settings.relay else request.containers:
            if asked.size > (available := len(set(asked.available))):
                # No kubelet sends this: the caller made a mistake, not the plugin.
                problem = ImpossiblePreference(asked.size, available, "they are not enough")
                raise RpcError(StatusCode.INVALID_ARGUMENT, str(problem))
        try:
            deadline = self._deadline("preferred", self._timeouts.preferred)
            answer = await self._hooks.get_preferred_allocation(request, deadline)
        except Exception as error:
            self.counts["failed_preferred"] += 1
            self._count_late("preferred", error)
            if self._settings.preferred_errors == "fail":
                self._fail("GetPreferredAllocation", "", error)
            _log.warning(
                "%s: get_preferred_allocation failed, answering without preference: %s",
                self.resource, _describe(error), exc_info=_unexpected(error),
            )  # fmt: skip
            # An empty answer means no preference. On an error a kubelet would refuse the pod.
            return PreferredAllocationResponse(tuple(() for _ in request.containers))
        self._check_preference(request, answer)
        return answer

    def _check_preference(
        self, request: PreferredAllocationRequest, answer: PreferredAllocationResponse
    ) -> None:
        problems = [
            problem
            for asked, preferred in zip(request.containers, answer.containers, strict=False)
            if (problem := explain_preference(asked, tuple(preferred)))
        ]
        if len(answer.containers) != len(request.containers):
            problems.append(
                f"{len(answer.containers)} answers for {len(request.containers)} containers"
            )
        for problem in problems:
            _log.warning(
                "%s: get_preferred_allocation gave an answer that cannot be followed: %s",
                self.resource, problem,
            )  # fmt: skip

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Let the plugin prepare the devices of a container that is about to start."""
        if not self._hooks.can_pre_start:
            reason = "should not be called as this device plugin doesn't implement it"
            raise RpcError(StatusCode.UNIMPLEMENTED, f"PreStartContainer() {reason}")
        ids = " ".join(request.device_ids)
        loop = asyncio.get_running_loop()
        slow = loop.call_later(
            self._settings.timing.slow_pre_start, self._warn_of_slow_pre_start, ids
        )
        try:
            deadline = self._deadline("pre_start", self._timeouts.pre_start)
            response = await self._hooks.pre_start_container(request, deadline)
        except Exception as error:
            self.counts["failed_pre_starts"] += 1
            self._count_late("pre_start", error)
            self._fail("PreStartContainer", ids, error)
        finally:
            slow.cancel()
        self.counts["pre_starts"] += 1
        _log.info("%s: prepared %s", self.resource, ids)
        return response

    def _warn_of_slow_pre_start(self, ids: str) -> None:
        _log.warning(
            "%s: pre_start_container for %s has been running for %g s; it has %g s",
            self.resource, ids, self._settings.timing.slow_pre_start, self._timeouts.pre_start,
        )  # fmt: skip

    def _deadline(self, hook: str, seconds: float) -> Deadline:
        at = asyncio.get_running_loop().time() + seconds
        return Deadline(at, seconds, self.resource, f"{hook}_timeout")

    def _count_late(self, hook: str, error: Exception) -> None:
        if isinstance(error, HookTimedOut):
            self.counts[f"late_{hook}"] += 1

    def _fail(self, call: str, ids: str, error: Exception) -> NoReturn:
        """Log why `call` failed, and raise the gRPC status that the node gets."""
        text = _describe(error)
        if not isinstance(error, RpcError) and (place := place_of(error)):
            text += f" ({place})"
        parts = (self.resource, call, ids, text)
        _log.warning("%s: %s %s failed: %s", *parts, exc_info=_unexpected(error))
        if isinstance(error, RpcError):
            raise error
        code = StatusCode.UNKNOWN
        if isinstance(error, AllocationRefused | HookTimedOut):
            code = error.code
        raise RpcError(code, text) from error


def _all_ids(request: AllocateRequest) -> str:
    return " | ".join(" ".join(container.device_ids) for container in request.containers)


def _describe(error: Exception) -> str:
    if isinstance(error, RpcError):
        return error.message
    return str(error) or type(error).__name__


def _unexpected(error: Exception) -> tuple[type[Exception], Exception, TracebackType | None] | None:
    """Return `error` for the log if its traceback helps: it is a bug in the author's code."""
    if isinstance(error, KubedevicesError):
        return None
    return type(error), error, without_our_frames(error)
