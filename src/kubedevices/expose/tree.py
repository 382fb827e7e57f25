"""Makes devices from the host's device files, by a configuration. Pure: `Host` is the only input.

The rules:

* Two names of the same device file (by two matches, or by a symbolic link) make one device; the
  first match in the file gives its name.
* `id: stable` uses a stable name of the device, which does not depend on its device file. Without a
  stable name, and with `id: path`, the ID is the path without `/dev/`, with `-` for `/`:
  `/dev/net/tun` becomes `net-tun`. `id: index` is the resource's name and the device's number. An
  ID that another device of the resource already has, or that is longer than the 63 characters of
  the API, ends in a hash of the path.
* A container holds a device by its ID. So a device keeps its ID until a stable name shows that
  another device is at its place. An equal device, or a stable name that appears later, does not
  change the ID.
* With `replicas: 2` the IDs are `ttyUSB0::0` and `ttyUSB0::1`. The separator is `::`, because names
  of devices contain `-`. All replicas have the health and the NUMA nodes of their device. When
  `replicas` changes while a device is known, its first replica keeps its ID: a container holds it.
* With `inject: cdi` a container gets a device only by a CDI device, whose kind is the resource's
  name and whose name is the ID. With `both` the plain form is in the answer too.
* `{index}` is the lowest free number. A device keeps its number until it is forgotten, so that the
  removal of one device does not rename the others.
"""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kubedevices.config.placeholders import fill
from kubedevices.errors import InvalidDevice
from kubedevices.expose.config import ExposeConfig, ResourceRule
from kubedevices.expose.found import Found, Host, companions_of
from kubedevices.expose.memory import Memory, Remembered
from kubedevices.expose.names import NamedRule, name_of, named
from kubedevices.expose.path_patterns import PathPattern
from kubedevices.rules.replicas import replica_id
from kubedevices.values.device import Device, DeviceSpec, Health, Mount, natural_key
from kubedevices.values.device_tree import DeviceTree

ID_LIMIT, MOST_NAMES = 63, 100  # characters; resources that one template may create
_HASH_DIGITS = 10


class DevicePart(NamedTuple):
    """A device that was found, with its ID and its further device files.

    `names` are its known stable names; with `id: path` it has none. `had_replicas` says whether its
    first ID has the number of a replica, also after `replicas` has changed.
    """

    id: str
    found: Found
    companions: tuple[DeviceSpec, ...]
    names: tuple[str, ...] = ()
    had_replicas: bool = False

    def shares_name(self, other: "DevicePart") -> bool:
        """Whether both are the same device, or two devices with the same serial number."""
        return not set(self.names).isdisjoint(other.names)

    def contradicts(self, other: "DevicePart") -> bool:
        """Whether the two cannot be the same device."""
        return bool(self.names and other.names) and not self.shares_name(other)


ExposeMemory = Memory[DevicePart]


class Exposed(NamedTuple):
    """A device to be listed. `values` fill placeholders; `id` has no suffix of a replica."""

    rule: ResourceRule
    id: str
    part: DevicePart
    is_there: bool
    values: Mapping[str, str]


Names = dict[Hashable, dict[str, None]]
"""The names that the template of each rule has produced, in order of time."""


def expand(config: ExposeConfig, host: Host, seen: Names) -> ExposeConfig:
    """Return `config` with a resource for each name that a template produces from the matches.

    `seen` has the names of earlier looks. A name stays, without a device, when its device is
    removed. Of more than `MOST_NAMES`, the oldest names without a device are dropped, because each
    resource needs a socket. A name of another resource is not used.
    """
    taken = {rule.device_type for rule in config.resources if not rule.is_template}
    rules: list[ResourceRule] = []
    for rule in config.resources:
        if not rule.is_template:
            rules.append(rule)
            continue
        names = seen.setdefault((rule.name, rule.match), {})
        here = {name_of(rule.name, found.placeholders) for found in _matches(rule, host)}
        names |= dict.fromkeys(sorted(here - names.keys(), key=natural_key))
        gone = [name for name in names if name not in here]
        for name in gone[: max(0, len(names) - MOST_NAMES)]:
            del names[name]
        for each in (named(rule, name) for name in names if name):
            if each.device_type not in taken:
                taken.add(each.device_type)
                rules.append(each)
    return replace(config, resources=tuple(rules))


