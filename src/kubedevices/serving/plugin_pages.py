"""The pages of a serving plugin: /healthz, /readyz, /metrics and /state. Only with `--listen`.

/healthz: the process answers. /readyz: a kubelet has registered every resource and has an open
ListAndWatch stream for it. /state: the state as JSON, whose keys are stable.
"""

import asyncio
import contextlib
import json
import logging
import os
import platform
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from http import HTTPStatus
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

from kubedevices.errors import CannotAsk, DeviceListTooLarge
from kubedevices.host import deadlines
from kubedevices.pages import metrics
from kubedevices.pages.metrics import Sample
from kubedevices.pages.page_server import Page, PageServer, names_in, parse_address
from kubedevices.pages.process_samples import process_samples
from kubedevices.pages.prometheus import PrometheusMetrics
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.server import PluginServer
from kubedevices.rules.middleware import innermost, layers
from kubedevices.values.device import Health
from kubedevices.version import VERSION

_log = logging.getLogger(__name__)

_NOT_READY = HTTPStatus.SERVICE_UNAVAILABLE
_KUBELET_TIMEOUT = 2.0
"""Seconds for an answer of the kubelet. A scrape usually waits 10 s, also for the other metrics."""
_PIECES = 512
"""Pieces of JSON between two turns of other tasks: some thirty devices, less than a millisecond."""
_COUNTERS = (
    (metrics.PLUGIN_REGISTRATIONS, "registrations", ("success",)),
    (metrics.PLUGIN_REGISTRATIONS, "failed_registrations", ("failure",)),
    (metrics.KUBELET_RESTARTS, "kubelet_restarts", ()),
    (metrics.UPDATES, "lists_sent", ()),
    (metrics.ALLOCATIONS, "allocations", ("success",)),
    (metrics.ALLOCATIONS, "failed_allocations", ("failure",)),
    (metrics.PREFERRED_ERRORS, "failed_preferred", ()),
    (metrics.PRE_START_ERRORS, "failed_pre_starts", ()),
    *(
        (metrics.LATE_HOOKS, f"late_{hook}", (hook,))
        for hook in ("allocate", "preferred", "pre_start")
    ),
)
_COUNTS = {name for _, name, _ in _COUNTERS} | {"preferred", "pre_starts"}


class Observed(Protocol):
    """What the pages show: a `PluginRunner`, or several as one. `name` is a key of `servers`."""

    domain: str

    @property
    def has_scanned(self) -> bool:
        """Whether the scanner has reported its devices."""

    @property
    def is_ready(self) -> bool:
        """Whether a kubelet has registered every resource and watches its devices."""

    @property
    def servers(self) -> Mapping[str, PluginServer]:
        """The server of each resource."""

    @property
    def too_large(self) -> Mapping[str, DeviceListTooLarge]:
        """The resources of which some devices are left out, with the reason."""

    def is_registered(self, name: str, /) -> bool:
        """Whether a kubelet has registered the resource."""

    def is_serving(self, name: str, /) -> bool:
        """Whether the socket of the resource accepts calls."""


class DriverStatus(Protocol):
    """What the pages show of a DRA driver in the same process."""

    @property
    def why_not_ready(self) -> Sequence[str]:
        """The reasons why the driver is not ready; empty if it is ready."""

    def samples(self) -> Iterable[Sample]:
        """Yield the metrics of the driver."""

    def state(self) -> dict[str, Any]:
        """Return the keys that the driver adds to /state."""

    def count_in(self, numbers: PrometheusMetrics) -> None:
        """Record the duration of calls in `numbers` from now on."""


