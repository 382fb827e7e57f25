"""The objects of a CDI file as frozen values, and their conversion to JSON data.

The name and type of a field define its JSON key and type, both for reading (`cdi.parse`) and for
writing. This module checks nothing: `cdi.validity` does.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from kubedevices.values.device import DeviceSpec, Mount


class JsonType(enum.Enum):
    """The type of the JSON under a key."""

    TEXT = "text"
    TEXTS = "a list of texts"
    TEXT_MAP = "an object of texts"
    SIGNED = "a whole number"
    UNSIGNED = "a whole number from 0 to 4294967295"
    UNSIGNED_LIST = "a list of whole numbers from 0 to 4294967295"
    FLAG = "true or false"
    OBJECT = "an object"
    OBJECTS = "a list of objects"


Unsigned = Annotated[int, "from 0 to 4294967295"]
Texts = tuple[str, ...]
TextMap = tuple[tuple[str, str], ...]
"""Pairs, sorted by key; a caller may give a dictionary."""

_SHAPES: dict[Any, JsonType] = {
    str: JsonType.TEXT,
    bool: JsonType.FLAG,
    int | None: JsonType.SIGNED,
    Unsigned | None: JsonType.UNSIGNED,
    Texts: JsonType.TEXTS,
    Texts | None: JsonType.TEXTS,
    TextMap: JsonType.TEXT_MAP,
    tuple[Unsigned, ...]: JsonType.UNSIGNED_LIST,
}
_KEYS = {"version": "cdiVersion", "clos_id": "closID"}


class JsonField(NamedTuple):
    """A field of a value, its JSON key and type; `of` is the class of an object or of objects."""

    attribute: str
    key: str
    shape: JsonType
    of: type | None


_fields_of: dict[type, tuple[JsonField, ...]] = {}


def json_fields(cls: type) -> tuple[JsonField, ...]:
    """Return the fields of one of the classes below, in the order of writing."""
    if cls not in _fields_of:
        _fields_of[cls] = tuple(_json_field(each.name, each.type) for each in fields(cls))
    return _fields_of[cls]


def _json_field(attribute: str, annotation: Any) -> JsonField:
    first, *others = attribute.split("_")
    key = _KEYS.get(attribute, first + "".join(map(str.capitalize, others)))
    if annotation in _SHAPES:
        return JsonField(attribute, key, _SHAPES[annotation], None)
    inner = get_args(annotation)
    if get_origin(annotation) is tuple:
        return JsonField(attribute, key, JsonType.OBJECTS, inner[0])
    return JsonField(attribute, key, JsonType.OBJECT, inner[0] if inner else annotation)


class _CdiValue:
    """Base class: turns lists and dictionaries of the caller into tuples, so values are frozen."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for each in json_fields(type(self)):
            given = getattr(self, each.attribute)
            if isinstance(given, list):
                object.__setattr__(self, each.attribute, tuple(given))
            elif each.shape is JsonType.TEXT_MAP:
                pairs = given.items() if isinstance(given, Mapping) else given
                object.__setattr__(self, each.attribute, tuple(sorted(pairs)))


@dataclass(frozen=True, slots=True)
class DeviceNode(_CdiValue):
    """A device node; `path` is in the container, `host_path` on the host if it differs."""

    path: str = ""
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: Unsigned | None = None
    permissions: str = ""
    uid: Unsigned | None = None
    gid: Unsigned | None = None


@dataclass(frozen=True, slots=True)
class NetDevice(_CdiValue):
    """A network interface of the host, and its name in the container."""

    host_interface_name: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class CdiMount(_CdiValue):
    """A mount; without `bind` or `rbind` in `options`, a runtime tries to mount a file system."""

    host_path: str = ""
    container_path: str = ""
    options: Texts = ()
    type: str = ""


@dataclass(frozen=True, slots=True)
class Hook(_CdiValue):
    """A program that the runtime starts at one of the six stages of a container."""

    hook_name: str = ""
    path: str = ""
    args: Texts = ()
    env: Texts = ()
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class IntelRdt(_CdiValue):
    """Shares of cache and memory bandwidth (Intel RDT), in runc's format."""

    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: Texts | None = None
    enable_monitoring: bool = False


@dataclass(frozen=True, slots=True)
class ContainerEdits(_CdiValue):
    """The changes that CDI makes to a container's configuration."""

    env: Texts = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[Unsigned, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the edits change nothing; CDI forbids this for a device."""
        return self == ContainerEdits()

    def plus(self, other: "ContainerEdits") -> "ContainerEdits":
        """Return both: lists are joined; `other`'s RDT replaces ours, if `other` has one."""
        return ContainerEdits(
            env=self.env + other.env,
            device_nodes=self.device_nodes + other.device_nodes,
            net_devices=self.net_devices + other.net_devices,
            mounts=self.mounts + other.mounts,
            hooks=self.hooks + other.hooks,
            intel_rdt=self.intel_rdt if other.intel_rdt is None else other.intel_rdt,
            additional_gids=self.additional_gids + other.additional_gids,
        )


@dataclass(frozen=True, slots=True)
class CdiDevice(_CdiValue):
    """One device of a kind, and the edits for a container that requests it."""

    name: str = ""
    annotations: TextMap = ()
    container_edits: ContainerEdits = ContainerEdits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiSpec(_CdiValue):
    """The content of one CDI file; `host.cdi_specs` sets the lowest sufficient `version`."""

    version: str = ""
    kind: str = ""
    annotations: TextMap = ()
    devices: tuple[CdiDevice, ...] = ()
    container_edits: ContainerEdits = ContainerEdits()


def to_dict(value: Any) -> dict[str, Any]:
    """Return a value as JSON data with keys in a fixed order; empty content is left out."""
    result: dict[str, Any] = {}
    for each in json_fields(type(value)):
        content = getattr(value, each.attribute)
        if each.shape is JsonType.OBJECT and content is not None:
            content = to_dict(content)
        elif each.shape is JsonType.OBJECTS:
            content = [to_dict(item) for item in content]
        elif each.shape is JsonType.TEXT_MAP:
            content = dict(content)
        elif isinstance(content, tuple):
            content = list(content)
        # 0 is a given number; False, "" and [] are defaults.
        if content or (content == 0 and content is not False):
            result[each.key] = content
    return result


def edits_of(
    *,
    env: Iterable[tuple[str, str]] = (),
    devices: Iterable[DeviceSpec] = (),
    mounts: Iterable[Mount] = (),
) -> ContainerEdits:
    """Return the content of an Allocate response as CDI edits; CDI edits have no annotations.

    `hostPath` is set only if it differs, because it needs a higher version of the file.
    """
    return ContainerEdits(
        env=tuple(f"{name}={value}" for name, value in env),
        device_nodes=tuple(_node(each) for each in devices),
        mounts=tuple(
            bind_mount(each.host_path, each.container_path, each.read_only) for each in mounts
        ),
    )


def _node(device: DeviceSpec) -> DeviceNode:
    path = device.container_path or device.host_path
    host_path = "" if device.host_path == path else device.host_path
    return DeviceNode(path, host_path, permissions=device.permissions)


def bind_mount(host_path: str, container_path: str, read_only: bool) -> CdiMount:
    """Return a mount with the options that make it a bind mount."""
    access = "ro" if read_only else "rw"
    return CdiMount(host_path, container_path, (access, "nosuid", "nodev", "bind"))
