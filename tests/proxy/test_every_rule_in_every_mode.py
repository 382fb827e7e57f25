"""Each rule, as device plugin and in DRA, with its plugin there, away or returning, after a reload,
a restart of the proxy and a reboot: the rule has its effect, or is refused."""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from unittest import mock

import pytest

from kubedevices.dra import driver as driver_module
from kubedevices.errors import KubedevicesError, RpcError
from kubedevices.proxy import dra_bridge
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.record_reader import read_recording
from kubedevices.rules.cordon import FILE_NAME
from kubedevices.rules.cordon_file import CordonEntry, change_cordoned
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import FakePlugin, healthy, unhealthy
from tests.proxy.test_dra_bridge import Rig, bridged
from tests.proxy_rig import ProxyRig, proxied
from tests.waiting import until

Mode: TypeAlias = Literal["device plugin", "DRA"]
Presence: TypeAlias = Literal["there", "away", "returning"]
Event: TypeAlias = Literal["reload", "restart", "reboot"]
Listed: TypeAlias = Mapping[str, Mapping[str, str]]
"""Resource outside → device → health; in DRA with the number of shares."""

MODES: tuple[Mode, ...] = ("device plugin", "DRA")
PRESENCES: tuple[Presence, ...] = ("there", "away", "returning")
EVENTS: tuple[Event, ...] = ("reload", "restart", "reboot")
BASE = "hold: 1h, allocateWait: 1h, holdOverReboot: true"
BOTH = {"a": "Healthy", "b": "Healthy"}


@dataclass(frozen=True)
class Row:
    """A rule of the resource `example.com/NAME`, what a node gets by it, and what a pod gets."""

    rule: str
    listed: Listed
    in_dra: Listed | None = None
    """What DRA publishes, if that differs."""

    gets: Mapping[str, str] = field(default_factory=lambda: {"IDS": "a"})
    error: str = ""
    asks: str = "a"
    base: str = BASE
    devices: tuple[ReportedDevice, ...] = (*healthy("a", "b"),)


def one(name: str, devices: Mapping[str, str]) -> Listed:
    return {f"example.com/{name}": devices}


ROWS = {
    "record": Row("record: {file: DIR/seen.jsonl}", one("record", BOTH)),
    "repair": Row("repair: true", one("repair", BOTH), devices=(*healthy("a", "b", "a"),)),
    "filter": Row("filter: {ids: [b]}", one("filter", {"a": "Healthy"})),
    "split": Row(
        "split: {rules: [{to: part, ids: [b]}]}",
        {"example.com/split": {"a": "Healthy"}, "example.com/part": {"b": "Healthy"}},
    ),
    "rename": Row('rename: "other.com/{name}"', {"other.com/rename": BOTH}),
    "cordon": Row("cordon: true", one("cordon", {"a": "Healthy", "b": "Unhealthy"})),
    "health": Row(
        "health: {ignore: [b]}",
        one("health", BOTH),
        devices=(*healthy("a"), *unhealthy("b")),
    ),
    "share": Row(
        "share: {replicas: 2}",
        one("share", dict.fromkeys(["a::0", "a::1", "b::0", "b::1"], "Healthy")),
        one("share", {"a": "Healthy, 2 shares", "b": "Healthy, 2 shares"}),
        asks="a::1",
    ),
    "inject": Row(
        'inject: {env: {EXTRA: "{id}"}}', one("inject", BOTH), gets={"IDS": "a", "EXTRA": "a"}
    ),
    "hold": Row("", one("hold", BOTH), base="hold: 1h, allocateWait: 1h"),
    "holdOverReboot": Row("", one("holdOverReboot", BOTH)),
    "faults": Row(
        "faults: {refuse: [a]}", one("faults", BOTH), gets={}, error="simulated refusal of a"
    ),
}


@dataclass
class Seen:
    """What the node saw of one rule."""

    listed: Listed
    gets: Mapping[str, str] | None = None
    error: str = ""
    recorded: Mapping[str, str] | None = None


def expected(name: str, mode: Mode, presence: Presence, event: Event) -> Seen:
    row = ROWS[name]
    listed = row.in_dra if mode == "DRA" and row.in_dra is not None else row.listed
    if presence == "away":
        # Nobody has the list of an earlier process, unless the rule keeps it on disk.
        is_lost = event != "reload" and "holdOverReboot" not in row.base
        return Seen({each: {} for each in listed} if is_lost else listed)
    recorded = {"IDS": "a"} if name == "record" else None
    return Seen(listed, row.gets, row.error, recorded)


