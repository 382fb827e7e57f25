"""Merges the settings of `kubedevices simulate`: defaults, YAML file, environment, command line.

Variables and YAML keys are those of simple-device-plugin, so that its configuration works here
unchanged; further settings have names of the same form. A later source wins over an earlier source.
An empty variable counts as not set, as in the original's Makefile. All mistakes are reported
together, each with its source.

`simulator_file` reads the file, so that PyYAML is imported only if there is a file. `cli.simulate`
itself reads two further variables, PLUGIN_SOCK_DIR and REGISTER_CONTROL_FILE.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kubedevices.errors import ConfigError, ConfigProblem
from kubedevices.errors.words import counted
from kubedevices.simulate.config import NumaNodes, SimulatorConfig, check_count
from kubedevices.simulate.devices import list_problem
from kubedevices.values.resource_name import explain_resource_name

if TYPE_CHECKING:
    from kubedevices.simulate.steps import TimedStep

_TRUE, _FALSE = {"true", "yes", "1"}, {"false", "no", "0"}


class Setting(NamedTuple):
    """One setting and its names; `yaml_key` is empty if the file cannot have it."""

    field: str
    variable: str
    yaml_key: str
    meaning: str
    parse: Callable[[str], Any] = str
    check: Callable[[Any], str] = lambda _: ""
    is_switch: bool = False

    @property
    def flag(self) -> str:
        """The command line option."""
        return "--" + self.field.replace("_", "-")


def _check_resource_name(name: str) -> str:
    problem = explain_resource_name(name)
    return f"{name!r} is not a resource name: {problem}" if problem else ""


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _check_file_name(name: str) -> str:
    if name in {"", "kubelet"} or "/" in name or not name.isprintable():
        return f"{name!r} cannot be the name of a socket"
    return ""


def _check_prefix(prefix: str) -> str:
    if "/" in prefix or not prefix.isprintable():
        return f"{prefix!r} must not contain '/' or characters that cannot be printed"
    return ""


def _check_env_prefix(prefix: str) -> str:
    ok = "=" not in prefix and prefix.isprintable()
    return "" if ok else f"{prefix!r} cannot be part of a variable's name"


def _check_style(style: str) -> str:
    return "" if style in {"index", "id"} else f"{style!r} must be 'index' or 'id'"


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


def _check_numa_nodes(nodes: NumaNodes) -> str:
    numbers = [*nodes, *nodes.values()] if isinstance(nodes, Mapping) else nodes
    return next(filter(None, map(_numa_node_problem, numbers)), "")


def _numa_node_problem(number: int) -> str:
    if number < 0:
        return f"{number} is negative"
    return "" if number < 2**31 else f"{number} is not a NUMA node"


# Each `field` is a field of `SimulatorConfig`. Its other fields can only be set in the file.
SETTINGS = (
    Setting(
        "resource_name",
        "RESOURCE_NAME",
        "resourceName",
        "full name of the resource",
        check=_check_resource_name,
    ),
    Setting(
        "number_devices",
        "NUMBER_DEVICES",
        "numberDevicesOnNode",
        "number of devices, may be 0",
        _whole_number,
        check_count,
    ),
    Setting(
        "plugin_name",
        "PLUGIN_NAME",
        "pluginName",
        "the socket is called PLUGIN_NAME.sock",
        check=_check_file_name,
    ),
    Setting(
        "device_id_prefix",
        "DEVICE_ID_PREFIX",
        "deviceIDPrefix",
        "device IDs are PREFIX-NODE-0, PREFIX-NODE-1 ...",
        check=_check_prefix,
    ),
    Setting(
        "annotation_prefix",
        "ANNOTATION_PREFIX",
        "annotationPrefix",
        "annotation PREFIX-ID for each device of a container",
        check=_check_prefix,
    ),
    Setting(
        "env_prefix",
        "ENV_PREFIX",
        "envPrefix",
        "variable PREFIX_ID for each device of a container",
        check=_check_env_prefix,
    ),
    Setting(
        "device_file_prefix",
        "DEVICE_FILE_PREFIX",
        "deviceFilePrefix",
        "device file /dev/PREFIX-0 for each device of a container",
        check=_check_prefix,
    ),
    Setting(
        "node_name",
        "NODE_NAME",
        "",
        "part of the device IDs, by default the host's name",
        check=_check_prefix,
    ),
    Setting(
        "device_path_style",
        "DEVICE_PATH_STYLE",
        "devicePathStyle",
        "variables and device files name a device by its 'index' or its 'id'",
        check=_check_style,
    ),
    Setting(
        "numa_nodes",
        "NUMA_NODES",
        "numaNodes",
        "NUMA nodes in turn (0,1), or by index (0=0,1=1)",
        _parse_numa_nodes,
        _check_numa_nodes,
    ),
    Setting(
        "cdi",
        "CDI_ENABLED",
        "cdi",
        "devices are CDI devices too, in a file that follows every change: true or false",
        _parse_switch,
        is_switch=True,
    ),
    Setting(
        "namespace",
        "NAMESPACE",
        "",
        "Kubernetes namespace of a deployment; the simulator itself does not use it",
    ),
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
    checks = {setting.field: setting.check for setting in SETTINGS}
    return {
        name: _Given(
            value,
            file.places[name]._replace(problem=checks[name](value) if name in checks else ""),
            _FILE,
        )
        for name, value in file.values.items()
    }


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
            problem = setting.check(value)
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
