"""A proxy is killed with SIGKILL at random times, while pods, lists and cordons change.

After each kill the files of the proxy can be read, and they have every cordon. After each restart
the node has the devices of both plugins again, the pods hold what they held, and no file is left
over. `KUBEDEVICES_KILLS=200` sets the number of kills to the target (default: 10). All random
decisions of the test have a fixed seed.

Node and proxy are the real commands. The plugins are in the test's process: one registers again
after each start of the proxy, and one registers only once, as some do.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubedevices.errors import KubedevicesError
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.services.control_client import ControlClient
from kubedevices.proxy.proxy_config import ProxyRule
from kubedevices.proxy.saved_list import DIRECTORY, SavedLists
from kubedevices.rules.cordon_file import add_cordoned, change_cordoned, read_cordoned
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import FakePlugin, healthy, unhealthy
from tests.node_process import ROOT, NodeProcess, node_process
from tests.waiting import until

KILLS = int(os.environ.get("KUBEDEVICES_KILLS", "10"))
SEED = int(os.environ.get("KUBEDEVICES_SEED", "1"))
DOMAIN = "example.com"
ONCE, AGAIN = f"{DOMAIN}/once", f"{DOMAIN}/again"
DEVICES = 6
FLAPPING = "flapping"
"""A device that changes its health all the time, so that the proxy cordons it."""

START = 1.5
"""Seconds in which a proxy starts: a kill in them comes at any stage of that."""

PATIENCE = 120.0
"""Seconds for what takes one or two; a busy machine needs more."""

LEFT_OVER = 2
"""Unfinished files that a kill may leave: of the lists, and of the file of sockets."""

RULES = f"""\
resources:
  "{DOMAIN}/*": {{hold: 5m, holdOverReboot: true, allocateWait: 1s, health: {{maxFlaps: 1}}}}