# ---------------------------------------------------------------- one world for all rules


def text_of(directory: Path, *, with_rules: bool) -> str:
    lines = ["resources:"]
    for name, row in ROWS.items():
        rule = row.rule.replace("DIR", str(directory)) if with_rules else ""
        rule = rule or ("cordon: false" if name == "cordon" else "")
        lines.append(f"  example.com/{name}: {{{', '.join(filter(None, (row.base, rule)))}}}")
    return "\n".join(lines)


class World:
    """All rules behind one proxy, each with its plugin."""

    def __init__(self, rig: ProxyRig, file: Path) -> None:
        self.rig, self.file = rig, file
        self.plugins: list[FakePlugin] = []

    async def start_plugins(self) -> None:
        self.plugins = [
            FakePlugin(
                self.rig.inside,
                f"example.com/{name}",
                socket_name=f"{name}.sock",
                devices=row.devices,
            )
            for name, row in ROWS.items()
        ]
        await asyncio.gather(*(each.start() for each in self.plugins))
        await asyncio.gather(*(each.register() for each in self.plugins))

    async def stop_plugins(self) -> None:
        await asyncio.gather(*(each.stop() for each in self.plugins))
        self.plugins.clear()

    async def wait_away(self) -> None:
        scanners = self.rig.proxy.inside.scanners
        await until(lambda: all(each.presence.is_away for each in scanners.values()))

    async def wait_saved(self) -> None:
        """Wait until the lists are on disk for `holdOverReboot`."""
        saved = sum("holdOverReboot" in row.base for row in ROWS.values())
        lists = self.rig.state / "lists"
        await until(lambda: len([*lists.glob("*.json")]) == saved)

    async def listed(self, wanted: Listed, seconds: float = 30) -> Listed:
        """Wait for a list; return what there is in the end."""
        with contextlib.suppress(AssertionError):
            await until(lambda: self.now(wanted) == wanted, seconds)
        return self.now(wanted)

    def now(self, wanted: Listed) -> Listed:
        if not isinstance(self.rig, Rig):
            return {each: self.rig.kubelet.devices(each) for each in wanted}
        found: dict[str, dict[str, str]] = {each: {} for each in wanted}
        for domain in {each.partition("/")[0] for each in wanted}:
            for device in self.rig.node.published(domain):
                resource = f"{domain}/{device['attributes']['type']['string']}"
                if resource in found:
                    found[resource][device["attributes"]["id"]["string"]] = state_of(device)
        return found

    async def ask(self, resource: str, device: str) -> tuple[Mapping[str, str], str]:
        """Start a pod with a device; return its variables and the error."""
        try:
            if isinstance(self.rig, Rig):
                pod = resource.partition("/")[2].lower()
                claimed = await self.rig.node.claim(pod, {resource: 1}, (), 20)
                return claimed.options.env, ""
            request = AllocateRequest((ContainerAllocateRequest((device,)),))
            served = self.rig.kubelet.connected(resource)[-1]
            answer = await served.client.allocate(request, timeout=20)
            return answer.containers[0].env, ""
        except (RpcError, KubedevicesError, LookupError) as error:
            return {}, str(error)

    async def reload(self) -> None:
        follower = self.rig.proxy.rules.follower
        assert follower is not None
        self.file.write_text(text_of(self.file.parent, with_rules=True))
        self.rig.proxy.rules.reload()
        await until(lambda: follower.reloads)

    async def restart(self) -> None:
        await self.rig.stop_proxy()
        self.rig.options["rules"] = LiveRules.from_file(self.file)
        await self.rig.start_proxy()

    async def reboot(self) -> None:
        await self.rig.stop_proxy()
        await self.stop_plugins()
        if isinstance(self.rig, Rig):
            await self.rig.node.restart(0)
        else:
            await self.rig.kubelet.restart()
        self.rig.options["rules"] = LiveRules.from_file(self.file)
        with mock.patch.object(driver_module, "read_boot_id", return_value="another boot"):
            await self.rig.start_proxy()


def state_of(device: Mapping[str, Any]) -> str:
    health = "Unhealthy" if device.get("taints") else "Healthy"
    if not device.get("allowMultipleAllocations"):
        return health
    return f"{health}, {device['capacity']['shares']['value']} shares"


