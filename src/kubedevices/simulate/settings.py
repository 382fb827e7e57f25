"""Merges the settings of `kubedevices simulate`: defaults, YAML file, environment, command line.

Variables and YAML keys are those of simple-device-plugin, so that its configuration works here
unchanged; further settings have names of the same form. A later source wins over an earlier source.
An empty variable counts as not set, as in the original's Makefile. All mistakes are reported
together, each with its source.

`simulator_file` reads the file, so that PyYAML is imported only if there is a file. `cli.simulate`
itself reads two further variables, PLUGIN_SOCK_DIR and REGISTER_CONTROL_FILE.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kubedevices.config.keys import choices_of, schema_fields, value_problem
from kubedevices.errors import ConfigError, ConfigProblem
from kubedevices.errors.words import counted
from kubedevices.simulate.config import NumaNodes, SimulatorConfig
from kubedevices.simulate.devices import list_problem

if TYPE_CHECKING:
    from kubedevices.simulate.step_keys import TimedStep

_TRUE, _FALSE = {"true", "yes", "1"}, {"false", "no", "0"}


class Setting(NamedTuple):
    """One setting and its names; `yaml_key` is empty if the file cannot have it."""

    field: str
    variable: str
    yaml_key: str
    meaning: str
    kind: Any

    @property
    def flag(self) -> str:
        """The command line option."""
        return "--" + self.field.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether the option needs no value."""
        return self.kind is bool

    def parse(self, text: str) -> Any:
        """Return the value of a text; raises ValueError."""
        if self.kind is str:
            return text
        if self.kind is bool:
            return _parse_switch(text)
        return _whole_number(text) if self.kind is int else _parse_numa_nodes(text)


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _parse_numa_nodes(text: str) -> NumaNodes:
    """Return `0,1` (in turn) or `0=0,1=1` (by index) as a value."""
    parts = [part.strip() for part in text.split(",")] if text else []
    try:
        if "=" in text:
            pairs = [part.split("=") for part in parts]
            return {int(index): int(node) for index, node in pairs}
        return tuple(int(part) for part in parts)
    except ValueError:
        raise ValueError(f"{text!r} must be like 0,1 or like 0=0,1=1") from None


