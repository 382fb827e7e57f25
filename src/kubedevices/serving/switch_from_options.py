"""Creates an `ApiSwitch` from options: the source of the node's mode, and the devices for DRA."""

from collections.abc import Mapping
from typing import Any

from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.kubeconfig import find_access
from kubedevices.dra.options import DraSettings
from kubedevices.errors import UsageError
from kubedevices.plugin.scanner import Scanner
from kubedevices.serving.mode_source import ModeFile, ModeSource, NodeLabel
from kubedevices.serving.modes_of_devices import DraSelector, parse_mode
from kubedevices.serving.options import of_drivers
from kubedevices.serving.switch import ApiSwitch


def make_switch(scanner: Scanner, domain: str, mode: str, options: Mapping[str, Any]) -> ApiSwitch:
    """Return a switch for `scanner`; `options` are `TwoApisOptions`. Raises `UsageError`."""
    known = parse_mode(mode, "mode")
    file = options.get("mode_file")
    selector = DraSelector.of(options.get("dra_devices", ()))
    if known == "split" and not selector.globs:
        raise UsageError(
            "mode split needs dra_devices, the devices that are in DRA, such as gpu/GPU-1*"
        )
    label = options.get("mode_label")
    if file is not None and label is not None:
        raise UsageError("the mode of the node is in a file or in a label: give only one of them")
    source = ModeSource(known)
    if file is not None:
        source = ModeFile(file.absolute(), known)
    elif label is not None:
        settings = DraSettings(**of_drivers(options))
        api = ApiClient(find_access(settings.kubeconfig))
        memory = settings.data_dir(domain) / "mode"
        source = NodeLabel(api, settings.node_name, label, known, memory)
    return ApiSwitch(scanner, domain, source, selector, options)
