"""A device and its parts, as frozen values compared by content; for the plugin and the node side.

Nothing here knows a protocol; `kubelet_api.convert` turns these values into messages and back.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from kubedevices.errors import InvalidDevice

_PERMISSIONS = re.compile(r"(?!.*(.).*\1)[rwm]{1,3}")
_DIGITS = re.compile(r"[0-9]+")
_NOTHING: Mapping[str, Any] = MappingProxyType({})

REASON_LIMIT = 1024
"""Characters of the message in which DRA tells a reason (DeviceHealth of v1.DRAResourceHealth)."""


class Health(enum.StrEnum):
    """The two values of health that a kubelet knows; any other word counts as unhealthy."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class _SpecParts(NamedTuple):
    host_path: str
    container_path: str
    permissions: str


class DeviceSpec(_SpecParts):
    """A device file of the host, its path in the container, and its permissions.

    `container_path` defaults to `host_path`; `permissions` is one or more of the letters r, w, m.
    The constructor checks nothing, because the node also stores answers of foreign plugins in this
    class. `problem()` returns the mistake.
    """

    __slots__ = ()

    def __new__(
        cls,
        host_path: str | Path,
        container_path: str | Path | None = None,
        permissions: str = "rw",
    ) -> Self:
        """Convert paths to text; the container path defaults to the host path."""
        place = host_path if container_path is None else container_path
        return super().__new__(cls, str(host_path), str(place), permissions)

    def problem(self) -> str:
        """Return the mistake because of which a runtime would refuse this, or an empty string."""
        if not _PERMISSIONS.fullmatch(self.permissions):
            return f"permissions {self.permissions!r} must be letters of 'rwm', each at most once"
        return _path_problem(self.host_path) or _path_problem(self.container_path)


class _MountParts(NamedTuple):
    host_path: str
    container_path: str
    read_only: bool


class Mount(_MountParts):
    """A file or directory of the host, its path in the container; unchecked like `DeviceSpec`."""

    __slots__ = ()

    def __new__(
        cls, host_path: str | Path, container_path: str | Path, read_only: bool = False
    ) -> Self:
        """Convert paths to text."""
        return super().__new__(cls, str(host_path), str(container_path), read_only)

    def problem(self) -> str:
        """Return the mistake because of which a runtime would refuse this, or an empty string."""
        return _path_problem(self.host_path) or _path_problem(self.container_path)


def _path_problem(path: str) -> str:
    if not path.startswith("/"):
        return f"the path {path!r} must be absolute"
    return _text_problem(path)


def _text_problem(text: str) -> str:
    """Return why `text` can go neither over the wire nor to a kernel, or an empty string."""
    if "\0" in text:
        return f"{text!r} contains a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # a surrogate, as in a file name that is not UTF-8
            return f"{text!r} is not valid UTF-8"
    return ""