class PluginPages:
    """Serves the pages of one plugin at `address`; raises `UsageError` for an invalid address.

    `source` is the scanner of the plugin. Without it, `beside` takes the scanners of its runner.
    """

    def __init__(
        self, address: str, source: Scanner | None, *, pod_resources: Path | None = None
    ) -> None:
        node = os.environ.get("NODE_NAME") or platform.node()
        self.metrics = PrometheusMetrics(everywhere={metrics.NODE_LABEL: node})
        self._address, self._source = parse_address(address), source
        self._names = names_in(address)
        self._pod_resources = pod_resources
        self._held: list[Sample] = []
        self._is_kubelet_silent = False
        self.metrics.collect_from(lambda: self._held)

    def count_allocation(self, resource: str, seconds: float) -> None:
        """Record the seconds of an Allocate call; the runner calls this."""
        self.metrics.observe(metrics.ALLOCATE_SECONDS, seconds, resource)

    @contextlib.asynccontextmanager
    async def beside(
        self, runner: Observed, further: DriverStatus | None = None
    ) -> AsyncIterator[None]:
        """Serve the pages of `runner`, and of the driver `further`, while the context lasts.

        Raises `CannotAsk`.
        """
        if further is not None:
            further.count_in(self.metrics)
            self.metrics.collect_from(further.samples)

        async def healthz() -> Page:
            return Page(b"ok\n")

        async def readyz() -> Page:
            missing = [] if runner.is_ready else [_why_not_ready(runner)]
            missing += further.why_not_ready if further else ()
            if not missing:
                return Page(b"ok\n")
            text = "\n".join(missing)
            return Page(f"{text}\n".encode(), status=_NOT_READY)

        async def text() -> Page:
            self._held = await self._held_devices(runner)
            return Page(await self.metrics.page(), metrics.TEXT_FORMAT)

        async def state() -> Page:
            content = describe_plugin(runner)
            if further is not None:
                missing = further.why_not_ready
                content |= further.state() | {"ready": content["ready"] and not missing}
            return Page(await _as_json(content), "application/json")

        self.metrics.collect_from(lambda: self._samples(runner))
        pages = {"/healthz": healthz, "/readyz": readyz, "/metrics": text, "/state": state}
        server = PageServer(self._address, pages, self._names)
        await server.start()
        try:
            _log.info("pages at %s: %s", server.url, ", ".join(pages))
            yield
        finally:
            await server.stop()

    def _samples(self, runner: Observed) -> Iterator[Sample]:
        yield from process_samples()
        for device_type, server in runner.servers.items():
            self.metrics.begin_histogram(metrics.ALLOCATE_SECONDS, server.resource)
            yield from _samples_of(server, runner.is_registered(device_type))
        for device_type, error in runner.too_large.items():
            if device_type not in runner.servers:
                yield Sample(metrics.LEFT_OUT, (error.resource,), error.devices)
        for name, is_here in getattr(runner, "connected", {}).items():  # only of a proxy
            yield Sample(metrics.PROXIED_CONNECTED, (name,), int(is_here))
        source: Any = runner if self._source is None else self._source
        scanners: Iterable[Scanner] = getattr(source, "scanners", (source,))
        events = Counter[tuple[str, ...]]()
        for layer in chain.from_iterable(map(layers, scanners)):
            for (device_type, event), times in [*layer.counts.items()]:
                events[type(layer).__name__.lower(), device_type, event] += times
        for labels, times in events.items():
            yield Sample(metrics.MIDDLEWARE_EVENTS, labels, times)
        scanner: Any = innermost(source) if isinstance(source, Scanner) else source
        if (took := getattr(scanner, "last_scan_seconds", None)) is not None:
            yield Sample(metrics.SCAN_SECONDS, (), took)
            yield Sample(metrics.SCAN_ERRORS, (), scanner.failed_scans)
        if (follower := getattr(scanner, "follower", None)) is not None:
            yield Sample(metrics.CONFIG_RELOADS, ("success",), follower.reloads)
            yield Sample(metrics.CONFIG_RELOADS, ("failure",), follower.failed_reloads)
            yield Sample(metrics.CONFIG_IN_FORCE, (), int(follower.is_in_force))
            yield Sample(metrics.CONFIG_RELOADED, (), follower.read_at)

    async def _held_devices(self, runner: Observed) -> list[Sample]:
        """Ask the kubelet which containers hold our devices; empty if it does not answer."""
        if self._pod_resources is None:
            return []
        from kubedevices.kubelet_api.kubelet_devices import ask_kubelet  # noqa: PLC0415 - few ask

        ours = {server.resource for server in runner.servers.values()}
        try:
            async with deadlines.timeout(_KUBELET_TIMEOUT):
                listed = await ask_kubelet(self._pod_resources)
        except (CannotAsk, TimeoutError) as error:
            if not self._is_kubelet_silent:  # log once: scrapes come every few seconds
                reason = str(error) or f"no answer within {_KUBELET_TIMEOUT:g} s"
                _log.warning("/metrics cannot say which pod has which device: %s", reason)
            self._is_kubelet_silent = True
            return []
        self._is_kubelet_silent = False
        return await asyncio.to_thread(_held_samples, listed, ours)