@contextlib.asynccontextmanager
async def world_of(mode: Mode, directory: Path, *, with_rules: bool) -> AsyncIterator[World]:
    file = directory / "proxy.yaml"
    file.write_text(text_of(directory, with_rules=with_rules))
    inner = directory / "d"
    inner.mkdir()
    rigs = bridged if mode == "DRA" else proxied
    async with rigs(inner, rules=LiveRules.from_file(file)) as rig:
        world = World(rig, file)
        cordoned = CordonEntry("example.com/cordon", "b", "test")
        change_cordoned(rig.state / FILE_NAME, lambda _: (cordoned,))
        try:
            yield world
        finally:
            await world.stop_plugins()


async def observe(mode: Mode, presence: Presence, event: Event, directory: Path) -> dict[str, Seen]:
    """Live through one combination; return what the node saw of each rule."""
    async with world_of(mode, directory, with_rules=event != "reload") as world:
        await world.start_plugins()
        for name, row in ROWS.items():
            plain = one(name, {each.id: each.health for each in row.devices})
            want = plain if event == "reload" else expected(name, mode, "there", event).listed
            await world.listed(want)
        await world.wait_saved()
        if presence != "there" and event != "reboot":
            await world.stop_plugins()
            await world.wait_away()
        await getattr(world, event)()
        if event == "reboot" and presence == "there":
            await world.start_plugins()
        state: Presence = "there" if presence == "there" else "away"
        seen = {
            name: Seen(await world.listed(expected(name, mode, state, event).listed))
            for name in ROWS
        }
        if presence == "away":
            return seen
        waiting = {name: start(world, name, mode) for name in ROWS if seen[name].listed != {}}
        if presence == "returning":
            await world.start_plugins()
        for name, row in ROWS.items():
            wanted = expected(name, mode, presence, event)
            seen[name].listed = await world.listed(wanted.listed)
            seen[name].gets, error = await waiting[name]
            seen[name].error = row.error if row.error and row.error in error else error
        seen["record"].recorded = await recorded(directory / "seen.jsonl")
        return seen


def start(world: World, name: str, mode: Mode) -> "asyncio.Task[tuple[Mapping[str, str], str]]":
    """Start a pod that asks for a device of a rule, as soon as the device is there."""
    listed = expected(name, mode, "there", "reload").listed

    async def ask() -> tuple[Mapping[str, str], str]:
        with contextlib.suppress(AssertionError):
            await until(lambda: world.now(listed) == listed)
        return await world.ask(next(iter(listed)), ROWS[name].asks)

    return asyncio.create_task(ask(), name=name)


async def recorded(file: Path) -> Mapping[str, str] | None:
    """Return the recorded answer of the plugin, as a replay gives it."""
    found: list[Mapping[str, str]] = []

    def is_written() -> bool:
        answers = read_recording([file]).resources["example.com/record"].answers
        found.extend(
            each.response.containers[0].env
            for (call, _), many in answers.items()
            for each in many
            if call == "Allocate" and each.response is not None  # else asked while away
        )
        return bool(found)

    with contextlib.suppress(AssertionError):
        await until(is_written, 10)
    return found[0] if found else None


# ---------------------------------------------------------------- the matrix


@pytest.fixture(scope="module")
def observed() -> Any:
    """Give what was seen of a combination: one world shows the effects of all rules."""
    known: dict[tuple[Mode, Presence, Event], dict[str, Seen]] = {}

    def of(mode: Mode, presence: Presence, event: Event) -> dict[str, Seen]:
        if (mode, presence, event) not in known:
            with (
                tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as directory,
                mock.patch.object(dra_bridge, "FIRST_LIST_TIMEOUT", 1.0),
            ):
                seen = asyncio.run(observe(mode, presence, event, Path(directory)))
            known[mode, presence, event] = seen
        return known[mode, presence, event]

    return of


@pytest.mark.parametrize(
    ("mode", "presence", "event", "rule"),
    [*itertools.product(MODES, PRESENCES, EVENTS, ROWS)],
    ids=str,
)
def test_each_rule_has_its_effect(
    observed: Any, mode: Mode, presence: Presence, event: Event, rule: str
) -> None:
    """What mode dra cannot do is in `test_not_in_dra`: `--check` refuses it."""
    assert observed(mode, presence, event)[rule] == expected(rule, mode, presence, event)