"""


class Story:
    """The programs, what the test has been told, and what it has ordered."""

    def __init__(self, directory: Path, node: NodeProcess, dice: random.Random) -> None:
        self.directory, self.node, self.dice = directory, node, dice
        self.inside, self.state = directory / "in", directory / "state"
        self.cordons = self.state / "maintenance.json"
        self.plugins: dict[str, FakePlugin] = {}
        self.proxy: asyncio.subprocess.Process | None = None
        self.pods: dict[str, frozenset[str]] = {}
        self.cordoned: set[tuple[str, str]] = set()
        self.numbers: Iterator[int] = itertools.count(1)
        self.happened: Counter[str] = Counter()
        self.has_flapped = self.is_ending = False

    # ------------------------------------------------------------ the proxy

    async def start(self) -> None:
        with (self.directory / "proxy.log").open("a") as log:
            self.proxy = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-X",
                    "faulthandler",
                    "-W",
                    "error",
                    "-m",
                    "kubedevices.cli",
                    "proxy",
                ),
                *("--config", str(self.directory / "rules.yaml")),
                *("--plugin-dir", str(self.inside), "--state-dir", str(self.state)),
                *("--socket-dir", str(self.directory / "p")),
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    async def explain(self) -> str:
        """End a proxy that hangs; return the end of its log, with the stacks of its threads."""
        assert self.proxy is not None
        if self.proxy.returncode is None:
            self.proxy.send_signal(signal.SIGABRT)
        code = await self.proxy.wait()
        return f"exit code {code}\n{(self.directory / 'proxy.log').read_text()[-8000:]}"

    async def kill(self) -> None:
        assert self.proxy is not None
        assert self.proxy.returncode is None, (self.directory / "proxy.log").read_text()[-4000:]
        self.proxy.send_signal(signal.SIGKILL)
        await self.proxy.wait()

    async def register(self, resource: str) -> None:
        """Register as a plugin does that watches kubelet.sock."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await self.plugins[resource].register()
                except (KubedevicesError, OSError):
                    await asyncio.sleep(0.02)

    # ------------------------------------------------------------ what is going on when it dies

    async def load(self, work: Callable[[random.Random], object]) -> None:
        """Repeat one kind of work, each time with a short pause, until `is_ending`."""
        dice = random.Random(self.dice.random())
        while not self.is_ending:
            await work(dice)  # type: ignore[misc]
            await asyncio.sleep(dice.random() * 0.02)

    async def change_list(self, dice: random.Random) -> None:
        resource = dice.choice([ONCE, AGAIN])
        await self.plugins[resource].send(self.listed(dice))
        self.happened["list"] += 1

    def listed(self, dice: random.Random | None = None) -> list[ReportedDevice]:
        """Return a list: without dice, as it is in the end."""
        sick = dice is not None and dice.random() < 0.5
        known = healthy(*(f"d{number}" for number in range(DEVICES)))
        more = healthy(*(f"x{number}" for number in range(dice.randrange(40)))) if dice else []
        return [*known, *(unhealthy if sick else healthy)(FLAPPING), *more]

    async def change_cordons(self, dice: random.Random) -> None:
        """Cordon or uncordon, in another process than the proxy as `kubedevices cordon` does."""
        chosen = (dice.choice([ONCE, AGAIN]), f"x{dice.randrange(40)}")
        if chosen in self.cordoned:
            await asyncio.to_thread(
                change_cordoned,
                self.cordons,
                lambda known: [each for each in known if each[:2] != chosen],
            )
            self.cordoned.remove(chosen)
        else:
            await asyncio.to_thread(add_cordoned, self.cordons, [chosen], "test")
            self.cordoned.add(chosen)
        self.happened["cordon"] += 1

    async def change_pods(self, dice: random.Random, client: ControlClient) -> None:
        if self.pods and dice.random() < 0.5:
            name = dice.choice(sorted(self.pods))
            await client.release(name)
            del self.pods[name]
            return
        resource = dice.choice([ONCE, AGAIN])
        name = f"pod-{next(self.numbers)}"
        try:
            asked = Pod(name, containers=(Container("c", {resource: dice.choice([1, 2])}),))
            answer = await client.allocate(asked)
        except KubedevicesError:
            self.happened["refused"] += 1
            return
        devices = answer["containers"][0]["devices"][resource]
        self.pods[name] = frozenset(f"{resource}/{each}" for each in devices)
        self.happened["admitted"] += 1

    # ------------------------------------------------------------ one kill

    async def step(self) -> None:
        """Kill the proxy under load, look at its files, and start it again."""
        client = await self.node.ask()
        self.is_ending = False
        works: list[Callable[[random.Random], object]] = [
            self.change_list,
            self.change_cordons,
            lambda dice: self.change_pods(dice, client),
        ]
        tasks = [asyncio.create_task(self.load(each), name="load") for each in works]
        if self.dice.random() < 0.7:
            before = self.happened["admitted"]
            await until(lambda: self.happened["admitted"] > before or any_done(tasks), 60, "a pod")
            await asyncio.sleep(self.dice.random() * 0.2)  # the instant
        else:
            await self.kill()
            await self.start()
            await asyncio.sleep(self.dice.random() * START)
            self.happened["start"] += 1
        await self.kill()
        # What began before the kill comes to an end, so nothing is in doubt.
        self.is_ending = True
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)
        self.look_at_files()
        await client.__aexit__()
        await self.start()
        await self.settle()

    def look_at_files(self) -> None:
        """Without a proxy every file is readable, and has what was known before the kill."""
        entries = (
            {each[:2] for each in read_cordoned(self.cordons)} if self.cordons.exists() else set()
        )
        flapped = {(each, FLAPPING) for each in (ONCE, AGAIN)} & entries
        assert not self.has_flapped or flapped, "a cordon of the proxy is lost"
        self.has_flapped = bool(flapped)
        assert entries - flapped == self.cordoned, "cordons are lost or came back"
        files = {*(self.state / DIRECTORY).glob("*.json")}
        rule = ProxyRule(hold=300.0, hold_over_reboot=True)
        lists = SavedLists(self.state, lambda _: rule).load()
        assert {*lists} <= {ONCE, AGAIN}
        assert len(lists) == len(files), "a saved list is damaged"
        sockets = self.state / "proxy-sockets.json"
        if sockets.exists():
            assert set(json.loads(sockets.read_text())["sockets"]) <= {ONCE, AGAIN}
        unfinished = [each.name for each in self.state.rglob("*.tmp")]
        assert len(unfinished) <= LEFT_OVER, unfinished

    async def settle(self) -> None:
        """The node has all devices again, pods hold what they held, and nothing is left over."""
        for plugin in self.plugins.values():
            await plugin.send(self.listed())
        await self.register(AGAIN)
        async with await self.node.ask() as client:
            async with asyncio.timeout(PATIENCE):
                while not await self.is_as_ordered(client):  # noqa: ASYNC110 - it asks a process
                    await asyncio.sleep(0.05)
            held: dict[str, frozenset[str]] = {}
            for pod in (await client.pods())["pods"]:
                held[pod["name"]] = frozenset(
                    f"{resource}/{each}"
                    for container in pod["containers"]
                    for resource, ids in container["devices"].items()
                    for each in ids
                )
        twice = [
            each for each, count in Counter(itertools.chain(*held.values())).items() if count > 1
        ]
        assert not twice, f"held twice: {twice}"
        assert held == self.pods, "the node and the answers to the test differ"
        await self.look_for_leftovers()

    async def is_as_ordered(self, client: ControlClient) -> bool:
        """Whether the node offers exactly the devices of both lists, apart from the cordons."""
        wanted = {f"d{number}" for number in range(DEVICES)}
        for resource in (ONCE, AGAIN):
            answer = (await client.devices(resource))["resources"]
            healthy_ids = {
                each["id"]
                for found in answer
                for each in found["devices"]
                if each["health"] == "Healthy"
            }
            if healthy_ids - {FLAPPING} != wanted:
                return False
        return True

    async def look_for_leftovers(self) -> None:
        """Many kills leave as few files as one."""
        names = {each.name for each in self.state.iterdir()}
        expected = {"maintenance.json", "maintenance.json.lock", "proxy-sockets.json", "proxy.lock"}
        assert names - expected - {DIRECTORY, "proxy.sock"} == set()
        assert {each.name for each in self.inside.iterdir()} == {
            "kubelet.sock",
            *(each.socket_name for each in self.plugins.values()),
        }
        # A socket of a killed process is removed when it is old enough to be judged.
        place = self.directory / "p"
        await until(lambda: len([*place.glob("example.com-*")]) == 2, what="two sockets are left")


