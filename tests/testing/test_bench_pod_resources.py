"""The podresources socket of a bench: what tools that ask a kubelet about pods read there."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from kubedevices.errors import RpcError
from kubedevices.kubelet_api.pod_resources import (
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    PodResourcesClient,
)
from kubedevices.testing.workbench import Bench
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.host_needs import needs
from tests.waiting import until_sync
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, widgets

T = TypeVar("T")
POD = PodEntry("p", "default", (ContainerEntry("main", (DeviceEntry(RESOURCE, ("a",)),)),))


def ask(bench: Bench, call: Callable[[PodResourcesClient], Awaitable[T]]) -> T:
    """Return the answer of the bench's podresources socket to one call."""

    async def dial() -> T:
        async with await GrpcChannel.dial(bench.pod_resources) as channel:
            return await call(PodResourcesClient(channel))

    return asyncio.run(dial())


@pytest.fixture
def scanner(bench: Bench) -> Widgets:
    """Two widgets, registered; the pod `p` holds `a`."""
    scanner = Widgets(widget=widgets("a", "b"))
    bench.start(scanner, domain=DOMAIN, timing=QUICK)
    bench.wait_for(RESOURCE, allocatable=2)
    assert bench.allocate("p", "main", {RESOURCE: 1}).devices == ("a",)
    return scanner


@pytest.mark.usefixtures("scanner")
def test_list_has_the_pods_of_the_bench(bench: Bench) -> None:
    """List has a pod with its containers and devices, until the pod is released."""
    assert ask(bench, lambda client: client.list_pods(timeout=5)) == (POD,)
    bench.release("p")
    assert ask(bench, lambda client: client.list_pods(timeout=5)) == ()


@pytest.mark.usefixtures("scanner")
def test_get_has_one_pod(bench: Bench) -> None:
    """Get has the pod of this name, and an error for another name."""
    assert ask(bench, lambda client: client.get_pod("p", "default", timeout=5)) == POD
    with pytest.raises(RpcError, match="pod q in namespace default not found"):
        ask(bench, lambda client: client.get_pod("q", "default", timeout=5))


def test_allocatable_are_the_healthy_devices(bench: Bench, scanner: Widgets) -> None:
    """GetAllocatable has held and free devices, but no unhealthy device."""

    def allocatable() -> set[str]:
        answer = ask(bench, lambda client: client.get_allocatable(timeout=5))
        return {each for entry in answer for each in entry.device_ids}

    assert allocatable() == {"a", "b"}
    scanner.show(widget=widgets("a", "b", unhealthy=("b",)))
    bench.wait_for(RESOURCE, allocatable=1)
    assert allocatable() == {"a"}


@pytest.mark.usefixtures("scanner")
def test_a_restart_keeps_the_pods(bench: Bench) -> None:
    """As with a kubelet: after a restart the same path has the pods of before, and new pods."""
    bench.restart()
    bench.wait_for(RESOURCE, allocatable=2)
    bench.allocate("q", "main", {RESOURCE: 1})
    answer = ask(bench, lambda client: client.list_pods(timeout=5))
    assert [each.name for each in answer] == ["p", "q"]


def test_attached_programs_get_the_path(bench: Bench, tmp_path: Path) -> None:
    """`{pod_resources}` is replaced in arguments and in variables."""
    script = 'echo "$SOCKET {pod_resources}"; exec sleep 60'
    plugin = bench.attach("sh", "-c", script, env={"SOCKET": "{pod_resources}"}, cwd=tmp_path)
    until_sync(lambda: "\n" in plugin.output)
    assert plugin.output == f"{bench.pod_resources} {bench.pod_resources}\n"


@needs("mount")
def test_programs_with_fixed_paths_find_the_socket(bench: Bench) -> None:
    """With `kubelet_paths` the socket is where a kubelet has it."""
    script = "stat -c %i /var/lib/kubelet/pod-resources/kubelet.sock; exec sleep 60"
    plugin = bench.attach("sh", "-c", script, kubelet_paths=True)
    until_sync(lambda: "\n" in plugin.output)
    assert plugin.output == f"{bench.pod_resources.stat().st_ino}\n"
