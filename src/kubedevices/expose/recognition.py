"""Recognises the hardware of earlier looks and earlier processes, and gives it its ID again. Pure.

A pod holds a device by its ID, so a piece of hardware has one ID as long as somebody may hold it:

* What the last look knew keeps its ID (`_recognise`), also if a stable name has appeared meanwhile.
* What an earlier process knew is restored into the memory (`names_file`), and is recognised there
  like a device that was removed and comes back.
* Where no memory is left, the holds tell: an ID that a pod holds, or that is cordoned, is the
  ID of the device to which the kubelet's answer or one of the device's possible names leads.
* What cannot have its ID back is not offered while the former ID is held (`waits_for`).
"""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kubedevices.expose.config import ResourceRule
from kubedevices.expose.found import Found, Host
from kubedevices.expose.held_ids import Holds
from kubedevices.expose.removed_devices import Memory, Remembered
from kubedevices.rules.replicas import replica_id
from kubedevices.values.device import DeviceSpec, natural_key

ID_LIMIT = 63
"""Characters of an ID."""

SWITCH_TIME = 10.0
"""Seconds in which a USB device that changes its mode comes back at its port."""

_HASH_DIGITS = 10


class DevicePart(NamedTuple):
    """A device that was found, with its ID and its further device files.

    `names` are its known stable names; with `id: path` it has none. `port` is the name of its USB
    port, which is also in `names` if the device has no serial number. `had_replicas` says whether
    its first ID has the number of a replica, also after `replicas` has changed. `waits_for` are
    other IDs of the same hardware, each as (device type, ID): it is not offered while one is held.
    `number` is the number that a held ID tells (`id: index`).
    """

    id: str
    found: Found
    companions: tuple[DeviceSpec, ...]
    names: tuple[str, ...] = ()
    had_replicas: bool = False
    port: str = ""
    waits_for: frozenset[tuple[str, str]] = frozenset()
    number: int | None = None

    def shares_name(self, other: "DevicePart") -> bool:
        """Whether both are the same device, or two devices with the same serial number."""
        return not set(self.names).isdisjoint(other.names)

    def contradicts(self, other: "DevicePart") -> bool:
        """Whether the two cannot be the same device."""
        return bool(self.names and other.names) and not self.shares_name(other)

    def may_be_other_mode_of(self, other: "DevicePart") -> bool:
        """Whether both are at one port, and only one of them tells a serial number.

        The boot loader of some devices has no serial number, their program has.
        """
        at_one_port = self.port and self.port == other.port
        return bool(at_one_port and (self.port in self.names) != (other.port in other.names))


DeviceMemory = Memory[DevicePart]


@dataclass(frozen=True)
class Naming:
    """What is known besides the host: `now` of the memory, and who holds which ID.

    `holds` is asked only if a device is new or waits. So is `former`, which returns the IDs of
    resources that are not served any more, as (device type, part).
    """

    now: float = 0
    holds: Callable[[str], Holds] = lambda _: Holds()
    former: Callable[[], Sequence[tuple[str, DevicePart]]] = tuple


def identify(
    rule: ResourceRule,
    here: dict[Hashable, DevicePart],
    known: Collection[Remembered[DevicePart]],
    host: Host,
    naming: Naming,
) -> dict[str, DevicePart]:
    """Return the devices that are `here`, by identity, with their IDs: by ID.

    `known` are the devices of the last look, and the removed ones.
    """
    limit = ID_LIMIT
    if rule.replicas > 1:
        limit -= len(replica_id("", rule.replicas - 1))
    for identity, former in _recognise(here, known, host, naming.now).items():
        # With more replicas than before, the limit may be lower: only a held device keeps its ID.
        if len(former.id) <= limit or naming.holds(rule.device_type).of(former.id):
            names = here[identity].names or former.names
            here[identity] = here[identity]._replace(
                id=former.id,
                names=names,
                had_replicas=former.had_replicas,
                waits_for=_still_held(former.waits_for, naming),
            )
    used = {each.thing.id for each in known}
    new = {identity: part for identity, part in here.items() if not part.id}
    if rule.id == "index":
        here |= _with_held_numbers(rule, new, known, naming)
    else:
        for identity, part in new.items():
            here[identity] = _with_held_id(rule, part, used, naming)
            used.add(here[identity].id)
    new = {identity: part for identity, part in here.items() if not part.id}
    named = [("".join(part.names[:1]), part.found.path) for part in new.values()]
    for (identity, part), part_id in zip(new.items(), make_ids(named, limit, used), strict=True):
        here[identity] = part._replace(
            id=part_id,
            had_replicas=rule.replicas > 1,
            waits_for=part.waits_for | _other_ids(part, naming),
        )
    return {part.id: part for part in here.values()}


