"""CDI names in container annotations: this was the transport before the CRI had a field for them.

Only for kubelets before 1.29 (1.28 has the feature gate DevicePluginCDIDevices), and only if the
user requests it. The plugin framework calls `annotations_for`. The rules are from containerd and
CRI-O, which read the annotations.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping

from kubedevices.errors import InvalidCdiAnnotation
from kubedevices.values.cdi.names import CdiName, explain_name

PREFIX = "cdi.k8s.io/"
_LIMIT = 63
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


def annotation_key(plugin: str, request_id: str) -> str:
    """Return `cdi.k8s.io/<plugin>_<id>`; by convention `plugin` is `vendor.class`.

    A slash in the ID becomes `_`. Raises `InvalidCdiAnnotation` if a runtime would refuse the key.
    Runtimes refuse a colon, so a PCI address cannot be an ID here.
    """
    name = f"{plugin}_{request_id.replace('/', '_')}"
    if not plugin or not request_id:
        raise InvalidCdiAnnotation(PREFIX + name, "both the plugin and the ID must be given")
    if len(name) > _LIMIT:
        raise InvalidCdiAnnotation(
            PREFIX + name,
            f"the part after the slash has {len(name)} characters, at most {_LIMIT} are allowed",
        )
    if not _NAME.fullmatch(name):
        raise InvalidCdiAnnotation(
            PREFIX + name,
            "the part after the slash must be letters, digits, '_', '-' or '.', "
            "with a letter or digit at both ends",
        )
    return PREFIX + name


def annotation_value(names: Iterable[str]) -> str:
    """Return the qualified names, joined by commas; raises `InvalidCdiName`."""
    return ",".join(str(CdiName.parse(name)) for name in names)


def annotations_for(kind: str, names: Iterable[str]) -> dict[str, str]:
    """Return the annotation that requests `names` of one kind, with a key of valid length.

    The key contains a hash of the names, because the keys of a container's requests must differ.
    """
    value = annotation_value(names)
    tail = hashlib.sha256(value.encode()).hexdigest()[:12]
    plugin = kind.replace("/", ".")[: _LIMIT - len(tail) - 1]
    return {annotation_key(plugin, tail): value}


def parse_annotations(annotations: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys and the names of all CDI requests.

    Raises `InvalidCdiAnnotation` for the first invalid name, as runtimes refuse the container.
    """
    keys = tuple(key for key in annotations if key.startswith(PREFIX))
    names: list[str] = []
    for key in keys:
        for name in annotations[key].split(","):
            if problem := explain_name(name):
                raise InvalidCdiAnnotation(key, f"{name!r} is not a CDI name: {problem}")
            names.append(name)
    return keys, tuple(names)
