"""`explain` and `devices` on a node where nothing is wrong: exit code 0, and no problem.

Each situation is real sockets and files on the bench, which plays the kubelet of both device APIs.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kubedevices.dra.device_plugin_guard import GuardTiming
from kubedevices.proxy.proxy import Proxy
from kubedevices.serving.handover import HandoverTiming
from kubedevices.values.socket_paths import default_state_dir
from tests.explain.node_rig import (
    DOMAIN,
    FOREIGN,
    WIDGET,
    ForeignDriver,
    NodeHost,
    Widgets,
    claim_foreign,
    publish_foreign,
    write_cdi,
)
from tests.waiting import until
from tests.widgets import QUICK

OTHER = "other.example.com"
SOON = {
    "guard_timing": GuardTiming(pending=0.02, idle=0.1, young=0.0),
    "handover_timing": HandoverTiming(
        look=0.02, drain=0.05, withdrawn=0.05, allocated=0.1, returning=0.05
    ),
    "timing": QUICK,
}

Subjects = dict[str, str]
"""Each subject of `explain`, and words that it prints."""


async def plain(host: NodeHost) -> Subjects:
    """A device plugin, and a pod that has one of its devices."""
    host.bench.start(Widgets(), domain=DOMAIN)
    await host.on_bench(host.bench.wait_for, WIDGET, allocatable=2)
    await host.on_bench(host.bench.allocate, "train", "main", {WIDGET: 1})
    return {WIDGET: "1 of 2 healthy devices are held"}


async def dra_only(host: NodeHost) -> Subjects:
    """A driver; no plugin ever registered its names."""
    await host.on_bench(host.bench.start, Widgets(), domain=DOMAIN, mode="dra")
    claimed = await host.on_bench(host.bench.claim, "train", {WIDGET: 1})
    return {
        WIDGET: f"the DRA driver {DOMAIN} serves it",
        DOMAIN: f"default/{claimed.name} has w-0, held by default/train (main)",
    }


async def both_apis(host: NodeHost) -> Subjects:
    """A plugin of one domain, a driver of another."""
    await dra_only(host)
    host.bench.start(Widgets(kind="nic"), domain=OTHER)
    await host.on_bench(host.bench.wait_for, f"{OTHER}/nic", allocatable=2)
    return {f"{OTHER}/nic": "0 of 2 healthy devices are held", DOMAIN: "1 claim prepared"}


async def split(host: NodeHost) -> Subjects:
    """One device of a type in each API; both are held."""
    await host.serve_both_apis("split", dra_devices=["widget/w-1"], **SOON)
    await host.on_bench(host.bench.wait_for, WIDGET, allocatable=1)
    await host.on_bench(host.bench.allocate, "old", "main", {WIDGET: 1})
    await host.on_bench(host.bench.claim, "new", {WIDGET: 1})
    return {WIDGET: "1 of 1 healthy devices are held", DOMAIN: "1 claim prepared"}


async def proxied(host: NodeHost) -> Subjects:
    """A plugin behind a proxy."""
    proxy = Proxy(
        socket_dir=host.bench.socket_dir,
        plugin_dir=host.root / "in",
        state_dir=default_state_dir(host.bench.socket_dir),
        timing=QUICK,
    )
    await host.stack.enter_async_context(running(proxy))
    host.bench.start(Widgets(), domain=DOMAIN, socket_dir=host.root / "in")
    await host.on_bench(host.bench.wait_for, WIDGET, allocatable=2)
    return {WIDGET: "0 of 2 healthy devices are held"}


@contextlib.asynccontextmanager
async def running(proxy: Proxy) -> AsyncIterator[None]:
    task = asyncio.create_task(proxy.run(), name="proxy")
    await until(lambda: task.done() or proxy.has_started)
    yield
    proxy.stop()
    await task


async def mode_file_with_old_pods(host: NodeHost) -> Subjects:
    """The node changed to DRA while a pod holds a device of the device plugin."""
    mode_file = host.root / "mode"
    await host.serve_both_apis("device-plugin", mode_file=mode_file, **SOON)
    await host.on_bench(host.bench.wait_for, WIDGET, allocatable=2)
    await host.on_bench(host.bench.allocate, "old", "main", {WIDGET: 1})
    mode_file.write_text("dra")
    await host.on_bench(host.bench.wait_published, DOMAIN, devices=1)
    await host.on_bench(host.bench.wait_for, WIDGET, capacity=0)
    return {WIDGET: f"the DRA driver {DOMAIN} serves it", DOMAIN: "0 claims prepared"}


async def mode_file_after_the_old_pods(host: NodeHost) -> Subjects:
    """The kubelet still knows the resource, whose plugin has ended."""
    await mode_file_with_old_pods(host)
    await host.on_bench(host.bench.release, "old")
    await host.on_bench(host.bench.wait_published, DOMAIN, devices=2)
    await until(lambda: not [*host.bench.socket_dir.glob(f"{DOMAIN}-*.sock")])
    return {WIDGET: f"the DRA driver {DOMAIN} serves it", DOMAIN: "0 claims prepared"}


async def roll_out(host: NodeHost) -> Subjects:
    """Two sockets of one driver; the old instance is about to end."""
    await foreign_drivers(host)
    newer = ForeignDriver(host, suffix="-6c9e7d5e-7c0b-4d43-a9d2-0f1c2b3a4d5e")
    await host.stack.enter_async_context(newer.serving())
    for _ in range(2):
        await host.on_bench(host.bench.start, Widgets(), domain=DOMAIN, mode="dra")
        await host.on_bench(host.bench.wait_published, DOMAIN, devices=2)
    return {FOREIGN: "2 instances are registered", DOMAIN: "0 claims prepared"}


async def after_a_reboot(host: NodeHost) -> Subjects:
    """All CDI files were lost, and written again; another vendor's driver has not begun yet."""
    await dra_only(host)
    host.bench.start(Widgets(kind="nic"), domain=OTHER)
    await host.on_bench(host.bench.wait_for, f"{OTHER}/nic", allocatable=2)
    await host.on_bench(host.bench.restart, reboot=True)
    await host.on_bench(host.bench.wait_for, f"{OTHER}/nic", allocatable=2)
    return {DOMAIN: "1 claim prepared", f"{OTHER}/nic": "healthy"}