def _with_held_id(
    rule: ResourceRule, part: DevicePart, used: Collection[str], naming: Naming
) -> DevicePart:
    """Return a new device with the ID that somebody holds or has cordoned, if that tells it."""
    names = (*part.names, path_name(part.found.path))
    hold = naming.holds(rule.device_type).at(part.found.file.real_path, names)
    if hold is None or hold.device in used:
        return part
    return part._replace(id=hold.device, had_replicas=hold.is_replica)


def _with_held_numbers(
    rule: ResourceRule,
    new: Mapping[Hashable, DevicePart],
    known: Collection[Remembered[DevicePart]],
    naming: Naming,
) -> dict[Hashable, DevicePart]:
    """Return new devices with the numbers that the kubelet's answers tell.

    Which device has a held number that no answer tells is not known: it may be each of the others,
    so these wait until the number is free.
    """
    holds = naming.holds(rule.device_type) if new else Holds()
    ours = {f"{rule.name}-{each.number}" for each in known if each.is_listed}
    found = {
        identity: hold.device
        for identity, part in new.items()
        if (hold := holds.by_path.get(part.found.file.real_path)) and hold.device not in ours
    }
    unknown = holds.by_device.keys() - ours - set(found.values())
    waits_for = frozenset((rule.device_type, each) for each in unknown)
    return {
        identity: part._replace(number=number_in(rule, found[identity]))
        if identity in found
        else part._replace(waits_for=waits_for)
        for identity, part in new.items()
    }


def number_in(rule: ResourceRule, device_id: str) -> int | None:
    """Return the number in an ID of `id: index`; None for another ID."""
    number = device_id.removeprefix(f"{rule.name}-")
    return int(number) if number.isdecimal() and f"{rule.name}-{number}" == device_id else None


def _other_ids(part: DevicePart, naming: Naming) -> frozenset[tuple[str, str]]:
    """Return the held IDs that the hardware of a new device had in resources of before."""
    others = {
        (device_type, former.id)
        for device_type, former in naming.former()
        if part.shares_name(former)
        or (part.found.file.real_path == former.found.path and not part.contradicts(former))
    }
    return _still_held(frozenset(others), naming)


def _still_held(others: frozenset[tuple[str, str]], naming: Naming) -> frozenset[tuple[str, str]]:
    return frozenset(each for each in others if naming.holds(each[0]).of(each[1]))


def make_ids(
    named: Sequence[tuple[str, str]], limit: int = ID_LIMIT, taken: Iterable[str] = ()
) -> list[str]:
    """Return an ID of at most `limit` characters for each (name or "", path), by `tree`'s rules.

    No ID is in `taken`. The order of `named` does not matter.
    """
    plain = {path: name or path_name(path) for name, path in named}
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


def path_name(path: str) -> str:
    """Return the ID of a device that has no stable name: its path below /dev."""
    return path.removeprefix("/dev/").lstrip("/").replace("/", "-")


def _hashed(name: str, path: str, limit: int) -> str:
    content = path.encode(errors="surrogateescape")
    digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
    return f"{name[: limit - _HASH_DIGITS - 1]}-{digest}"


def _recognise(
    here: Mapping[Hashable, DevicePart],
    known: Collection[Remembered[DevicePart]],
    host: Host,
    now: float,
) -> dict[Hashable, DevicePart]:
    """Return the former state of the devices that are `here` and were `known`, by identity."""
    were: dict[Hashable, DevicePart] = {}
    taken: set[str] = set()
    pairs = [pair for pair in _guesses(here, known, host) if not pair[0].contradicts(pair[1])]
    for part, former in (*pairs, *_other_modes(here, known, now)):
        identity = part.found.file.identity
        if identity not in were and former.id not in taken:
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
    for former, _, gone_at, _ in known:
        for part in parts_at(former.found.path):
            if gone_at is None or part.shares_name(former):
                yield part, former
        for name in former.names:
            by_name.setdefault(name, []).append(former)
    for part in here.values():
        for name in part.names:
            yield from ((part, former) for former in by_name.get(name, ()))
    for former, _, gone_at, is_listed in known:
        # A present device is the same device also if only the link by which it was found was
        # removed. For a removed device only the link counts: its file may be another device now.
        # After its grace another device may be there, so only a name tells.
        place = former.found.file.real_path if gone_at is None else former.found.path
        if is_listed:
            yield from ((part, former) for part in parts_at(place))


def _other_modes(
    here: Mapping[Hashable, DevicePart], known: Collection[Remembered[DevicePart]], now: float
) -> Iterator[tuple[DevicePart, DevicePart]]:
    """Yield pairs of a device that has just come, and one that has just gone from the same port."""
    for former, _, gone_at, _ in known:
        if gone_at is None or now - gone_at < SWITCH_TIME:
            for part in here.values():
                if part.may_be_other_mode_of(former):
                    yield part, former
