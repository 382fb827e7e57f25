"""Why a device does not serve a request: one reason for each device. Pure."""

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from kubedevices.errors import BadSelector, UsageError
from kubedevices.errors.words import some_of
from kubedevices.explain.in_cluster.objects import ClusterObjects, expressions_of, number_of
from kubedevices.values.quantities import shown
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.pools import NodePool, PoolDevice, consumed
from kubedevices.values.scheduling.wishes import Wish
from kubedevices.values.selectors import Selector
from kubedevices.values.selectors.term_texts import term_texts


class Stage(enum.IntEnum):
    """How far a device comes; the further, the nearer it is to serving the request."""

    SELECTOR = enum.auto()
    BROKEN_SELECTOR = enum.auto()
    POOL = enum.auto()
    SIZE = enum.auto()
    HELD = enum.auto()
    CAPACITY = enum.auto()
    COUNTERS = enum.auto()
    TAINT = enum.auto()
    FITS = enum.auto()


class Reason(NamedTuple):
    """Why a device does not serve; `short` is the same for devices with the same cause."""

    stage: Stage
    text: str = ""
    short: str = ""


UNKNOWN_MATCHES = "which devices match is not known: selectors need CEL, which is not installed"

_ONE_DRIVER = re.compile(r"""\s*device\.driver\s*==\s*(["'])([a-z0-9.-]+)\1\s*""")
"""The selector of most classes, which needs no runtime of CEL."""


@dataclass
class DeviceJudge:
    """Judges devices of one cluster. Without the runtime of CEL most selectors count as true.

    `is_blind` says that a selector of the present subject could not be evaluated for that reason:
    then nothing that rests on it is known. `was_blind` is about all subjects.
    """

    cluster: ClusterObjects
    is_blind: bool = False
    was_blind: bool = False
    _known: dict[tuple[str, ...], Reason | None] = field(default_factory=dict)

    def reason(self, wish: Wish, offered: PoolDevice, pools: dict[Any, NodePool]) -> Reason:
        """Return why a device does not serve a request on the node of the pools."""
        if unselected := self._selector(wish, offered):
            return unselected
        pool = pools[offered.key[:2]]
        if pool.problem:
            return Reason(Stage.POOL, *pool_texts(self.cluster, pool))
        if self.cluster.shared.of_request(offered.key, offered.device, wish.spec) is None:
            return self._capacity(wish, offered)
        if not wish.is_admin and offered.key in self.cluster.taken:
            holders = self.cluster.holders[offered.key]
            is_left = all(each.is_left_behind for each in holders)
            short = "held, and left behind by their pods" if is_left else "held"
            return Reason(Stage.HELD, f"held by {', '.join(map(str, holders))}", short)
        if counters := self._counters(offered, pool):
            return Reason(Stage.COUNTERS, *counters)
        if not wish.tolerates(offered):
            taints = some_of(map(taint_text, self._stopping(wish, offered)))
            text = f"taint {taints}, which the request does not tolerate"
            return Reason(Stage.TAINT, text, f"tainted {taints}")
        return Reason(Stage.FITS, "free")

    # ------------------------------------------------------------ selectors

    def _selector(self, wish: Wish, offered: PoolDevice) -> Reason | None:
        expressions = expressions_of(wish.found_class.get("spec") or {}, wish.spec)
        key = (*offered.key, *expressions)
        if key not in self._known:
            self._known[key] = self._evaluated(expressions, offered)
        return self._known[key]

    def _evaluated(self, expressions: Sequence[str], offered: PoolDevice) -> Reason | None:
        for expression in expressions:
            if driver := _driver_of(expression):
                if driver != offered.driver:
                    text = f'`{expression}` is false: device.driver is "{offered.driver}"'
                    return Reason(Stage.SELECTOR, text, f"`{expression}`")
                continue
            try:
                selector = Selector.compiled(expression)
                if selector.selects(offered.driver, offered.device):
                    continue
                return _false_term(selector, offered)
            except BadSelector as error:
                text = f"the selector `{expression}` fails: {error.problem}"
                return Reason(Stage.BROKEN_SELECTOR, text, text)
            except UsageError:  # the runtime of CEL is missing
                self.is_blind = self.was_blind = True
        return None

    # ------------------------------------------------------------ what others use

    def _capacity(self, wish: Wish, offered: PoolDevice) -> Reason:
        wanted = (wish.spec.get("capacity") or {}).get("requests") or {}
        capacities = offered.device.get("capacity") or {}
        for name, text in wanted.items():
            if name not in capacities:
                return Reason(Stage.SIZE, f"has no capacity {name}", f"without capacity {name}")
            has = str(capacities[name]["value"])
            if number_of(text) > number_of(has):
                why = f"capacity {name}: {text} wanted, it has {has}"
                return Reason(Stage.SIZE, why, f"too small in {name}")
        parts = ", ".join(f"{name}: {text}" for name, text in wanted.items()) or "its default share"
        why = f"too little capacity is left: {parts} wanted"
        if users := self.cluster.holders.get(offered.key):
            why += f"; the rest is held by {some_of(map(str, users))}"
        return Reason(Stage.CAPACITY, why, "without enough free capacity")

    def _counters(self, offered: PoolDevice, pool: NodePool) -> tuple[str, str] | None:
        if not offered.counters() or offered.key in self.cluster.holders:
            return None
        others = [
            each for each in (*pool.devices, *pool.elsewhere) if each.key in self.cluster.holders
        ]
        used = consumed(pool, others)
        for key, wanted in offered.counters().items():
            left = pool.counters[key] - used[key]
            if wanted > left:
                by = some_of(each.device["name"] for each in others if key in each.counters())
                return (
                    f"counter {key[1]} of {key[0]}: needs {shown(wanted)}, {shown(left)} of "
                    f"{shown(pool.counters[key])} left" + (f" beside {by}" if by else ""),
                    f"stopped by the counter {key[1]} of {key[0]}",
                )
        return None

    def _stopping(self, wish: Wish, offered: PoolDevice) -> Iterator[Object]:
        for taint in offered.device.get("taints") or ():
            alone = offered._replace(device={**offered.device, "taints": [taint]})
            if not wish.tolerates(alone):
                yield taint


