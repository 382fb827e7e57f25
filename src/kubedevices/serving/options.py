"""The options for a scanner in both APIs: the options of each API, and the source of the mode."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kubedevices.dra.options import DraOptions
from kubedevices.plugin.options import RunnerOptions
from kubedevices.serving.handover import HandoverTiming


class TwoApisOptions(RunnerOptions, DraOptions, total=False):
    """Keyword arguments of `run` and `serve` for a node whose mode is `split` or may change.

    All arguments of the modes `device-plugin` and `dra` are allowed, and also:

    mode_file: a file with the mode of the node: `device-plugin`, `dra` or `split`. A change needs
        no restart. While the file does not exist, the mode is the argument `mode`.
    mode_label: a label of the node with the mode, instead of a file; the process watches the node.
    dra_devices: the devices that are in DRA in mode `split`: globs such as `gpu/GPU-1*` for device
        type and ID, or `gpu` for all devices of a type.
    handover_timing: how long a device is in neither API when it changes the API, for tests.
    """

    mode_file: Path | None
    mode_label: str | None
    dra_devices: Collection[str]
    handover_timing: HandoverTiming


def of_plugins(options: Mapping[str, Any]) -> RunnerOptions:
    """Return the options of the device plugin."""
    return {key: options[key] for key in RunnerOptions.__annotations__ if key in options}  # type: ignore[return-value]


def of_drivers(options: Mapping[str, Any]) -> DraOptions:
    """Return the options of the DRA driver."""
    return {key: options[key] for key in DraOptions.__annotations__ if key in options}  # type: ignore[return-value]
