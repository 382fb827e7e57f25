"""What the pages of `--listen` show of DRA drivers: alone, beside a device plugin, in a proxy.

A driver is ready when a kubelet has registered it and the API server has its slices.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from kubedevices.dra import driver_metrics as metrics
from kubedevices.dra.driver import DraDriver
from kubedevices.errors import DeviceListTooLarge
from kubedevices.pages.metrics import Sample
from kubedevices.pages.prometheus import PrometheusMetrics
from kubedevices.plugin.server import PluginServer
from kubedevices.serving.plugin_pages import Described, PluginPages
from kubedevices.serving.switch import ApiSwitch

CALLS = ("prepare", "unprepare")


def pages_beside(
    pages: PluginPages, runner: DraDriver | ApiSwitch
) -> contextlib.AbstractAsyncContextManager[object]:
    """Return a context in which `pages` are served, with the state of `runner`."""
    if isinstance(runner, DraDriver):
        return pages.beside(_NoPlugin(runner.domain), DriverView(runner))
    return pages.beside(_SwitchedPlugin(runner), DriverView(runner.driver, runner))


class _NoPlugin:
    """A device plugin without resources, which is always ready: for a driver alone."""

    has_scanned = is_ready = True
    servers: Mapping[str, PluginServer] = {}
    too_large: Mapping[str, DeviceListTooLarge] = {}

    def __init__(self, domain: str) -> None:
        self.domain = domain

    def is_registered(self, name: str, /) -> bool:
        """Return False. Nobody calls it, because there are no servers."""
        return False

    def is_serving(self, name: str, /) -> bool:
        """Return False. Nobody calls it, because there are no servers."""
        return False


class _SwitchedPlugin:
    """The device plugin of a switch. It is ready, too, while no device is in its API."""

    def __init__(self, switch: ApiSwitch) -> None:
        self._switch, self._plugin = switch, switch.plugin
        self.domain = switch.domain
        self.is_registered = switch.plugin.is_registered
        self.is_serving = switch.plugin.is_serving

    @property
    def has_scanned(self) -> bool:
        """Whether the scanner has reported its devices."""
        return self._switch.has_scanned

    @property
    def is_ready(self) -> bool:
        """Whether a kubelet has registered and watches every resource of the plugin."""
        if not self._switch.offered_by_plugin:
            return self._switch.has_scanned
        return self._plugin.is_ready

    @property
    def servers(self) -> Mapping[str, PluginServer]:
        """The server of each resource."""
        return self._plugin.servers

    @property
    def too_large(self) -> Mapping[str, DeviceListTooLarge]:
        """The resources of which some devices are left out, with the reason."""
        return self._plugin.too_large


class DriverView:
    """What the pages show of `driver`, which may be a part of `switch`."""

    def __init__(self, driver: DraDriver, switch: ApiSwitch | None = None) -> None:
        self._driver, self._switch = driver, switch

    @property
    def _mode(self) -> str:
        return "dra" if self._switch is None else self._switch.mode

    @property
    def why_not_ready(self) -> Sequence[str]:
        """The reasons why the driver is not ready; none in mode device-plugin."""
        return () if self._mode == "device-plugin" else self._driver.why_not_ready

    def count_in(self, numbers: PrometheusMetrics) -> None:
        """Record the duration of calls of the kubelet in `numbers`."""
        _count_calls(self._driver, numbers)

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the driver."""
        yield from _samples_of(self._driver)

    def state(self) -> dict[str, Any]:
        """Return what /state shows of the driver: the keys `mode` and `driver`."""
        return {"mode": self._mode, "driver": _described(self._driver)}


class DriverOwner(Protocol):
    """The drivers of a proxy, one for each domain; they may come and start again at any time."""

    driver_made: Callable[[DraDriver], None]

    @property
    def drivers(self) -> Mapping[str, DraDriver]:
        """The driver of each domain."""


