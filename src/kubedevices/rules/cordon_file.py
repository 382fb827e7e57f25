"""Reads and writes the file of cordoned devices.

    {"version": 1, "devices": [
      {"resource": "example.com/gpu", "id": "GPU-1", "reason": "fan noise", "since": "2026-…Z"}
    ]}

A device may have a time `until`, at which it is uncordoned.

`kubedevices cordon` and the health rule write it, the rule `cordon` reads it after each change.
People may edit the file, and other users may be able to write in its directory, so the content is
not trusted. Two writers exclude each other by a lock file.
"""

import calendar
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import CannotAsk, CannotRead, NotJson, NotPermitted
from kubedevices.host import untrusted_files
from kubedevices.host.lock_holder import locked
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.values.resource_name import explain_resource_name

SIZE_LIMIT = 4 * 2**20
"""Most bytes of the file; enough for about 20,000 devices."""

REASON_LIMIT = 500
"""Most characters of a reason."""

LOCK_TIMEOUT = 10.0
"""Seconds that a writer waits for another writer, which needs milliseconds."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_LAST = 253402300799  # the end of the year 9999, which the format can still hold

_ADVICE = "correct the file, or remove it to begin anew"


class CordonEntry(NamedTuple):
    """One cordoned device; times are in UTC, like 2026-11-22T17:06:26Z.

    At the time `until` the device is uncordoned; an empty text means: not by itself.
    """

    resource: str
    id: str
    reason: str
    since: str = ""
    until: str = ""

    def seconds_left(self, now: float) -> float:
        """Return how long the device is still out; `now` in seconds since the epoch, UTC."""
        if not self.until:
            return math.inf
        return calendar.timegm(time.strptime(self.until, _TIME)) - now


def read_cordoned(path: Path, clock: Callable[[], float] = time.time) -> tuple[CordonEntry, ...]:
    """Return the devices in the file `path` that are cordoned now; `()` without a file.

    Raises `CannotRead`. A device whose time `until` has come is uncordoned, whoever asks.
    """
    try:
        data = untrusted_files.read_bytes(path, limit=SIZE_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise CannotRead(str(path), error.strerror or str(error)) from error
    try:
        now = clock()
        return tuple(each for each in parse_cordoned(data) if each.seconds_left(now) > 0)
    except ValueError as error:
        raise CannotRead(str(path), f"{error}; {_ADVICE}") from error


def parse_cordoned(data: bytes) -> tuple[CordonEntry, ...]:
    """Return the devices in the content of a file; `()` for an empty file. Raises ValueError."""
    if not data.strip():
        return ()
    try:
        document: Any = read_json(data, limit=SIZE_LIMIT)
    except NotJson as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != 1:
        raise ValueError('it does not begin with {"version": 1')
    devices = document.get("devices", [])
    if not isinstance(devices, list):
        raise ValueError('"devices" is not a list')  # noqa: TRY004  # the file is wrong, not a type
    return tuple(_entry(i, each) for i, each in enumerate(devices, 1))


def _entry(number: int, said: object) -> CordonEntry:
    if not isinstance(said, dict):
        raise ValueError(f"device {number} is not an object with resource and id")  # noqa: TRY004
    texts = {name: said.get(name, "") for name in CordonEntry._fields}
    for name, text in texts.items():
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"device {number}: {name} must be text")
    if problem := explain_resource_name(texts["resource"]):
        raise ValueError(f"device {number}: {texts['resource']!r} is not a resource: {problem}")
    if texts["until"]:
        try:
            time.strptime(texts["until"], _TIME)
        except ValueError:
            raise ValueError(f"device {number}: until must be like 2026-11-22T17:06:26Z") from None
    if not texts["id"]:
        raise ValueError(f"device {number}: its id is missing")
    return CordonEntry(**(texts | {"reason": clean_reason(texts["reason"])}))


def clean_reason(text: str) -> str:
    """Return a reason as one printable line of at most `REASON_LIMIT` characters.

    The reason appears in logs and in the message of a refused pod.
    """
    line = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(line.split())
    return line if len(line) <= REASON_LIMIT else f"{line[:REASON_LIMIT]}…"


def as_dict(cordoned: CordonEntry) -> dict[str, str]:
    """Return the keys of one device; `until` only if the device comes back by itself."""
    found = cordoned._asdict()
    return found if cordoned.until else {name: found[name] for name in found if name != "until"}


def encode_cordoned(cordoned: Iterable[CordonEntry]) -> bytes:
    """Return the content of a file, one device per line so that people can edit it."""
    lines = [json.dumps(as_dict(each), ensure_ascii=False) for each in cordoned]
    listed = ",\n".join(f"  {line}" for line in lines)
    return f'{{"version": 1, "devices": [\n{listed}\n]}}\n'.encode()


def change_cordoned(
    path: Path,
    change: Callable[[tuple[CordonEntry, ...]], Iterable[CordonEntry]],
    *,
    timeout: float = LOCK_TIMEOUT,
) -> tuple[CordonEntry, ...]:
    """Replace the devices in the file `path` by the result of `change`, under a lock; return it.

    Creates the directory (0750) if it does not exist. Blocks for up to `timeout` seconds.
    Raises `CannotRead` for a damaged file, which stays unchanged, `NotPermitted` and `CannotAsk`.
    """
    try:
        directory = SharedDirectory(path.parent)
        directory.create()
        # The lock is a separate file: the file itself is replaced, and a lock on the replaced file
        # would exclude nobody.
        with locked(directory, f"{path.name}.lock", timeout):
            # Read under the lock: the change of another writer must not be lost.
            before = read_cordoned(path)
            after = tuple(change(before))
            if after != before:
                # Readable for all users (0644): a plugin may run as another user.
                data = encode_cordoned(after)
                if len(data) > SIZE_LIMIT:
                    raise CannotAsk(f"{path} would be larger than {SIZE_LIMIT} bytes")
                directory.remove_leftovers(re.compile(re.escape(path.name)))
                directory.replace(path.name, data, mode=0o644)
            return after
    except PermissionError as error:
        raise NotPermitted(f"write {path}", "run as root, or choose another --state-dir") from error
    except OSError as error:
        raise CannotAsk(f"cannot write {path}: {error.strerror or error}") from error


def add_cordoned(
    path: Path,
    wanted: Sequence[tuple[str, str]],
    reason: str,
    recover_after: float | None = None,
) -> tuple[CordonEntry, ...]:
    """Add devices, each as (resource, ID); return their entries. Raises like `change_cordoned`.

    A device that is in the file already gets the new reason and the new end. After `recover_after`
    seconds the devices are uncordoned; None means: not by themselves.
    """
    clock = time.time()
    now = time.strftime(_TIME, time.gmtime(clock))
    until = ""
    if recover_after is not None:
        until = time.strftime(_TIME, time.gmtime(math.ceil(min(clock + recover_after, _LAST))))

    def add(before: tuple[CordonEntry, ...]) -> Iterable[CordonEntry]:
        known = {each[:2]: each for each in before}
        for resource, device_id in wanted:
            new = CordonEntry(resource, device_id, clean_reason(reason), now, until)
            old = known.get((resource, device_id), new)
            # `since` stays: the device has been cordoned since its first entry.
            known[resource, device_id] = new._replace(since=old.since)
        return known.values()

    return tuple(each for each in change_cordoned(path, add) if each[:2] in wanted)
