"""The services that run beside a node's kubelet.sock, started, and loaded, as its arguments say."""

import argparse
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.metrics import (
    POD_RESOURCES_BY_METHOD,
    POD_RESOURCES_ERRORS,
    POD_RESOURCES_REQUESTS,
    TEXT_FORMAT,
    WATCHED_PLUGINS,
    Metrics,
    PrometheusMetrics,
    Sample,
)

if TYPE_CHECKING:
    from kubedevices.http_pages import PageServer
    from kubedevices.node.arrival.plugin_watcher import PluginWatcher
    from kubedevices.node.device_manager import DeviceManager


@contextlib.asynccontextmanager
async def node_services(
    args: argparse.Namespace, manager: "DeviceManager", metrics: Metrics
) -> AsyncIterator[dict[str, str]]:
    """Run them; yields what to say about them when all are ready. Raises `CannotAsk`."""
    ready: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as running:
        if args.pod_resources:
            from kubedevices.node.doors.pod_resources import PodResourcesServer

            server = PodResourcesServer(manager, args.pod_resources, count=_counter(metrics))
            await server.start()
            running.push_async_callback(server.stop)
            ready["podresources"] = str(server.socket)
        if args.plugin_registry:
            watcher = _watcher(manager, args.plugin_registry)
            metrics.collect_from(lambda: _watched(watcher))
            await watcher.start()
            running.push_async_callback(watcher.stop)
            ready["plugin registry"] = str(watcher.directory)
        if isinstance(metrics, PrometheusMetrics):
            from kubedevices.process_samples import process_samples

            metrics.collect_from(process_samples)
            pages = _metrics_pages(args.metrics, metrics)
            await pages.start()
            running.push_async_callback(pages.stop)
            ready["metrics"] = f"{pages.url}/metrics"
        yield ready


def _watcher(manager: "DeviceManager", directory: Path) -> "PluginWatcher":
    from kubedevices.node.arrival.plugin_watcher import PluginWatcher, device_plugins

    handler = manager.get_watcher_handler()
    return PluginWatcher(directory, device_plugins(handler.connect, handler.disconnect))


def _watched(watcher: "PluginWatcher") -> list[Sample]:
    states = ("desired_state_of_world", "actual_state_of_world")
    return [
        Sample(WATCHED_PLUGINS, (str(path), state), number)
        for path, numbers in watcher.counts().items()
        for state, number in zip(states, numbers, strict=True)
    ]


def _counter(metrics: Metrics) -> Callable[[str, str, bool], None]:
    """Count calls of the podresources service as a kubelet does."""

    def count(method: str, version: str, failed: bool) -> None:
        if failed:
            metrics.count(POD_RESOURCES_ERRORS[method], version)
            return
        metrics.count(POD_RESOURCES_REQUESTS, version)
        if version == "v1":
            metrics.count(POD_RESOURCES_BY_METHOD[method], version)

    return count


def _metrics_pages(address: str, metrics: PrometheusMetrics) -> "PageServer":
    from kubedevices.http_pages import Page, PageServer, parse_address

    async def page() -> Page:
        return Page(metrics.text(), TEXT_FORMAT)

    return PageServer(parse_address(address), {"/metrics": page})
