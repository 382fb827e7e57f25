"""`kubedevices release --claim` frees the devices of a claim that no container has."""

import asyncio
import json
from pathlib import Path

import pytest

from kubedevices.cli import main
from tests.dra.cluster import OneNode, claim_of
from tests.dra.test_abandoned_search import KubeletWithPods
from tests.dra.test_device_plugin_guard import SlowKubelet
from tests.dra.test_driver import DRIVER, UID, Rig
from tests.waiting import until


@pytest.fixture
def rig(short_dir: Path, server: OneNode) -> Rig:
    server.give("one", claim_of(UID, "w-1"))
    (short_dir / "k" / "device-plugins").mkdir(parents=True)
    return Rig(short_dir, server)


async def release(rig: Rig, claim: str, *more: str) -> int:
    sockets = str(rig.directory / "k" / "device-plugins")
    return await asyncio.to_thread(
        main, ["release", "--claim", claim, "--socket-dir", sockets, *more]
    )


async def prepare(rig: Rig) -> None:
    await until(lambda: rig.api.devices)
    assert not (await rig.call("NodePrepareResources")).error


def pod_resources(rig: Rig) -> Path:
    return rig.directory / "k" / "pod-resources" / "kubelet.sock"


@pytest.mark.parametrize("name", ["default/one", UID])
async def test_the_devices_of_an_unused_claim_are_freed(
    rig: Rig, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name or its UID; the driver undoes its work as for a kubelet."""
    async with rig.driver() as driver:
        await prepare(rig)
        async with SlowKubelet().serving(pod_resources(rig)):
            assert await release(rig, name, "-o", "json") == 0
        assert not driver.claims
        assert not [*rig.cdi_dir.iterdir()]
    released = [{"driver": DRIVER, "claim": "default/one", "devices": ["w-1"]}]
    assert json.loads(capsys.readouterr().out) == {"released": released}


async def test_a_claim_of_a_host_that_is_mounted_is_freed(rig: Rig) -> None:
    """As in a pod of `kubectl debug`, which sees the files of the host below /host."""
    root = rig.directory
    (root / "var/lib").mkdir(parents=True)
    (root / "var/lib/kubelet").symlink_to("../../k")
    async with rig.driver() as driver:
        await prepare(rig)
        async with SlowKubelet().serving(pod_resources(rig)):
            words = ["release", "--claim", "default/one", "--host-root", str(root)]
            assert await asyncio.to_thread(main, words) == 0
        assert not driver.claims


class Used(KubeletWithPods):
    """Lists a container with the claim."""

    claim = "one"


async def test_a_claim_of_a_container_is_not_freed(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice is to delete the pod. Without the kubelet nothing is freed either."""
    async with rig.driver() as driver:
        await prepare(rig)
        assert await release(rig, "default/one") == 3
        assert "did not answer" in capsys.readouterr().err
        async with Used().serving(pod_resources(rig)):
            assert await release(rig, "default/one") == 1
            assert "a container on this node has it: delete its pod" in capsys.readouterr().err
            assert await release(rig, "default/onne") == 1
            assert "no driver on this host has prepared it" in capsys.readouterr().err
        assert driver.claims


async def test_without_the_driver_the_error_says_to_start_it(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the driver can undo its work."""
    async with rig.driver():
        await prepare(rig)
    async with SlowKubelet().serving(pod_resources(rig)):
        assert await release(rig, "default/one") == 3
    assert f"the driver {DRIVER} does not run: start it" in capsys.readouterr().err