@dataclass(frozen=True, slots=True)
class Device:
    """One unit that can be allocated, and everything that a container gets with it.

    `paths` are device files with the same path in the container and permissions `rw`; `specs` are
    device files with another path or other permissions. `numa_nodes=None`: the framework looks the
    NUMA nodes up in sysfs; `()`: the device has none. `cdi` is either the qualified name of a CDI
    device in the file of another program, or the edits of a CDI device that the framework defines:
    `kubedevices.values.cdi.ContainerEdits`, or a `CdiDevice` with its own name. `attributes` and
    `capacity` appear in listings only, because the v1beta1 API does not transport them. `reason`
    says why the device is unhealthy, for people: DRA tells it to the kubelet, in at most
    `REASON_LIMIT` characters; the v1beta1 API has no field for it.

    Raises `InvalidDevice` if a kubelet or a container runtime could not use the device: an empty
    ID, a relative path, an unknown health, a negative NUMA node, text that is not valid UTF-8.
    """

    id: str
    health: Health = field(default=Health.HEALTHY, kw_only=True)
    paths: Sequence[str | Path] = field(default=(), kw_only=True)
    specs: Sequence[DeviceSpec] = field(default=(), kw_only=True)
    mounts: Sequence[Mount] = field(default=(), kw_only=True)
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING, kw_only=True)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING, kw_only=True)
    cdi: Any = field(default=None, kw_only=True)
    numa_nodes: Sequence[int] | None = field(default=None, kw_only=True)
    attributes: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, kw_only=True)
    capacity: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, kw_only=True)
    reason: str = field(default="", kw_only=True, repr=False)
    replica_of: str = field(default="", kw_only=True, compare=False, repr=False)
    """The ID of the device of which this is a replica; DRA makes one device of all replicas."""

    unknown: ClassVar[bytes] = b""
    topology: ClassVar[bytes] = b""

    def __post_init__(self) -> None:
        """Freeze lists and dictionaries, and check all values.

        Fields with their default are skipped: there may be 100,000 devices with one path each.
        """
        if not isinstance(self.id, str) or not self.id:
            raise InvalidDevice(str(self.id), "the ID must be a text that is not empty")
        if problem := _text_problem(self.id):
            raise InvalidDevice(self.id, problem)
        if type(self.health) is not Health:
            object.__setattr__(self, "health", _health(self.id, self.health))
        if self.paths != ():
            self._freeze_paths()
        if self.specs != () or self.mounts != ():
            self._freeze_parts()
        if self.env is not _NOTHING or self.annotations is not _NOTHING:
            self._freeze_texts()
        if self.attributes is not _NOTHING or self.capacity is not _NOTHING:
            for name in ("attributes", "capacity"):
                object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.numa_nodes is not None and self.numa_nodes != ():
            object.__setattr__(self, "numa_nodes", _numa_nodes(self.id, self.numa_nodes))
        if self.reason != "":
            object.__setattr__(self, "reason", _reason(self.id, self.reason))
        if self.cdi is not None and (problem := _cdi_problem(self.cdi)):
            raise InvalidDevice(self.id, problem)

    def _freeze_paths(self) -> None:
        paths = tuple([str(path) for path in _several(self, "paths")])
        for path in paths:
            if problem := _path_problem(path):
                raise InvalidDevice(self.id, problem)
        object.__setattr__(self, "paths", paths)

    def _freeze_parts(self) -> None:
        put = object.__setattr__
        put(self, "specs", _instances(self, "specs", DeviceSpec, "for a plain path use paths="))
        put(self, "mounts", _instances(self, "mounts", Mount, "it takes two paths"))
        parts: tuple[DeviceSpec | Mount, ...] = (*self.specs, *self.mounts)
        for part in parts:
            if problem := part.problem():
                raise InvalidDevice(self.id, problem)
        if problem := place_problem(self.all_specs) or place_problem(self.mounts):
            raise InvalidDevice(self.id, problem)

    def _freeze_texts(self) -> None:
        for name in ("env", "annotations"):
            texts = _texts(self.id, name, getattr(self, name))
            object.__setattr__(self, name, MappingProxyType(texts))

    def __hash__(self) -> int:
        """Return the hash of the ID: equal devices have equal IDs, and mappings have no hash."""
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle through the constructor, because a mapping proxy supports neither."""
        state = {
            name: dict(value) if isinstance(value, MappingProxyType) else value
            for name in (each.name for each in fields(self))
            if name != "id" and (value := getattr(self, name)) is not _NOTHING
        }
        return (_rebuild, (type(self), self.id, state))

    def with_id(self, device_id: str, replica_of: str = "") -> "Device":
        """Return the same device with another ID. The ID is not checked: quicker than `replace`."""
        copy = object.__new__(Device)
        for name in self.__slots__:
            object.__setattr__(copy, name, getattr(self, name))
        object.__setattr__(copy, "id", device_id)
        object.__setattr__(copy, "replica_of", replica_of)
        return copy

    def with_health(self, health: Health, reason: str = "") -> Self:
        """Return the same device with another health and the reason for it."""
        return replace(self, health=health, reason=reason)

    @property
    def is_healthy(self) -> bool:
        """Whether the device is healthy, so that it can be allocated."""
        return self.health is Health.HEALTHY

    @property
    def all_specs(self) -> tuple[DeviceSpec, ...]:
        """Every device file of the device: `paths` in default form, then `specs`."""
        return (*(DeviceSpec(str(path)) for path in self.paths), *self.specs)


def _rebuild(kind: type[Device], device_id: str, state: dict[str, Any]) -> Device:
    return kind(device_id, **state)


@dataclass(frozen=True, slots=True)
class ForeignDevice(Device):
    """A device as another plugin lists it, with protobuf fields that this version does not know.

    `topology` is the encoded TopologyInfo if unknown fields are in it; `numa_nodes` has its nodes.
    """

    unknown: bytes = field(default=b"", kw_only=True)  # type: ignore[misc]
    topology: bytes = field(default=b"", kw_only=True)  # type: ignore[misc]

    def with_id(self, device_id: str, replica_of: str = "") -> "ForeignDevice":
        """Return the same device with another ID."""
        return replace(self, id=device_id, replica_of=replica_of)

    __hash__ = Device.__hash__


def place_problem(parts: Sequence[DeviceSpec] | Sequence[Mount]) -> str:
    """Return which two of `parts` have one path in a container, or an empty string."""
    places: dict[str, str] = {}
    for part in parts if len(parts) > 1 else ():
        host_path, place = str(part.host_path), str(part.container_path)
        if (first := places.setdefault(place, host_path)) != host_path:
            return f"{first} and {host_path} cannot both be {place} in a container"
    return ""


def _health(device_id: str, given: str) -> Health:
    try:
        return Health(given)
    except ValueError:
        rule = f"health {given!r} must be 'Healthy' or 'Unhealthy'"
        raise InvalidDevice(device_id, rule) from None


def _reason(device_id: str, given: object) -> str:
    """Return a reason that every protocol can send: it may quote a file name or a program."""
    if not isinstance(given, str):
        raise InvalidDevice(device_id, f"the reason must be a text, not {given!r}")
    return given.replace("\0", "").encode(errors="replace").decode()


def _cdi_problem(cdi: object) -> str:
    # Imported here: only devices with CDI need this package.
    from kubedevices.values.cdi import (  # noqa: PLC0415
        CdiDevice,
        CdiSpec,
        ContainerEdits,
        explain_name,
        find_problems,
    )

    if isinstance(cdi, str):
        problem = explain_name(cdi)
        return problem and f"cdi {cdi!r} must be a name like vendor.com/class=device: {problem}"
    if isinstance(cdi, ContainerEdits):
        cdi = CdiDevice("any", container_edits=cdi)
    if not isinstance(cdi, CdiDevice):
        return f"cdi must be a name like vendor.com/class=device, or CDI edits, not {cdi!r}"
    named = cdi if cdi.name else CdiDevice("any", cdi.annotations, cdi.container_edits)
    spec = CdiSpec(version="1.1.0", kind="vendor.com/any", devices=(named,))
    problems = find_problems(spec, strict=True)
    return f"cdi: {problems[0].pointer}: {problems[0].problem}" if problems else ""


def _several(device: Device, name: str) -> tuple[Any, ...]:
    value = getattr(device, name)
    if isinstance(value, (str, Path, DeviceSpec, Mount)):
        raise InvalidDevice(device.id, f"{name} must be a list, not the single {value!r}")
    return tuple(value)


def _instances(device: Device, name: str, kind: type, hint: str) -> tuple[Any, ...]:
    values = _several(device, name)
    for value in values:
        if not isinstance(value, kind):
            rule = f"{name} must hold {kind.__name__}, not {value!r} ({hint})"
            raise InvalidDevice(device.id, rule)
    return values


def _numa_nodes(device_id: str, given: Iterable[Any]) -> tuple[int, ...]:
    try:
        nodes = tuple(sorted(set(given)))
        is_right = all(type(node) is int and node >= 0 for node in nodes)
    except TypeError:
        is_right = False
    if not is_right:
        raise InvalidDevice(
            device_id, f"numa_nodes must be a list of numbers from 0, not {given!r}"
        )
    return nodes


def _texts(device_id: str, name: str, given: Mapping[Any, Any]) -> dict[str, str]:
    texts = dict(given)
    for key, value in texts.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidDevice(device_id, f"{name} must map text to text, not {key!r}: {value!r}")
        if problem := _text_problem(key) or _text_problem(value):
            raise InvalidDevice(device_id, f"{name}: {problem}")
        if not is_name_of_text(key, is_variable=name == "env"):
            raise InvalidDevice(device_id, f"{name}: {key!r} cannot be a name")
    return texts


def is_name_of_text(name: object, *, is_variable: bool) -> bool:
    """Whether an environment variable, or an annotation, can have this name."""
    return isinstance(name, str) and name != "" and not (is_variable and "=" in name)


class ReportedDevice(NamedTuple):
    """A device as a plugin reported it to the node; no field was checked.

    `health` is the text of the plugin. `numa_nodes` is None without a TopologyInfo, `()` for an
    empty TopologyInfo.
    """

    id: str
    health: str
    numa_nodes: tuple[int, ...] | None = None


def natural_key(text: str) -> str:
    """Return a sort key under which `card2` comes before `card10`; keys of two texts differ.

    In the key, a run of digits is its length and the run without leading zeros. So a key is plain
    text, which is compared quickly, and a run may have any length.
    """
    return _short_key(text) if len(text) <= _REMEMBERED_TEXT else _key(text)


def _key(text: str) -> str:
    return _DIGITS.sub(_by_length, text) + "\0" + text


def natural_order(texts: Iterable[str]) -> list[str]:
    """Return different `texts` in the order of `natural_key`, quickly in the usual case.

    Usually all IDs are one word with a number without leading zeros. Then a shorter ID is before a
    longer ID, and two sorts in C are enough.
    """
    found = list(texts)
    words = {text.rstrip("0123456789") for text in found}
    if len(words) == 1:
        (word,) = words
        zero = f"{word}0"
        if word.isascii() and not any(text.startswith(zero) and text != zero for text in found):
            found.sort()
            found.sort(key=len)
            return found
    return sorted(found, key=_key)


_short_key = lru_cache(maxsize=65536)(_key)
_REMEMBERED_TEXT = 256
"""Keys of longer IDs are not cached: a plugin may send megabytes of new IDs again and again."""


def _by_length(run: re.Match[str]) -> str:
    digits = run[0].lstrip("0")
    return f"\1{chr(min(len(digits), 0xFFFF))}{digits}"