def survey(config: ExposeConfig, host: Host, memory: ExposeMemory, now: float) -> Sequence[Exposed]:
    """Return every device of the host that `config` exposes, without replicas."""
    # A change of `id` means that other IDs are wanted: the old IDs are forgotten at once.
    memory.keep_only({(rule.name, rule.id) for rule in config.resources})
    exposed: list[Exposed] = []
    for rule in config.resources:
        key = rule.name, rule.id
        parts = {part.id: part for part in _find_parts(rule, host, memory.known(key))}
        kept = memory.update(key, parts, now, config.gone_grace_of(rule))
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
    reason: Callable[[Exposed], str] = lambda _: "",
) -> tuple[DeviceTree, Sequence[str]]:
    """Return the tree of devices to report, and why some devices are not in it.

    The tree declares every resource. `reason` is asked for devices that are there and unhealthy.
    `inject` says how containers get devices of a resource for
    which the configuration does not say it.
    """
    tree, problems = DeviceTree(), list[str]()
    for rule in config.resources:
        tree.declare(rule.device_type)
    for each in exposed:
        state, why = Health.UNHEALTHY, "it is gone; its ID is kept for some time"
        if each.is_there:
            state = health(each)
            why = "" if state is Health.HEALTHY else reason(each)
        try:
            devices = [
                _as_cdi(_make_device(each, device_id, state, why), each.rule.inject or inject)
                for device_id in _ids(each)
            ]
        except InvalidDevice as error:  # filled templates are invalid: other devices are not
            problems.append(f"{each.rule.device_type}: {error}")
            continue
        for device in devices:
            tree.add(each.rule.device_type, device)
    return tree, problems


def _expose(rule: ResourceRule, remembered: Remembered[DevicePart]) -> Exposed:
    part, number = remembered.thing, str(remembered.number)
    device_id = f"{rule.name}-{number}" if rule.id == "index" else part.id
    values = part.found.placeholders | {"index": number, "id": device_id}
    values["container_path"] = fill(rule.container.path, values)
    return Exposed(rule, device_id, part, remembered.gone_at is None, values)


def make_ids(
    named: Sequence[tuple[str, str]], limit: int = ID_LIMIT, taken: Iterable[str] = ()
) -> list[str]:
    """Return an ID of at most `limit` characters for each (name or "", path), by the rules above.

    No ID is in `taken`. The order of `named` does not matter.
    """
    plain = {path: name or _path_name(path) for name, path in named}
    used = set(taken)
    ids: dict[str, str] = {}
    for path in sorted(plain, key=lambda path: (path != f"/dev/{plain[path]}", natural_key(path))):
        device_id, salted = plain[path], path
        while device_id in used or len(device_id) > limit:
            device_id = _hashed(plain[path], salted, limit)
            salted += "/"  # an equal device that has moved may still have this ID
        used.add(device_id)
        ids[path] = device_id
    return [ids[path] for _, path in named]


def _path_name(path: str) -> str:
    return path.removeprefix("/dev/").lstrip("/").replace("/", "-")


def _hashed(name: str, path: str, limit: int) -> str:
    content = path.encode(errors="surrogateescape")
    digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
    return f"{name[: limit - _HASH_DIGITS - 1]}-{digest}"


def _ids(exposed: Exposed) -> list[str]:
    first = replica_id(exposed.id, 0) if exposed.part.had_replicas else exposed.id
    return [first, *(replica_id(exposed.id, i) for i in range(1, exposed.rule.replicas))]


def _find_parts(
    rule: ResourceRule, host: Host, known: Collection[Remembered[DevicePart]]
) -> list[DevicePart]:
    """Return the devices of a resource that the host has, each with its ID.

    `known` are the devices of the last look.
    """
    here: dict[Hashable, DevicePart] = {}
    for found in _matches(rule, host):
        if found.file.identity in here:
            continue
        if isinstance(rule, NamedRule) and not rule.takes(found.placeholders):
            continue
        companions = companions_of(rule, host, found)
        if companions is not None:
            names = () if rule.id == "path" else host.stable_names(found)
            here[found.file.identity] = DevicePart("", found, companions, names)
    limit = ID_LIMIT
    if rule.replicas > 1:
        limit -= len(replica_id("", rule.replicas - 1))
    for identity, former in _recognise(here, known, host).items():
        if len(former.id) <= limit:  # with more replicas than before, the limit may be lower
            names = here[identity].names or former.names
            here[identity] = here[identity]._replace(
                id=former.id, names=names, had_replicas=former.had_replicas
            )
    new = {identity: part for identity, part in here.items() if not part.id}
    named = [("".join(part.names[:1]), part.found.path) for part in new.values()]
    ids = make_ids(named, limit, (each.thing.id for each in known))
    for (identity, part), part_id in zip(new.items(), ids, strict=True):
        here[identity] = part._replace(id=part_id, had_replicas=rule.replicas > 1)
    return list(here.values())