async def foreign_drivers(host: NodeHost) -> Subjects:
    """Sockets of a driver and of storage, slices, and a claim with the CDI file of its vendor."""
    driver = ForeignDriver(host)
    await host.stack.enter_async_context(driver.serving())
    storage = ForeignDriver(host, "csi.vendor.org")
    storage._info = storage._info._replace(type="CSIPlugin", supported_versions=("1.0.0",))
    await host.stack.enter_async_context(storage.serving())
    write_cdi(host.cdi_dir, f"{FOREIGN}/gpu", "gpu-0")
    write_cdi(host.cdi_dir, "nvidia.com/gpu", "all", name="nvidia.yaml")
    await publish_foreign(host)
    claimed = await claim_foreign(host, "train")
    return {FOREIGN: f"default/{claimed.name} has gpu-0, held by default/train (main)"}


async def empty_node(host: NodeHost) -> Subjects:
    """A kubelet without plugins and drivers."""
    await host.on_bench(lambda: host.bench.dra)
    return {}


SITUATIONS: tuple[Callable[[NodeHost], Awaitable[Subjects]], ...] = (
    plain,
    dra_only,
    both_apis,
    split,
    proxied,
    mode_file_with_old_pods,
    mode_file_after_the_old_pods,
    roll_out,
    after_a_reboot,
    foreign_drivers,
    empty_node,
)


def is_driver(subject: str) -> bool:
    return "/" not in subject


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__)
async def test_a_healthy_node_has_no_problem(
    situation: Callable[[NodeHost], Awaitable[Subjects]], host: NodeHost
) -> None:
    """Neither for the whole node nor for one resource or driver; nor is there a warning."""
    subjects = await situation(host)
    for subject in ("", *subjects):
        shown = await host.explain(*filter(None, [subject]))
        assert (shown.code, shown.lines("problem")) == (0, []), shown.out
        assert "no problem" in shown.out.splitlines()[-1]
        assert subjects.get(subject, "") in shown.out, shown.out
        unexpected = [
            line for line in shown.lines("warning") if not line.startswith("warning  held")
        ]
        assert not unexpected, shown.out
    listed = await host.run("devices")
    assert listed.code == 0
    assert ("no devices" in listed.err) == (situation is empty_node)
    assert {*filter(is_driver, subjects)} <= {*listed.out.split()}