@lru_cache
def _driver_of(expression: str) -> str:
    """Return the driver of a selector that asks for nothing else, empty for any other."""
    found = _ONE_DRIVER.fullmatch(expression)
    return found[2] if found else ""


def _false_term(selector: Selector, offered: PoolDevice) -> Reason:
    parts = selector.parts(offered.driver, offered.device)
    texts = term_texts(selector.expression)
    # If the texts are divided otherwise than the tree, the whole expression is the term.
    texts = texts if len(texts) == len(parts) else (selector.expression,) * len(parts)
    part = next((each for each in parts if not each.holds), parts[0])
    values = ", ".join(f"{path[-1]} is {_shown(path, offered)}" for path, _ in part.values)
    term = f"`{texts[part.number]}`"
    return Reason(Stage.SELECTOR, f"{term} is false" + (f": {values}" if values else ""), term)


def _shown(path: tuple[str, ...], offered: PoolDevice) -> str:
    """Return the value of a part of `device` as the slice has it."""
    if len(path) == 1:
        is_shared = bool(offered.device.get("allowMultipleAllocations"))
        return f'"{offered.driver}"' if path == ("device.driver",) else str(is_shared).lower()
    held = offered.device.get(path[0].removeprefix("device.")) or {}
    found = held.get(f"{path[1]}/{path[2]}")
    if found is None and path[1] == offered.driver:
        found = held.get(path[2])
    if found is None:
        return "missing"
    value = next(iter(found.values()))
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) and path[0] != "device.capacity" else str(value)


def pool_texts(cluster: ClusterObjects, pool: NodePool) -> tuple[str, str]:
    """Return what is the matter with a pool, and the short form for its devices."""
    if pool.problem == "currently being updated":
        text = f"the pool {pool} is incomplete: {cluster.count_of_slices((pool.driver, pool.name))}"
    else:
        text = f"the pool {pool} is {pool.problem}"
    return text, f"in a pool that is not usable ({text.partition(' is ')[2]})"


def taint_text(taint: Object) -> str:
    """Return KEY=VALUE:EFFECT."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"
