"""The YAML file of `kubedevices simulate`, which is that of simple-device-plugin and more.

Read as forgivingly as the original does: unknown keys are warned of, a key without a value counts
as absent, and a number is good enough where text is wanted. What the values mean is checked in
`simulator_config`, because another source may still replace them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from kubedevices.builtin.simulator_config import FileSettings
from kubedevices.builtin.yaml_config import key, key_names, load_config


@dataclass(frozen=True, kw_only=True)
class SimulatorFile:
    """Every key; None where it is absent."""

    HINT: ClassVar[str] = "for example 'resourceName: example.com/simple-device'"

    resource_name: str | None = key(default=None)
    number_devices: int | None = key(default=None, name="numberDevicesOnNode")
    plugin_name: str | None = key(default=None)
    device_id_prefix: str | None = key(default=None, name="deviceIDPrefix")
    annotation_prefix: str | None = key(default=None)
    env_prefix: str | None = key(default=None)
    device_file_prefix: str | None = key(default=None)
    device_path_style: str | None = key(default=None)
    numa_nodes: tuple[int, ...] | Mapping[int, int] | None = key(
        default=None, hint="[0, 1] in turn, or {0: 0, 1: 1} by index"
    )


def read_simulator_file(file: Path) -> FileSettings:
    """Read `file`; raises `CannotRead`, and `ConfigError` for what is of the wrong type."""
    content, report = load_config(file, SimulatorFile, lenient=True)
    values = {
        item.name: value
        for item in fields(content)
        if (value := getattr(content, item.name)) is not None
    }
    keys = key_names(SimulatorFile)
    places = {name: report.place((keys[name],)) for name in values}
    return FileSettings(values, places, report.warnings)
