"""Steps that change simulated devices, of a timeline or of the control socket: their schema.

    - at: 30s
      set: {id: "*-3", health: Unhealthy}
    - {at: 60s, count: 5}
    - {at: 90s, remove: "*-0"}
    - {at: 120s, add: [gpu-spare]}
    - {at: 150s, faults: {failAllocateEvery: 2}}
    - {at: 180s, faults: {}}

`simulated_devices` applies them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from kubedevices.config.durations import parse_duration
from kubedevices.config.yaml_config import key, load_node
from kubedevices.config.yaml_source import parse_yaml
from kubedevices.errors import ConfigError
from kubedevices.errors.words import counted
from kubedevices.expose.checks import one_of, some_text
from kubedevices.rules.faults import FaultRule
from kubedevices.simulate.config import check_count
from kubedevices.values.device import Health

DURATION = "for example 500ms or 30s"
HEALTHS = tuple(str(health) for health in Health)


def check_every(number: int) -> str:
    """Return why `number` is wrong for "every n-th call", or an empty string."""
    return "" if number >= 1 else f"{number} must be at least 1"


def _check_id(text: str) -> str:
    """Return why `text` cannot be the ID of an added device, or an empty string."""
    return "" if text and text.isprintable() else f"{text!r} cannot be the ID of a device"


@dataclass(frozen=True, kw_only=True)
class FaultKey:
    """Faults on purpose."""

    HINT: ClassVar[str] = "write 'faults: {allocateDelay: 1s}'"

    allocate_delay: float = key(default=0.0, parse=parse_duration, hint=DURATION)
    fail_allocate_every: int = key(default=0, check=check_every)
    drop_stream_every: float = key(
        default=0.0,
        parse=parse_duration,
        check=lambda seconds: "" if seconds > 0 else "must be more than 0s",
        hint=DURATION,
    )
    hang_allocate_every: int = key(default=0, check=check_every)
    refuse: tuple[str, ...] = key(default=(), hint="a list of IDs, wildcards allowed")
    never_list: bool = key(default=False)
    wrong_ids: bool = key(default=False, name="wrongIDs")

    @property
    def rule(self) -> FaultRule:
        """The faults as a rule for the middleware `Faulty`."""
        return FaultRule(**{item.name: getattr(self, item.name) for item in fields(self)})


@dataclass(frozen=True, kw_only=True)
class SetRule:
    """A new health for the devices that a glob matches."""

    HINT: ClassVar[str] = "write 'set: {id: \"*-3\", health: Unhealthy}'"

    id: str = key(default="*", check=some_text)
    health: str = key(check=one_of(*HEALTHS), choices=HEALTHS)


@dataclass(frozen=True, kw_only=True)
class SimulatorStep:
    """One change, of one resource or of all resources."""

    HINT: ClassVar[str] = "set, count, remove, add or faults"
    ONE_OF: ClassVar[tuple[str, ...]] = ("set", "count", "remove", "add", "faults")

    resource: str | None = key(default=None)
    set_: SetRule | None = key(name="set", default=None)  # noqa: RUF009  # makes a field
    count: int | None = key(default=None, check=check_count)
    remove: str | None = key(default=None, check=some_text)
    add: tuple[str, ...] = key(default=(), not_empty=True, check=_check_id, hint="a list of IDs")
    faults: FaultKey | None = key(default=None)  # noqa: RUF009  # makes a field

    def __str__(self) -> str:
        where = f" of {self.resource}" if self.resource else ""
        if self.set_ is not None:
            return f"{self.set_.id}{where} is {self.set_.health}"
        if self.count is not None:
            return f"{counted(self.count, 'device')}{where}"
        if self.remove is not None:
            return f"{self.remove}{where} removed"
        if self.faults is not None:
            given = [item.name for item in fields(self.faults) if getattr(self.faults, item.name)]
            return f"faults{where}: {', '.join(given) or 'none'}"
        return f"{', '.join(self.add)}{where} added"


@dataclass(frozen=True, kw_only=True)
class TimedStep(SimulatorStep):
    """A step of a timeline."""

    at: float = key(parse=parse_duration, hint="seconds after the start, for example 30s")


def step_of(request: Mapping[str, Any]) -> SimulatorStep:
    """Return the step of a JSON object; raises ValueError."""
    known = ("resource", *SimulatorStep.ONE_OF)
    if unknown := request.keys() - set(known):
        words = ", ".join(sorted(unknown))
        raise ValueError(f"unknown: {words} (a step has one of {', '.join(SimulatorStep.ONE_OF)})")
    verbs = [name for name in SimulatorStep.ONE_OF if name in request]
    if len(verbs) != 1:
        raise ValueError(f"exactly one of {', '.join(SimulatorStep.ONE_OF)} is needed")
    rule = request.get("set")
    if "set" in request and (not isinstance(rule, Mapping) or rule.keys() - {"id", "health"}):
        raise ValueError(SetRule.HINT)
    if rule is not None and rule.get("health") not in HEALTHS:
        raise ValueError(f"health must be one of {', '.join(HEALTHS)}")
    count, added = request.get("count"), request.get("add", [])
    if "count" in request and (type(count) is not int or check_count(count)):
        raise ValueError(f"{count!r} is not a number of devices")
    is_list = isinstance(added, list) and all(isinstance(each, str) for each in added)
    if not is_list or ("add" in request and not added):
        raise ValueError("add must be a list of IDs")
    if problem := next(filter(None, map(_check_id, added)), ""):
        raise ValueError(problem)
    for name in ("resource", "remove"):
        text = request.get(name, "x")
        if not isinstance(text, str) or not text:
            raise ValueError(f"{name} must be a text, not {text!r}")
    return SimulatorStep(
        resource=request.get("resource"),
        set_=SetRule(id=str(rule.get("id", "*")), health=str(rule["health"])) if rule else None,
        count=count,
        remove=request.get("remove"),
        add=tuple(dict.fromkeys(added)),
        faults=_faults_of(request["faults"]) if "faults" in request else None,
    )


def _faults_of(value: Any) -> FaultKey:
    try:
        return load_node(parse_yaml(json.dumps(value).encode(), Path()), FaultKey, "faults")[0]
    except ConfigError as error:
        raise ValueError("; ".join(map(str, error.problems))) from error
