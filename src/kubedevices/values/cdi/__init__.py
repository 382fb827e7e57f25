"""The Container Device Interface (CDI): files that define container edits for named devices.

A plugin author creates `ContainerEdits`. A host has CDI files, each with one `CdiSpec`. A container
requests names. This package does not access files: `host.cdi_specs` reads and writes them,
`host.cdi_inventory` keeps our own files up to date.

names        `vendor/class=name`: parse, validate; a CDI device name for any device ID
values       the objects of a CDI file
parse        JSON ⇄ values, with the JSON pointer of each error
validity     what is wrong with the content of a file
versions     the lowest sufficient version, and which runtimes can read a version
registry     all files together: which names resolve, and why a name does not
inject       applies container edits to an OCI runtime configuration
annotations  names in container annotations, for old kubelets
"""

from kubedevices.values.cdi.annotations import (
    annotate,
    annotation_key,
    annotation_value,
    annotations_for,
    parse_annotations,
)
from kubedevices.values.cdi.inject import DeviceFile, Look, apply_edits, inject, set_env
from kubedevices.values.cdi.names import (
    CdiName,
    device_name_of,
    explain_device_name,
    explain_kind,
    explain_name,
    is_name,
)
from kubedevices.values.cdi.parse import SIZE_LIMIT, from_dict, from_json, load_json, to_json
from kubedevices.values.cdi.registry import CdiRegistry, Definition, Explanation, SpecFile
from kubedevices.values.cdi.validity import find_problems, validate
from kubedevices.values.cdi.values import (
    CdiDevice,
    CdiMount,
    CdiSpec,
    ContainerEdits,
    DeviceNode,
    Hook,
    IntelRdt,
    NetDevice,
    bind_mount,
    edits_of,
    to_dict,
)
from kubedevices.values.cdi.versions import (
    READERS,
    VERSIONS,
    Reader,
    minimum_version,
    readers_too_old_for,
    with_minimum_version,
)

__all__ = [
    "READERS",
    "SIZE_LIMIT",
    "VERSIONS",
    "CdiDevice",
    "CdiMount",
    "CdiName",
    "CdiRegistry",
    "CdiSpec",
    "ContainerEdits",
    "Definition",
    "DeviceFile",
    "DeviceNode",
    "Explanation",
    "Hook",
    "IntelRdt",
    "Look",
    "NetDevice",
    "Reader",
    "SpecFile",
    "annotate",
    "annotation_key",
    "annotation_value",
    "annotations_for",
    "apply_edits",
    "bind_mount",
    "device_name_of",
    "edits_of",
    "explain_device_name",
    "explain_kind",
    "explain_name",
    "find_problems",
    "from_dict",
    "from_json",
    "inject",
    "is_name",
    "load_json",
    "minimum_version",
    "parse_annotations",
    "readers_too_old_for",
    "set_env",
    "to_dict",
    "to_json",
    "validate",
    "with_minimum_version",
]
