"""Answers of a plugin as text for people, and their comparison: which part of two answers differs.

Every check that judges an answer shows it with these functions, never as a value of Python.
"""

from collections.abc import Iterable

from kubedevices.errors.words import some_of
from kubedevices.values.allocation import ContainerAllocateResponse, PluginOptions
from kubedevices.values.device import DeviceSpec, Mount

MOST_PARTS = 6
"""So many entries of one answer are shown; the report names the number of the others."""


def shorten(ids: Iterable[str], limit: int = 3) -> str:
    """Return a few IDs as text."""
    return some_of(map(repr, ids), limit)


def options_text(options: PluginOptions) -> str:
    """Return the options of a plugin with the names of the API."""
    values = {
        "preStartRequired": options.pre_start_required,
        "getPreferredAllocationAvailable": options.get_preferred_allocation_available,
    }
    return ", ".join(f"{name} {'true' if value else 'false'}" for name, value in values.items())


def text_of(answer: ContainerAllocateResponse) -> str:
    """Return the content of a container response: what the container gets."""
    parts = [f"{kind} {text}" for kind, texts in _parts(answer).items() for text in texts]
    return some_of(parts, MOST_PARTS) or "an empty container response"


def entry_text(entry: DeviceSpec | Mount) -> str:
    """Return a device file or a mount: the path on the host, in the container, and the access."""
    host, inside = entry.host_path or '""', entry.container_path or '""'
    if isinstance(entry, Mount):
        access = "read-only" if entry.read_only else "read-write"
    else:
        access = entry.permissions
    where = host if host == inside else f"{host} at {inside}"
    return f"{where} ({access})"


def difference(one: ContainerAllocateResponse, other: ContainerAllocateResponse) -> str:
    """Return where two answers differ, in any order of lists, with both contents; `""` if equal."""
    left, right = _parts(one), _parts(other)
    for kind, texts in left.items():
        if texts != right[kind]:
            of_one = some_of(texts, MOST_PARTS) or "nothing"
            of_other = some_of(right[kind], MOST_PARTS) or "nothing"
            return f"{kind}: {of_one} and {of_other}"
    return ""


def _parts(answer: ContainerAllocateResponse) -> dict[str, list[str]]:
    """Return all that a container sees of an answer, by kind, in an order of our own."""
    return {
        "env": sorted(f"{name}={value}" for name, value in answer.env.items()),
        "annotation": sorted(f"{name}={value}" for name, value in answer.annotations.items()),
        "device": sorted(map(entry_text, answer.devices)),
        "mount": sorted(map(entry_text, answer.mounts)),
        "CDI device": sorted(answer.cdi_devices),
    }