def _held_samples(listed: Mapping[str, Any], ours: Collection[str]) -> list[Sample]:
    """Return a sample for each holder of each device of the resources `ours`."""
    return [
        Sample(
            metrics.DEVICE_ALLOCATED,
            (
                *(resource["resource"], device["id"]),
                *(holder["namespace"], holder["pod"], holder["container"]),
            ),
            1,
        )
        for resource in listed["resources"]
        if resource["resource"] in ours
        for device in resource["devices"]
        for holder in device["held_by"]
    ]


class Described(list[Any]):
    """A list of JSON objects, each made when the encoder comes to it; `make` yields `size` of them.

    To make all objects of a long list would take too long for one turn of the event loop.
    """

    def __init__(self, size: int, make: Callable[[], Iterator[Any]]) -> None:
        super().__init__()
        self._size, self._make = size, make

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return self._make()

    def __eq__(self, other: object) -> bool:
        return [*self] == other

    __hash__ = None


def _devices_of(server: PluginServer) -> Described:
    devices = server.devices

    def describe() -> Iterator[dict[str, Any]]:
        for device in devices.values():
            yield {
                "id": device.id,
                "health": str(device.health),
                "reason": device.reason,
                "numa_nodes": list(device.numa_nodes or ()),
                "cdi": device.cdi,
            }

    return Described(len(devices), describe)


async def _as_json(content: Mapping[str, Any]) -> bytes:
    """Return the JSON of `content`. Other tasks run after each `_PIECES`: a list may be long."""
    parts: list[str] = []
    pieces = iter(json.JSONEncoder(indent=1).iterencode(content))
    while piece := "".join(islice(pieces, _PIECES)):
        parts.append(piece)
        await asyncio.sleep(0)
    return "".join([*parts, "\n"]).encode()


def describe_plugin(runner: Observed) -> dict[str, Any]:
    """Return the content of /state: every resource with its devices and its counts so far."""
    return {
        "version": VERSION,
        "domain": runner.domain,
        "ready": runner.is_ready,
        "resources": [
            {
                "resource": server.resource,
                "serving": runner.is_serving(device_type),
                "registered": runner.is_registered(device_type),
                "streams": len(server.streams),
                "counts": {name: server.counts[name] for name in sorted(_COUNTS)},
                "left_out": server.left_out,
                "devices": _devices_of(server),
            }
            for device_type, server in runner.servers.items()
        ],
    }


def _why_not_ready(runner: Observed) -> str:
    if not runner.has_scanned:
        return "the scanner has not reported yet"
    waiting = [
        f"{server.resource}: "
        + ("no open device list" if runner.is_registered(name) else "not registered")
        for name, server in runner.servers.items()
        if not (runner.is_registered(name) and len(server.streams))
    ]
    waiting += [str(error) for error in runner.too_large.values()]
    waiting += getattr(runner, "problems", ())  # only a proxy has further parts
    return "\n".join(waiting) or "not serving yet"


def _samples_of(server: PluginServer, is_registered: bool) -> Iterator[Sample]:
    resource = server.resource
    healths = [device.health for device in server.devices.values()]
    for health in Health:
        yield Sample(metrics.DEVICES, (resource, str(health)), healths.count(health))
    yield Sample(metrics.LEFT_OUT, (resource,), server.left_out)
    yield Sample(metrics.REGISTERED, (resource,), int(is_registered))
    yield Sample(metrics.STREAMS, (resource,), len(server.streams))
    for metric, name, labels in _COUNTERS:
        yield Sample(metric, (resource, *labels), server.counts[name])