def _parse_switch(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in _TRUE


_KEYS = {each.field.name: each for each in schema_fields(SimulatorConfig).values()}
_ONLY_IN_THE_FILE = {"create_device_files", "preferred", "pre_start", "faults"}
_NOT_IN_THE_FILE = {"node_name", "namespace"}

SETTINGS = tuple(
    Setting(
        each.field.name,
        "CDI_ENABLED" if each.field.name == "cdi" else each.field.name.upper(),
        "" if each.field.name in _NOT_IN_THE_FILE else name,
        each.rules.meaning,
        str if choices_of(each.kind, each.rules) else each.kind,
    )
    for name, each in schema_fields(SimulatorConfig).items()
    if each.field.name not in _ONLY_IN_THE_FILE
)


class Timeline(NamedTuple):
    """Changes of the devices, in the order of time; with `loop` they are repeated."""

    steps: tuple["TimedStep", ...] = ()
    loop: bool = False
    places: tuple[ConfigProblem, ...] = ()
    """The place in the file where each step names its resource."""


class FileSettings(NamedTuple):
    """The settings of a YAML file: values and their places, both by field name.

    Each of `resources` has only the values that differ from the rest of the file.
    """

    values: Mapping[str, Any]
    places: Mapping[str, ConfigProblem]
    warnings: tuple[ConfigProblem, ...] = ()
    resources: tuple["FileSettings", ...] = ()
    timeline: Timeline = Timeline()


_NOTHING = FileSettings({}, {})


class _Given(NamedTuple):
    """A value with its place; if the value is wrong, the place contains the problem."""

    value: Any
    place: ConfigProblem
    source: int
    """`_FILE`, `_VARIABLE` or `_FLAG`; the value with the higher number wins."""


_FILE, _VARIABLE, _FLAG = range(3)


def merge_resources(
    file: FileSettings | None, environment: Mapping[str, str], flags: Mapping[str, str | None]
) -> tuple[SimulatorConfig, ...]:
    """Return the settings of every resource; a resource's own values in the file always win.

    `flags` are by field name, None if absent. A wrong value is no mistake if a later source
    replaces it for every resource. Raises `ConfigError` with all mistakes.
    """
    file = file or _NOTHING
    shared = {**_from_file(file), **dict(_from_outside(environment, flags))}
    configs: list[SimulatorConfig] = []
    mistakes: list[ConfigProblem] = []
    for said in file.resources or (_NOTHING,):
        given = {**shared, **_from_file(said)}
        wrong = [each.place for each in given.values() if each.place.problem]
        mistakes += wrong
        if not wrong:
            config = SimulatorConfig(**{name: each.value for name, each in given.items()})
            mistakes += [*_clashes(config, configs, given), *_contradictions(config, given)]
            configs.append(config)
    if mistakes:
        raise ConfigError([*dict.fromkeys(mistakes)])  # each resource repeats a shared mistake
    return tuple(configs)


def check_timeline(timeline: Timeline, configs: Sequence[SimulatorConfig]) -> None:
    """Raise `ConfigError` for steps that name an unknown resource."""
    known = dict.fromkeys(config.device_type for config in configs)
    mistakes = [
        place._replace(problem=f"unknown resource {step.resource!r}, known: {', '.join(known)}")
        for step, place in zip(timeline.steps, timeline.places, strict=False)
        if step.resource is not None and step.resource not in known
    ]
    if mistakes:
        raise ConfigError(mistakes)


def _from_file(file: FileSettings) -> dict[str, _Given]:
    return {
        name: _Given(value, file.places[name]._replace(problem=_problem(name, value)), _FILE)
        for name, value in file.values.items()
    }


def _problem(field: str, value: Any) -> str:
    return value_problem(value, _KEYS[field].kind, _KEYS[field].rules)


def _from_outside(
    environment: Mapping[str, str], flags: Mapping[str, str | None]
) -> Iterator[tuple[str, _Given]]:
    """Yield the values of flags, or else of variables, with the field's name."""
    for setting in SETTINGS:
        if (text := flags.get(setting.field)) is not None:
            place, source = ConfigProblem("command line", 0, 0, setting.flag, ""), _FLAG
        elif text := environment.get(setting.variable):
            place, source = ConfigProblem("environment", 0, 0, setting.variable, ""), _VARIABLE
        else:
            continue
        try:
            value = setting.parse(text)
            problem = _problem(setting.field, value)
        except ValueError as error:
            value, problem = None, str(error)
        yield setting.field, _Given(value, place._replace(problem=problem), source)


def _clashes(
    config: SimulatorConfig, others: Sequence[SimulatorConfig], given: Mapping[str, _Given]
) -> Iterator[ConfigProblem]:
    """Yield why a resource cannot be served together with the `others`."""
    if not others:
        return
    place = given["resource_name"].place
    if config.resource_name in {each.resource_name for each in others}:
        yield place._replace(problem=f"{config.resource_name!r} appears twice")
    elif config.domain != others[0].domain:
        problem = f"all resources must have the same domain; the first has {others[0].domain}"
        yield place._replace(problem=problem)


def _contradictions(
    config: SimulatorConfig, given: Mapping[str, _Given]
) -> Iterator[ConfigProblem]:
    """Yield mistakes that follow only from several settings together."""
    if isinstance(config.numa_nodes, Mapping):
        nodes, count = given["numa_nodes"], given.get("number_devices")
        unknown = [index for index in config.numa_nodes if index >= config.number_devices]
        # A later source may set a lower count: then the rest of the map is not used.
        if unknown and (count is None or count.source <= nodes.source):
            devices = counted(config.number_devices, "device")
            problem = f"there is no device {unknown[0]}, only {devices} of {config.resource_name}"
            yield nodes.place._replace(problem=problem)
    if "number_devices" in given and (problem := list_problem(config)):
        yield given["number_devices"].place._replace(problem=problem)
    if config.cdi:
        from kubedevices.expose.checks import cdi_kind  # noqa: PLC0415 - only for this

        if problem := cdi_kind(config.resource_name):
            yield given["cdi"].place._replace(problem=problem)
