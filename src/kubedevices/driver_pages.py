"""What the pages of `--listen` show of a DRA driver, alone or together with a device plugin.

A driver is ready when a kubelet has registered it and the API server has its slices.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubedevices.dra import driver_metrics as metrics
from kubedevices.dra.driver import DraDriver
from kubedevices.errors import DeviceListTooLarge
from kubedevices.metrics import PrometheusMetrics, Sample
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin_pages import Described, PluginPages
from kubedevices.two_apis.switch import ApiSwitch

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

    @property
    def has_scanned(self) -> bool:
        """Whether the scanner has reported its devices."""
        return self._plugin.has_scanned or self._switch.has_scanned

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

    def is_registered(self, name: str, /) -> bool:
        """Whether a kubelet has registered the resource."""
        return self._plugin.is_registered(name)

    def is_serving(self, name: str, /) -> bool:
        """Whether the socket of the resource accepts calls."""
        return self._plugin.is_serving(name)


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
        driver = self._driver
        if self._mode == "device-plugin":
            return ()
        if driver.offer is None:
            return ("the scanner has not reported yet",)
        missing = []
        if not driver.is_registered:
            missing.append(f"driver {driver.domain}: no kubelet has registered it")
        if not driver.publisher.is_published:
            why = driver.publisher.problem or "the API server has not been asked yet"
            missing.append(f"driver {driver.domain}: its devices are not published: {why}")
        return missing

    def count_in(self, numbers: PrometheusMetrics) -> None:
        """Record the duration of calls of the kubelet in `numbers`."""
        for call in CALLS:
            numbers.begin_histogram(metrics.CLAIM_SECONDS, call)

        def observe(call: str, seconds: float) -> None:
            numbers.observe(metrics.CLAIM_SECONDS, seconds, call)

        self._driver.claim_log.observe = observe

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the driver."""
        driver = self._driver
        count = Counter((device["type"], device["state"]) for device in self._devices())
        kinds = {kind for kind, _ in count}
        for kind in kinds:
            for state in ("published", "withheld", "refused"):
                yield Sample(metrics.DRIVER_DEVICES, (kind, state), count[kind, state])
        yield Sample(metrics.DRIVER_SLICES, (), len(driver.publisher.wanted))
        yield Sample(metrics.DRIVER_PUBLISHED, (), int(driver.publisher.is_published))
        yield Sample(metrics.DRIVER_REGISTERED, (), int(driver.is_registered))
        yield Sample(metrics.PUBLISH_ERRORS, (), driver.publisher.errors)
        for asked, times in driver.requests.items():
            yield Sample(metrics.API_REQUESTS, asked, times)
        yield Sample(metrics.CLAIMS, ("prepared",), len(driver.claims))
        yield Sample(metrics.CLAIMS, ("refused",), len(driver.claim_log.refused))
        for call in CALLS:
            yield Sample(metrics.CLAIM_ERRORS, (call,), driver.claim_log.failures[call])
        for claim in driver.claims:
            for result in claim.results:
                labels = (result.device, claim.reference.namespace, claim.reference.name)
                yield Sample(metrics.DEVICE_CLAIMED, labels, 1)

    def state(self) -> dict[str, Any]:
        """Return what /state shows of the driver: the keys `mode` and `driver`."""
        driver, offer = self._driver, self._driver.offer
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
            "mode": self._mode,
            "driver": {
                "registered": driver.is_registered,
                "published": driver.publisher.is_published,
                "problem": driver.publisher.problem,
                "slices": len(driver.publisher.wanted),
                "devices": Described(size, self._devices),
                "claims": claims + refused,
            },
        }

    def _devices(self) -> Iterator[dict[str, str]]:
        driver = self._driver
        if driver.offer is None:
            return
        published = {each["name"] for part in driver.publisher.wanted for each in part}
        for label, offered in driver.offer.devices.items():
            kind, device = offered.device_type, offered.device
            why = next(filter(None, map(driver.withheld.get, offered.keys)), "")
            state = "published" if label in published else "withheld"
            yield {
                "type": kind,
                "id": device.id,
                "name": label,
                "health": str(device.health),
                "state": state,
                "why": "" if label in published else why,
            }
        for (kind, name), why in driver.offer.refused.items():
            yield {
                "type": kind,
                "id": name,
                "name": "",
                "health": "",
                "state": "refused",
                "why": why,
            }