class DriversView:
    """What the pages show of all drivers of a proxy, beside the proxy itself."""

    why_not_ready: Sequence[str] = ()
    """Empty: a proxy with drivers is not ready while one of them is not."""

    def __init__(self, drivers: DriverOwner) -> None:
        self._drivers = drivers

    def count_in(self, numbers: PrometheusMetrics) -> None:
        """Record the duration of calls of the kubelet in `numbers`, also of later drivers."""
        self._drivers.driver_made = lambda driver: _count_calls(driver, numbers)
        for driver in self._drivers.drivers.values():
            _count_calls(driver, numbers)

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of each driver."""
        for driver in [*self._drivers.drivers.values()]:
            yield from _samples_of(driver)

    def state(self) -> dict[str, Any]:
        """Return what /state shows of the drivers: the keys `mode` and `drivers`."""
        drivers = [_described(driver) for _, driver in sorted(self._drivers.drivers.items())]
        return {"mode": "dra", "drivers": drivers}


def _count_calls(driver: DraDriver, numbers: PrometheusMetrics) -> None:
    for call in CALLS:
        numbers.begin_histogram(metrics.CLAIM_SECONDS, driver.domain, call)

    def observe(call: str, seconds: float) -> None:
        numbers.observe(metrics.CLAIM_SECONDS, seconds, driver.domain, call)

    driver.claim_log.observe = observe


def _samples_of(driver: DraDriver) -> Iterator[Sample]:
    own = (driver.domain,)
    count = Counter((device["type"], device["state"]) for device in _devices_of(driver))
    kinds = {kind for kind, _ in count}
    for kind in kinds:
        for state in ("published", "withheld", "refused"):
            yield Sample(metrics.DRIVER_DEVICES, (*own, kind, state), count[kind, state])
    yield Sample(metrics.DRIVER_SLICES, own, len(driver.publisher.wanted))
    yield Sample(metrics.DRIVER_PUBLISHED, own, int(driver.publisher.is_published))
    yield Sample(metrics.DRIVER_REGISTERED, own, int(driver.is_registered))
    yield Sample(metrics.PUBLISH_ERRORS, own, driver.publisher.errors)
    for asked, times in driver.requests.items():
        yield Sample(metrics.API_REQUESTS, (*own, *asked), times)
    yield Sample(metrics.CLAIMS, (*own, "prepared"), len(driver.claims))
    yield Sample(metrics.CLAIMS, (*own, "refused"), len(driver.claim_log.refused))
    for call in CALLS:
        yield Sample(metrics.CLAIM_ERRORS, (*own, call), driver.claim_log.failures[call])
    for claim in driver.claims:
        for result in claim.results:
            labels = (*own, result.device, claim.reference.namespace, claim.reference.name)
            yield Sample(metrics.DEVICE_CLAIMED, labels, 1)


def _described(driver: DraDriver) -> dict[str, Any]:
    offer = driver.offer
    size = 0 if offer is None else len(offer.devices) + len(offer.refused)
    claims = [
        {
            **claim.reference._asdict(),
            "devices": [each.device for each in claim.results],
            "prepared": claim.is_ready,
            "problem": "",
        }
        for claim in driver.claims
    ]
    refused = [
        {**each.claim._asdict(), "devices": [], "prepared": False, "problem": each.reason}
        for each in driver.claim_log.refused.values()
    ]
    return {
        "name": driver.domain,
        "registered": driver.is_registered,
        "published": driver.publisher.is_published,
        "problem": driver.publisher.problem,
        "slices": len(driver.publisher.wanted),
        "devices": Described(size, lambda: _devices_of(driver)),
        "claims": claims + refused,
    }


_DEVICE_KEYS = ("type", "id", "name", "health", "reason", "state", "why")


def _devices_of(driver: DraDriver) -> Iterator[dict[str, str]]:
    if driver.offer is None:
        return
    published = {each["name"] for part in driver.publisher.wanted for each in part}
    for label, offered in driver.offer.devices.items():
        kind, device = offered.device_type, offered.device
        why = next(filter(None, map(driver.withheld.get, offered.keys)), "")
        state = ("published", "") if label in published else ("withheld", why)
        seen = (kind, device.id, label, str(device.health), device.reason, *state)
        yield dict(zip(_DEVICE_KEYS, seen, strict=True))
    for (kind, name), why in driver.offer.refused.items():
        yield dict(zip(_DEVICE_KEYS, (kind, name, "", "", "", "refused", why), strict=True))
