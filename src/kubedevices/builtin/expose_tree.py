"""Which devices a configuration makes of which files. Pure: the host is asked through `HostFiles`.

Rules worth knowing:

* Two names of one device file (by two matches, or by a symbolic link) make one device; the match
  that stands first in the file names it.
* The ID is the path without `/dev/`, with `-` for `/`: `/dev/net/tun` is `net-tun`. It depends on
  nothing else, so it survives a restart. Two paths of one resource that would get the same ID get
  a hash of their path behind it, and so does a path beyond the 63 characters of an ID.
* With `replicas: 2` the IDs are `ttyUSB0::0` and `ttyUSB0::1`: `::`, because names of devices
  contain `-`.
* `{index}` is the lowest free number when a device appears, and stays its number until it vanishes
  (`Indexes`), so that pulling one device does not rename the others.
"""

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kubedevices.builtin.expose_config import ExposeConfig, ResourceRule
from kubedevices.builtin.path_patterns import PathPattern, fill
from kubedevices.device import Device, DeviceSpec, Mount, natural_key
from kubedevices.device_tree import DeviceTree

ID_LIMIT = 63
REPLICA_SEPARATOR = "::"
_HASH_DIGITS = 10


class HostFile(NamedTuple):
    """A device file: equal `identity` means the same device; `real_path` follows links."""

    identity: Hashable
    real_path: str


class HostFiles(Protocol):
    """What must be known of a host."""

    def find(self, pattern: PathPattern) -> Iterable[str]:
        """Return every path that matches."""

    def identify(self, path: str) -> HostFile | None:
        """Return the device file at `path`; None if there is none, or something else."""


class Indexes:
    """Numbers that devices keep as long as they are there."""

    def __init__(self) -> None:
        self._taken: dict[str, dict[str, int]] = {}

    def assign(self, resource: str, paths: Sequence[str]) -> Mapping[str, int]:
        """Return a number for each path; a path that was there the last time keeps its own."""
        before = self._taken.get(resource, {})
        kept = {path: before[path] for path in paths if path in before}
        used = set(kept.values())
        free = (number for number in range(len(paths)) if number not in used)
        numbers = {path: kept[path] if path in kept else next(free) for path in paths}
        self._taken[resource] = numbers
        return numbers


class _Match(NamedTuple):
    """A device that is there, and what comes along with it."""

    path: str
    captures: tuple[str, ...]
    file: HostFile
    companions: tuple[DeviceSpec, ...]

    @property
    def placeholders(self) -> dict[str, str]:
        """What is known of the match alone."""
        return _placeholders(self.path, self.captures)


def make_tree(config: ExposeConfig, host: HostFiles, indexes: Indexes) -> DeviceTree:
    """Return the devices that `config` makes of the host's files; every resource is declared."""
    tree = DeviceTree()
    for rule in config.resources:
        tree.declare(rule.name)
        matches = _find_matches(rule, host)
        paths = [match.path for match in matches]
        numbers = indexes.assign(rule.name, paths)
        suffixes = _replica_suffixes(rule.replicas)
        ids = make_ids(paths, ID_LIMIT - len(suffixes[-1]))
        for match, plain_id in zip(matches, ids, strict=True):
            for suffix in suffixes:
                device_id = plain_id + suffix
                tree.add(rule.name, _make_device(rule, match, device_id, numbers[match.path]))
    return tree


def make_ids(paths: Sequence[str], limit: int = ID_LIMIT) -> list[str]:
    """Return an ID of at most `limit` characters for each path; see the module's rules."""
    plain = [path.removeprefix("/dev/").lstrip("/").replace("/", "-") for path in paths]
    count = Counter(plain)
    ids = []
    for path, name in zip(paths, plain, strict=True):
        is_ambiguous = count[name] > 1 and path != f"/dev/{name}"
        ids.append(_hashed(name, path, limit) if is_ambiguous or len(name) > limit else name)
    return ids


def _hashed(name: str, path: str, limit: int) -> str:
    digest = hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
    return f"{name[: limit - _HASH_DIGITS - 1]}-{digest}"


def _replica_suffixes(replicas: int) -> list[str]:
    return [f"{REPLICA_SEPARATOR}{i}" for i in range(replicas)] if replicas > 1 else [""]


def _find_matches(rule: ResourceRule, host: HostFiles) -> list[_Match]:
    """Return what makes a device of a resource, in natural order of the paths."""
    found: dict[Hashable, _Match] = {}
    for pattern in (match.path for match in rule.match):
        for path in sorted(host.find(pattern), key=natural_key):
            file = host.identify(path)
            captures = pattern.match(path)
            if file is None or captures is None or file.identity in found:
                continue
            if _is_excluded(rule, path) or _is_excluded(rule, file.real_path):
                continue
            companions = _companions(rule, host, _placeholders(path, captures))
            if companions is not None:
                found[file.identity] = _Match(path, captures, file, companions)
    return sorted(found.values(), key=lambda match: natural_key(match.path))


def _is_excluded(rule: ResourceRule, path: str) -> bool:
    return any(pattern.match(path) is not None for pattern in rule.exclude)


def _companions(
    rule: ResourceRule, host: HostFiles, placeholders: Mapping[str, str]
) -> tuple[DeviceSpec, ...] | None:
    """Return the device files of `with`; None if one is missing that must not be."""
    specs = []
    for path in (fill(text, placeholders) for text in rule.with_):
        file = host.identify(path)
        if file is not None:
            specs.append(DeviceSpec(file.real_path, path, rule.container.permissions))
        elif not rule.optional:
            return None
    return tuple(specs)


def _placeholders(path: str, captures: Sequence[str]) -> dict[str, str]:
    numbered = {str(i): text for i, text in enumerate(captures, start=1)}
    return {"path": path, "name": path.rpartition("/")[2], "n": "".join(captures[:1]), **numbered}


def _make_device(rule: ResourceRule, match: _Match, device_id: str, index: int) -> Device:
    values = match.placeholders | {"index": str(index), "id": device_id}
    values["container_path"] = fill(rule.container.path, values)
    main = DeviceSpec(match.file.real_path, values["container_path"], rule.container.permissions)
    return Device(
        device_id,
        specs=(main, *match.companions),
        env={fill(name, values): fill(text, values) for name, text in rule.env.items()},
        mounts=[
            Mount(
                fill(mount.host, values),
                fill(mount.container or mount.host, values),
                mount.read_only,
            )
            for mount in rule.mounts
        ],
    )