def _recognise(
    here: Mapping[Hashable, DevicePart], known: Collection[Remembered[DevicePart]], host: Host
) -> dict[Hashable, DevicePart]:
    """Return the former state of the devices that are `here` and were `known`, by identity."""
    were: dict[Hashable, DevicePart] = {}
    taken: set[str] = set()
    for part, former in _guesses(here, known, host):
        identity = part.found.file.identity
        if identity not in were and former.id not in taken and not part.contradicts(former):
            were[identity] = former
            taken.add(former.id)
    return were


def _guesses(
    here: Mapping[Hashable, DevicePart], known: Collection[Remembered[DevicePart]], host: Host
) -> Iterator[tuple[DevicePart, DevicePart]]:
    """Yield pairs of a present device and a former device that it may be, the best guesses first.

    A device that is still at its place comes before a moved device; otherwise an equal device could
    take its ID. For a removed device a stable name counts more than the place: it may be replaced.
    """
    identities: dict[str, Hashable] = {part.found.path: key for key, part in here.items()}

    def parts_at(path: str) -> Iterator[DevicePart]:
        if path not in identities:
            file = host.identify(path)
            identities[path] = file and file.identity
        if identities[path] in here:
            yield here[identities[path]]

    by_name: dict[str, list[DevicePart]] = {}
    for former, _, gone_at in known:
        for part in parts_at(former.found.path):
            if gone_at is None or part.shares_name(former):
                yield part, former
        for name in former.names:
            by_name.setdefault(name, []).append(former)
    for part in here.values():
        for name in part.names:
            yield from ((part, former) for former in by_name.get(name, ()))
    for former, _, gone_at in known:
        # A present device is the same device also if only the link by which it was found was
        # removed. For a removed device only the link counts: its file may be another device now.
        place = former.found.file.real_path if gone_at is None else former.found.path
        yield from ((part, former) for part in parts_at(place))


def _matches(rule: ResourceRule, host: Host) -> Iterator[Found]:
    for match in rule.match:
        for each in host.find(match):
            if found := _without_excluded(rule.exclude, each, host):
                yield found


def _without_excluded(patterns: Sequence[PathPattern], found: Found, host: Host) -> Found | None:
    """Return `found` with its first file that is not excluded as main file; None if all are."""
    if not _is_excluded(patterns, found):
        return found
    for i, path in enumerate(found.others, start=1):
        file = host.identify(path)
        if file is None:
            continue
        other = found._replace(path=path, file=file, others=found.others[i:])
        if not _is_excluded(patterns, other):
            return other
    return None


def _is_excluded(patterns: Sequence[PathPattern], found: Found) -> bool:
    paths = {found.path, found.file.real_path}
    return any(pattern.match(path) is not None for pattern in patterns for path in paths)


def _make_device(exposed: Exposed, device_id: str, health: Health, reason: str) -> Device:
    rule, part = exposed.rule, exposed.part
    values = {**exposed.values, "id": device_id}
    container_path = values["container_path"] = fill(rule.container.path, values)
    main = DeviceSpec(part.found.file.real_path, container_path, rule.container.permissions)
    return Device(
        device_id,
        health=health,
        reason=reason,
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
        replica_of=exposed.id if rule.replicas > 1 else "",
    )


def _as_cdi(device: Device, inject: str) -> Device:
    """Return `device` with CDI edits, in addition to its plain form (`both`) or instead (`cdi`)."""
    if inject == "nodes":
        return device
    from kubedevices.values.cdi import edits_of  # noqa: PLC0415 - only loaded if CDI is used

    edits = edits_of(env=device.env.items(), devices=device.specs, mounts=device.mounts)
    if inject == "both":
        return replace(device, cdi=edits)
    return replace(device, cdi=edits, specs=(), mounts=(), env={})