def any_done(tasks: list[asyncio.Task[None]]) -> bool:
    return any(each.done() for each in tasks)


@pytest.mark.slow
@pytest.mark.timeout(300 + 20 * KILLS)
async def test_a_proxy_can_be_killed_at_any_time(short_dir: Path) -> None:
    """No cordon, no device that is held and no plugin is lost, nothing is given twice or left."""
    (short_dir / "rules.yaml").write_text(RULES)
    async with node_process(short_dir) as node:
        story = Story(short_dir, node, random.Random(SEED))
        await story.start()
        try:
            await until((story.inside / "kubelet.sock").exists, 60)
            for resource in (ONCE, AGAIN):
                name = f"{resource.rpartition('/')[2]}.sock"
                plugin = FakePlugin(
                    story.inside, resource, socket_name=name, devices=story.listed()
                )
                await plugin.start()
                story.plugins[resource] = plugin
                await story.register(resource)
            await story.settle()
            for _ in range(KILLS):
                await story.step()
            assert story.has_flapped or KILLS < 100, "the proxy never wrote a cordon"
        except BaseException as error:
            error.add_note(await story.explain())
            raise
        finally:
            print(f"\n{KILLS} kills, seed {SEED}: {dict(story.happened)}, {len(story.pods)} pods")
            if story.proxy is not None and story.proxy.returncode is None:
                await story.kill()
            for plugin in story.plugins.values():
                await plugin.stop()
