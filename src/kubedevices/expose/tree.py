"""Makes devices from the host's device files, by a configuration. Pure: `Host` is the only input.

The rules:

* Two names of the same device file (by two matches, or by a symbolic link) make one device; the
  first match in the file gives its name.
* `id: stable` uses a stable name of the device, which does not depend on its device file. Without a
  stable name, and with `id: path`, the ID is the path without `/dev/`, with `-` for `/`:
  `/dev/net/tun` becomes `net-tun`. `id: index` is the resource's name and the device's number. An
  ID that another device of the resource already has, or that is longer than the 63 characters of
  the API, ends in a hash of the path.
* A container holds a device by its ID, so `recognition` decides it once for a piece of hardware.
* With `replicas: 2` the IDs are `ttyUSB0::0` and `ttyUSB0::1`. The separator is `::`, because names
  of devices contain `-`. All replicas have the health and the NUMA nodes of their device. When
  `replicas` changes while a device is known, its first replica keeps its ID: a container holds it.
* With `inject: cdi` a container gets a device only by a CDI device, whose kind is the resource's
  name and whose name is the ID. With `both` the plain form is in the answer too.
* `{index}` is the lowest free number. A device keeps its number until it is forgotten, so that the
  removal of one device does not rename the others.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kubedevices.config.placeholders import fill
from kubedevices.errors import InvalidDevice
from kubedevices.expose.config import ExposeConfig, ResourceRule
from kubedevices.expose.found import Excluded, Found, Host, companions_of
from kubedevices.expose.names import NamedRule, name_of, named
from kubedevices.expose.recognition import DeviceMemory, DevicePart, Naming, identify, number_in
from kubedevices.expose.removed_devices import Remembered
from kubedevices.rules.replicas import replica_id
from kubedevices.values.device import Device, DeviceSpec, Health, Mount, natural_key
from kubedevices.values.device_tree import DeviceTree

MOST_NAMES = 100
"""Resources that one template may create."""


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


def survey(
    config: ExposeConfig,
    host: Host,
    memory: DeviceMemory,
    naming: Naming = Naming(),  # noqa: B008 - frozen
) -> Sequence[Exposed]:
    """Return every device of the host that `config` exposes, without replicas."""
    # A change of `id` means that other IDs are wanted: the old IDs are forgotten at once.
    memory.keep_only({(rule.device_type, rule.id) for rule in config.resources})
    exposed: list[Exposed] = []
    for rule in config.resources:
        key = rule.device_type, rule.id
        parts = identify(rule, _find_here(rule, host), memory.known(key).values(), host, naming)
        numbers = {each: part.number for each, part in parts.items() if part.number is not None}
        kept = memory.update(
            key,
            parts,
            naming.now,
            config.gone_grace_of(rule),
            has_name=lambda part: part.names,
            numbers=numbers,
            held=_held_numbers(rule, parts),
        )
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


def _held_numbers(rule: ResourceRule, parts: Mapping[str, DevicePart]) -> set[int]:
    """Return the numbers for which devices wait: a new device must not get one of them."""
    waited = {each for part in parts.values() for each in part.waits_for}
    ours = (
        number_in(rule, each) for device_type, each in waited if device_type == rule.device_type
    )
    return {number for number in ours if number is not None}


def _expose(rule: ResourceRule, remembered: Remembered[DevicePart]) -> Exposed:
    part, number = remembered.thing, str(remembered.number)
    if part.waits_for:
        others = ", ".join(f"{name}/{other}" for name, other in sorted(part.waits_for))
        problem = f"it is, or may be, {others}, which is held: it waits until that is free"
        part = part._replace(found=part.found._replace(problem=problem))
    device_id = f"{rule.name}-{number}" if rule.id == "index" else part.id
    values = part.found.placeholders | {"index": number, "id": device_id}
    values["container_path"] = fill(rule.container.path, values)
    return Exposed(rule, device_id, part, remembered.gone_at is None, values)


def _ids(exposed: Exposed) -> list[str]:
    first = replica_id(exposed.id, 0) if exposed.part.had_replicas else exposed.id
    return [first, *(replica_id(exposed.id, i) for i in range(1, exposed.rule.replicas))]


def _find_here(rule: ResourceRule, host: Host) -> dict[Hashable, DevicePart]:
    """Return the devices of a resource that the host has, by identity, without IDs."""
    here: dict[Hashable, DevicePart] = {}
    for found in _matches(rule, host):
        if found.file.identity in here:
            continue
        if isinstance(rule, NamedRule) and not rule.takes(found.placeholders):
            continue
        companions = companions_of(rule, host, found)
        if companions is not None:
            names = () if rule.id == "path" else host.stable_names(found)
            port = "" if rule.id == "path" else host.port_name(found)
            here[found.file.identity] = DevicePart("", found, companions, names, port=port)
    return here


def _matches(rule: ResourceRule, host: Host) -> Iterator[Found]:
    # Most rules exclude nothing; then no further file of a device is looked at.
    excluded = Excluded(rule.exclude, host) if rule.exclude else None
    for match in rule.match:
        for each in host.find(match):
            found = _without_excluded(excluded, each, host) if excluded else each
            if found is not None:
                yield found


def _without_excluded(excluded: Excluded, found: Found, host: Host) -> Found | None:
    """Return `found` without its excluded files, the first of the rest as main file."""
    others = tuple(path for path in found.others if not excluded.has(path, host.identify(path)))
    if not excluded.has(found.path, found.file):
        return found._replace(others=others)
    for i, path in enumerate(others, start=1):
        if (file := host.identify(path)) is not None:
            return found._replace(path=path, file=file, others=others[i:])
    return None


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
