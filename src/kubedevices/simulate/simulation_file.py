"""The schema of the YAML file of `kubedevices simulate`: simple-device-plugin's file and more keys.

Like the original it is lenient: unknown keys give a warning, a key without a value counts as
absent, and a number may stand for text. `simulator_settings` checks the values, because another
source may still replace them.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from kubedevices.config.keys import KeyPath, key, key_names, varied_key
from kubedevices.config.yaml_config import load_config
from kubedevices.config.yaml_source import SourceProblems
from kubedevices.rules.faults import FaultRule, PreStart
from kubedevices.simulate.config import NumaNodes, SimulatorConfig
from kubedevices.simulate.settings import FileSettings, Timeline
from kubedevices.simulate.step_keys import TimedStep

PRESETS = Path(__file__).parent / "presets"


def in_file(name: str) -> Any:
    """Declare the key of a setting. `settings` checks it: another source may still replace it."""
    return varied_key(SimulatorConfig, name, default=None, check=None, check_key=None)


@dataclass(frozen=True, kw_only=True)
class _ResourceKeys:
    """The keys of one resource; the value of an absent key is None."""

    HINT: ClassVar[str] = "for example 'resourceName: example.com/simple-device'"

    resource_name: str | None = in_file("resource_name")
    number_devices: int | None = in_file("number_devices")
    plugin_name: str | None = in_file("plugin_name")
    device_id_prefix: str | None = in_file("device_id_prefix")
    annotation_prefix: str | None = in_file("annotation_prefix")
    env_prefix: str | None = in_file("env_prefix")
    device_file_prefix: str | None = in_file("device_file_prefix")
    device_path_style: str | None = in_file("device_path_style")
    numa_nodes: NumaNodes | None = in_file("numa_nodes")
    cdi: bool | None = in_file("cdi")
    create_device_files: str | None = in_file("create_device_files")
    preferred: str | None = in_file("preferred")
    pre_start: PreStart | None = in_file("pre_start")
    faults: FaultRule | None = in_file("faults")


@dataclass(frozen=True, kw_only=True)
class ResourceEntry(_ResourceKeys):
    """An entry of `resources`."""

    resource_name: str = key(hint="for example example.com/gpu")


@dataclass(frozen=True, kw_only=True)
class SimulatorFile(_ResourceKeys):
    """The whole file; its keys of a resource apply to each of `resources`."""

    resources: tuple[ResourceEntry, ...] = key(default=())
    timeline: tuple[TimedStep, ...] = key(default=(), hint="a list of steps")
    timeline_loop: bool = key(default=False)


def read_simulator_file(file: Path) -> FileSettings:
    """Read `file`; raises `CannotRead`, and `ConfigError` for values of a wrong type."""
    content, report = load_config(file, SimulatorFile, lenient=True)
    said = _settings(content, report, ())
    in_time = sorted(range(len(content.timeline)), key=lambda i: content.timeline[i].at)
    timeline = Timeline(
        tuple(content.timeline[i] for i in in_time),
        content.timeline_loop,
        tuple(report.place(("timeline", i, "resource")) for i in in_time),
    )
    return said._replace(
        warnings=report.warnings,
        resources=tuple(
            _settings(each, report, ("resources", i)) for i, each in enumerate(content.resources)
        ),
        timeline=timeline,
    )


def _settings(content: _ResourceKeys, report: SourceProblems, at: KeyPath) -> FileSettings:
    names = [item.name for item in fields(_ResourceKeys)]
    values: dict[str, Any] = {
        name: value for name in names if (value := getattr(content, name)) is not None
    }
    keys = key_names(_ResourceKeys)
    places = {name: report.place((*at, keys[name])) for name in values}
    return FileSettings(values, places)


def preset_file(name: str) -> Path:
    """Return the file of a preset."""
    return PRESETS / f"{name}.yaml"


def preset_names() -> tuple[str, ...]:
    """Return the name of every preset."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.yaml")))
