"""A DRA driver is killed with SIGKILL at random times while pods start and end and hosts reboot.

After each restart no device may be held twice, every pod must start or end, and exactly the claims
of active pods have a CDI file. `KUBEDEVICES_KILLS=200` sets the number of kills to the target
(default: 20). All random decisions of the test have a fixed seed.

The driver is a separate process; the API server, the scheduler and the kubelet are the stand-ins.
A reboot kills the driver and the kubelet, empties the directory of CDI files and changes the ID of
the boot. The kubelet then asks again for the claims of all its pods.
"""

import asyncio
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import DynamicResourcesFailed, UnresolvableCdiDevices
from kubedevices.host.cdi_specs import read_registry, read_spec_file
from kubedevices.testing.workbench.dra_node import DraNode
from tests import waiting
from tests.stories.killed_driver import DRIVER, WIDGETS

KILLS = int(os.environ.get("KUBEDEVICES_KILLS", "20"))
SEED = int(os.environ.get("KUBEDEVICES_SEED", "1"))
WIDGET = f"{DRIVER}/widget"
START = 0.8
"""Seconds in which a driver starts: a kill in them comes at any stage of that."""

Act = Callable[[], Coroutine[Any, Any, None]]
until = partial(waiting.until, timeout=60)


class Story:
    """One node, the current driver process, and their history."""

    def __init__(self, directory: Path, dice: random.Random) -> None:
        self.directory, self.dice = directory, dice
        self.node = DraNode(directory / "k", directory / "cdi")
        self.process: asyncio.subprocess.Process | None = None
        self.happened: Counter[str] = Counter()
        self.number = 0
        self.set_extra(0)

    # ------------------------------------------------------------ the driver

    async def start_driver(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.stories.killed_driver", str(self.directory),
                stdout=log, stderr=log,
            )  # fmt: skip

    async def kill_driver(self) -> None:
        assert self.process is not None
        assert self.process.returncode is None, (self.directory / "log").read_text()
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    def is_up(self) -> bool:
        instances = self.node.kubelet.drivers.instances(DRIVER)
        return any(each.is_connected for each in instances)

    # ------------------------------------------------------------ what is going on when it dies

    async def start_pod(self) -> None:
        self.number += 1
        pod, count = f"pod-{self.number}", self.dice.choice([1, 1, 2])
        try:
            await self.node.claim(pod, {WIDGET: count}, (), 60)
        except (DynamicResourcesFailed, UnresolvableCdiDevices):
            await self.again(lambda: self.node.kubelet.prepare(self.node.pods[pod]))

    async def end_pod(self) -> None:
        pod = self.dice.choice(sorted(self.node.pods))
        await self.again(lambda: self.node.release(pod))

    async def again(self, call: Act) -> None:
        """Repeat the call as a kubelet does, with shorter pauses."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await call()
                except DynamicResourcesFailed:
                    await asyncio.sleep(0.02)

    def set_extra(self, count: int) -> None:
        file = self.directory / "extra"
        file.with_suffix(".new").write_text(str(count))
        file.with_suffix(".new").rename(file)

    async def publish(self) -> None:
        self.set_extra(self.dice.choice([0, 1, 130, 300]))

    async def reboot(self) -> None:
        """Stop all pods, empty /run, and let the kubelet start its pods again."""
        shutil.rmtree(self.directory / "cdi")
        (self.directory / "cdi").mkdir()
        (self.directory / "boot").write_text(f"boot-{self.dice.random()}")
        kept = {name for pod in self.node.pods.values() for name in pod.claims}
        for claim in self.node.api.find("resourceclaims"):
            if (name := claim["metadata"]["name"]) not in kept:
                self.node.api.delete("resourceclaims", name)  # its pod never came to this node
        with (self.directory / "journal").open("a") as journal:
            journal.write("reboot\n")

    # ------------------------------------------------------------ one kill

    def choose(self) -> tuple[str, Act]:
        pods = len(self.node.pods)
        free = WIDGETS - sum(map(len, map(self.devices_of, self.node.pods)))
        acts: list[tuple[str, Act]] = [("publish", self.publish)]
        if free >= 2:
            acts += 3 * [("prepare", self.start_pod)]
        if pods:
            acts += 3 * [("unprepare", self.end_pod)]
        return self.dice.choice(acts)

    async def step(self) -> None:
        await until(self.is_up)
        name, act = self.choose()
        acting = asyncio.create_task(act())
        if self.dice.random() < 0.75:
            await asyncio.sleep(self.dice.random() * 0.03)  # the instant
        else:
            await self.kill_driver()
            await self.start_driver()
            await asyncio.sleep(self.dice.random() * START)
            self.happened["start"] += 1
        await self.kill_driver()
        is_reboot = self.dice.random() < 0.2
        self.happened[name] += 1
        self.happened["reboot"] += is_reboot
        if is_reboot:
            acting.cancel()
            await asyncio.wait({acting})
            await self.reboot()
            await self.start_driver()
            async with asyncio.timeout(60):
                await self.node.restart(0)
        else:
            await self.start_driver()
            await acting
        await self.settle()

    async def settle(self) -> None:
        """Wait until no pod hangs and no CDI file is missing or left over."""
        count = WIDGETS + int((self.directory / "extra").read_text())
        await self.node.wait_published(DRIVER, count, 60)
        for pod in self.node.pods.values():
            await self.again(partial(self.node.kubelet.prepare, pod))
        assert self.files() == self.wanted()
        registry = read_registry([self.directory / "cdi"])
        for pod in self.node.pods.values():
            info = self.node.kubelet.prepared("default", pod.claims[0])
            assert info is not None
            registry.edits(info.cdi_ids())
        assert self.made_ready() == {
            device: self.uid_of(name) for name in self.node.pods for device in self.devices_of(name)
        }

    # ------------------------------------------------------------ what is there

    def devices_of(self, pod: str) -> list[str]:
        claim = self.node.api.get("resourceclaims", self.node.pods[pod].claims[0])
        return [each["device"] for each in claim["status"]["allocation"]["devices"]["results"]]

    def wanted(self) -> set[str]:
        """The CDI devices that the pods need."""
        return {
            f"{self.uid_of(name)}-{device}"
            for name in self.node.pods
            for device in self.devices_of(name)
        }

    def uid_of(self, pod: str) -> str:
        claim = self.node.api.get("resourceclaims", self.node.pods[pod].claims[0])
        return str(claim["metadata"]["uid"])

    def files(self) -> set[str]:
        """The CDI devices that exist."""
        found = map(read_spec_file, (self.directory / "cdi").iterdir())
        return {device.name for each in found if each.spec for device in each.spec.devices}

    def made_ready(self) -> dict[str, str]:
        """The claim for which the author's hook prepared each device, since the last boot."""
        holder: dict[str, str] = {}
        for line in (self.directory / "journal").read_text().splitlines():
            call, *words = line.split()
            if call == "reboot":
                holder.clear()
                continue
            uid, *devices = words
            for device in devices:
                assert holder.get(device, uid) == uid, f"{line}, held by {holder[device]}"
                if call == "prepare":
                    holder[device] = uid
                elif holder.get(device) == uid:
                    del holder[device]
        return holder


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * KILLS)
async def test_a_driver_can_be_killed_at_any_time(short_dir: Path) -> None:
    """No device is held twice, no CDI file is missing or left over, no pod hangs."""
    story = Story(short_dir, random.Random(SEED))
    (short_dir / "boot").write_text("boot-0")
    (short_dir / "journal").touch()
    await story.node.start()
    await story.start_driver()
    try:
        for _ in range(KILLS):
            await story.step()
        while story.node.pods:
            await story.end_pod()
        assert story.files() == set()
        assert not [*(short_dir / "cdi").iterdir()], "nor a temporary file"
    finally:
        print(f"{KILLS} kills, seed {SEED}: {dict(story.happened)}")
        await story.kill_driver()
        await story.node.stop()
