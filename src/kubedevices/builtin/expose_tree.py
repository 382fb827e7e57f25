"""Which devices a configuration makes of what the host has. Pure: the host is asked by `Host`.

Rules worth knowing:

* Two names of one device file (by two matches, or by a symbolic link) make one device; the match
  that stands first in the file names it.
* `id: stable` takes what the host knows the device by, whatever its device file is called; else,
  and with `id: path`, the ID is the path without `/dev/`, with `-` for `/`: `/dev/net/tun` is
  `net-tun`. `id: index` is the resource's name and the device's number. Two devices of one resource
  that would get the same ID get a hash of their path behind it, and so does an ID beyond the 63
  characters of the API.
* With `replicas: 2` the IDs are `ttyUSB0::0` and `ttyUSB0::1`: `::`, because names of devices
  contain `-`. Health and NUMA nodes of a device are those of all its replicas.
* With `inject: cdi` a device is a CDI device of its resource's name and its own ID, which says all
  that a container gets; with `both` a container gets it in either way.
* `{index}` is the lowest free number when a device appears, and stays its number until it is gone
  for good, so that pulling one device does not rename the others.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from kubedevices.builtin.expose_config import ExposeConfig, Match, ResourceRule
from kubedevices.builtin.expose_memory import Memory, Remembered
from kubedevices.builtin.path_patterns import PathPattern, fill
from kubedevices.device import Device, DeviceSpec, Health, Mount, natural_key
from kubedevices.device_tree import DeviceTree
from kubedevices.plugin.replicas import SEPARATOR

ID_LIMIT = 63
_HASH_DIGITS = 10


class HostFile(NamedTuple):
    """A device file: equal `identity` means the same device; `real_path` follows links."""

    identity: Hashable
    real_path: str


class Found(NamedTuple):
    """A device of the host: its main file, found at `path`, and the `others` that belong to it.

    `captures` are what the wildcards of a path stood for, `address` is that of a bus.
    """

    path: str
    file: HostFile
    captures: tuple[str, ...] = ()
    address: str = ""
    others: tuple[str, ...] = ()
    stable: str = ""

    @property
    def placeholders(self) -> dict[str, str]:
        """What is known of the device alone."""
        numbered = {str(i): text for i, text in enumerate(self.captures, start=1)}
        return {
            "path": self.path,
            "name": self.path.rpartition("/")[2],
            "n": "".join(self.captures[:1]),
            "address": self.address,
            **numbered,
        }


class Host(Protocol):
    """What must be known of a host."""

    def find(self, match: Match) -> Iterable[Found]:
        """Return every device that matches, in natural order."""

    def identify(self, path: str) -> HostFile | None:
        """Return the device file at `path`; None if there is none, or something else."""

    def stable_name(self, found: Found) -> str:
        """Return what identifies the device over re-plugs, or an empty string."""


class Part(NamedTuple):
    """A device that is there, with its ID and the device files that come along with it."""

    id: str
    found: Found
    companions: tuple[DeviceSpec, ...]


ExposeMemory = Memory[Part]


class Exposed(NamedTuple):
    """A device to be listed. `values` fill placeholders; with replicas the ID lacks its suffix."""

    rule: ResourceRule
    id: str
    part: Part
    is_there: bool
    values: Mapping[str, str]


def survey(config: ExposeConfig, host: Host, memory: ExposeMemory, now: float) -> Sequence[Exposed]:
    """Return every device that `config` makes of the host's, replicas not counted."""
    memory.keep_only({rule.name for rule in config.resources})
    exposed: list[Exposed] = []
    for rule in config.resources:
        parts = {part.id: part for part in _find_parts(rule, host)}
        kept = memory.update(rule.name, parts, now, config.gone_grace_of(rule))
        exposed += sorted(
            (_expose(rule, each) for each in kept.values()),
            key=lambda each: natural_key(each.part.found.path),
        )
    return exposed


def make_tree(
    config: ExposeConfig,
    exposed: Iterable[Exposed],
    health: Callable[[Exposed], Health],
    inject: str = "nodes",
) -> DeviceTree:
    """Return the devices as they are published; every resource is declared.

    `inject` is how devices reach a container of which the configuration does not say it.
    """
    tree = DeviceTree()
    for rule in config.resources:
        tree.declare(rule.device_type)
    for each in exposed:
        state = health(each) if each.is_there else Health.UNHEALTHY
        for suffix in _replica_suffixes(each.rule.replicas):
            device = _make_device(each, each.id + suffix, state)
            tree.add(each.rule.device_type, _as_cdi(device, each.rule.inject or inject))
    return tree


