"""Steps that change simulated devices, of a timeline or of the control socket: their schema.

    - at: 30s
      set: {id: "*-3", health: Unhealthy}
    - {at: 60s, count: 5}
    - {at: 90s, remove: "*-0"}
    - {at: 120s, add: [gpu-spare]}
    - {at: 150s, faults: {failAllocateEvery: 2}}
    - {at: 180s, faults: {}}

`simulator` applies them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kubedevices.config.checks import some_text
from kubedevices.config.keys import Declared, key, varied_key
from kubedevices.config.yaml_config import load_node
from kubedevices.config.yaml_source import parse_yaml
from kubedevices.errors import ConfigError, UsageError
from kubedevices.errors.words import counted
from kubedevices.rules.faults import FaultRule, HealthChange
from kubedevices.simulate.config import SimulatorConfig
from kubedevices.values.device import Health


def _check_id(text: str) -> str:
    """Return why `text` cannot be the ID of an added device, or an empty string."""
    return "" if text and text.isprintable() else f"{text!r} cannot be the ID of a device"


@dataclass(frozen=True, kw_only=True)
class SetRule(Declared):
    """A new health for the devices that a glob matches."""

    HINT: ClassVar[str] = "write 'set: {id: \"*-3\", health: Unhealthy}'"

    id: str = varied_key(HealthChange, "id")
    health: Health = varied_key(HealthChange, "health")


@dataclass(frozen=True, kw_only=True)
class SimulatorStep(Declared):
    """One change, of one resource or of all resources."""

    HINT: ClassVar[str] = "set, count, remove, add or faults"
    ONE_OF: ClassVar[tuple[str, ...]] = ("set", "count", "remove", "add", "faults")

    resource: str | None = key(default=None)
    set_: SetRule | None = key(name="set", default=None)
    count: int | None = varied_key(SimulatorConfig, "number_devices", default=None, name="count")
    remove: str | None = key(default=None, check=some_text)
    add: tuple[str, ...] = key(default=(), not_empty=True, check=_check_id, hint="a list of IDs")
    faults: FaultRule | None = varied_key(SimulatorConfig, "faults", default=None)

    def __str__(self) -> str:
        where = f" of {self.resource}" if self.resource else ""
        if self.set_ is not None:
            return f"{self.set_.id}{where} is {self.set_.health}"
        if self.count is not None:
            return f"{counted(self.count, 'device')}{where}"
        if self.remove is not None:
            return f"{self.remove}{where} removed"
        if self.faults is not None:
            return f"faults{where}: {', '.join(self.faults.given) or 'none'}"
        return f"{', '.join(self.add)}{where} added"


@dataclass(frozen=True, kw_only=True)
class TimedStep(SimulatorStep):
    """A step of a timeline."""

    at: float = varied_key(HealthChange, "at")


def step_of(request: Mapping[str, Any]) -> SimulatorStep:
    """Return the step of a JSON object; raises `UsageError`."""
    try:
        # Unescaped: YAML does not know the two escapes by which JSON writes an emoji.
        text = json.dumps(request, ensure_ascii=False).encode(errors="surrogatepass")
        return load_node(parse_yaml(text, Path()), SimulatorStep, "")[0]
    except ConfigError as error:
        problems = (str(each._replace(file="the step", line=0)) for each in error.problems)
        raise UsageError("; ".join(problems)) from error