def _expose(rule: ResourceRule, remembered: Remembered[Part]) -> Exposed:
    part, number = remembered.thing, str(remembered.number)
    device_id = f"{rule.name}-{number}" if rule.id == "index" else part.id
    values = part.found.placeholders | {"index": number, "id": device_id}
    values["container_path"] = fill(rule.container.path, values)
    return Exposed(rule, device_id, part, remembered.gone_at is None, values)


def make_ids(named: Sequence[tuple[str, str]], limit: int = ID_LIMIT) -> list[str]:
    """Return an ID of at most `limit` characters for each (name or "", path); see the rules."""
    plain = [name or _path_name(path) for name, path in named]
    count = Counter(plain)
    ids = []
    for (_, path), name in zip(named, plain, strict=True):
        is_ambiguous = count[name] > 1 and path != f"/dev/{name}"
        ids.append(_hashed(name, path, limit) if is_ambiguous or len(name) > limit else name)
    return ids


def _path_name(path: str) -> str:
    return path.removeprefix("/dev/").lstrip("/").replace("/", "-")


def _hashed(name: str, path: str, limit: int) -> str:
    digest = hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
    return f"{name[: limit - _HASH_DIGITS - 1]}-{digest}"


def _replica_suffixes(replicas: int) -> list[str]:
    return [f"{SEPARATOR}{i}" for i in range(replicas)] if replicas > 1 else [""]


def _find_parts(rule: ResourceRule, host: Host) -> list[Part]:
    """Return what makes a device of a resource, each with its ID."""
    chosen: dict[Hashable, tuple[Found, tuple[DeviceSpec, ...]]] = {}
    for found in (found for match in rule.match for found in host.find(match)):
        if found.file.identity in chosen or _is_excluded(rule.exclude, found):
            continue
        companions = _companions(rule, host, found)
        if companions is not None:
            chosen[found.file.identity] = found, companions
    named = [
        ("" if rule.id == "path" else host.stable_name(found), found.path)
        for found, _ in chosen.values()
    ]
    ids = make_ids(named, ID_LIMIT - len(_replica_suffixes(rule.replicas)[-1]))
    return [
        Part(part_id, found, companions)
        for part_id, (found, companions) in zip(ids, chosen.values(), strict=True)
    ]


def _is_excluded(patterns: Sequence[PathPattern], found: Found) -> bool:
    paths = {found.path, found.file.real_path}
    return any(pattern.match(path) is not None for pattern in patterns for path in paths)


def _companions(rule: ResourceRule, host: Host, found: Found) -> tuple[DeviceSpec, ...] | None:
    """Return the files of `with`, and the device's others; None if one of `with` is missing."""
    permissions = rule.container.permissions
    specs = [
        DeviceSpec(path, path, permissions)
        for path in found.others
        if not any(pattern.match(path) is not None for pattern in rule.exclude)
    ]
    for path in (fill(text, found.placeholders) for text in rule.with_):
        file = host.identify(path)
        if file is not None:
            specs.append(DeviceSpec(file.real_path, path, permissions))
        elif not rule.optional:
            return None
    return tuple(specs)


def _make_device(exposed: Exposed, device_id: str, health: Health) -> Device:
    rule, part = exposed.rule, exposed.part
    values = {**exposed.values, "id": device_id}
    container_path = values["container_path"] = fill(rule.container.path, values)
    main = DeviceSpec(part.found.file.real_path, container_path, rule.container.permissions)
    return Device(
        device_id,
        health=health,
        specs=(main, *part.companions),
        env={fill(name, values): fill(text, values) for name, text in rule.env.items()},
        mounts=[
            Mount(
                fill(mount.host, values),
                fill(mount.container or mount.host, values),
                mount.read_only,
            )
            for mount in rule.mounts
        ],
        numa_nodes=rule.numa_nodes,
    )


def _as_cdi(device: Device, inject: str) -> Device:
    """Return `device` with all it gives in words of CDI: beside its plain form, or instead."""
    if inject == "nodes":
        return device
    from kubedevices.cdi import edits_of  # noqa: PLC0415 - only those who use CDI load it

    edits = edits_of(env=device.env.items(), devices=device.specs, mounts=device.mounts)
    if inject == "both":
        return replace(device, cdi=edits)
    return replace(device, cdi=edits, specs=(), mounts=(), env={})
