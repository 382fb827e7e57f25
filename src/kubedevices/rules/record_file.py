"""Writes the files of a record in a thread, so that a slow or full disk delays no call.

Lines wait in a queue of limited size. If the queue is full, or the disk refuses a line, the line is
lost: it is counted, logged once, and the record says how many lines are missing. Every file, and
the text after a gap, begins with the options and the list of each resource, so that a reader needs
no other file.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

from kubedevices.config.checks import absolute, at_least
from kubedevices.config.keys import Declared, key
from kubedevices.host.rotated_file import RotatedFile
from kubedevices.kubelet_api.convert import device_list_to_wire, device_to_wire
from kubedevices.rules.record_format import (
    LIST,
    OPTIONS,
    call_parts,
    entries_of,
    head,
    line,
    list_json,
    stamp,
)
from kubedevices.values.device import Device

MIB = 2**20
MOST_WAITING = 4 * MIB
"""Most bytes that wait for the disk."""
_DEVICE_SIZE = 64
"""Assumed bytes of one device of a waiting list."""
_LAST_WAIT = 2.0
"""Seconds that `close` waits for the disk."""
_TRY_AGAIN = 1.0
"""Seconds between two attempts to write after an error."""

Given: TypeAlias = bytes | Mapping[str, Device]
"""A list: the bytes that its plugin sent, or the devices of a scanner by ID."""

_log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """One entry of the queue: the text of a line, the options of a resource, or its list."""

    time: float
    text: bytes = b""
    resource: str = ""
    options: dict[str, Any] | None = None
    devices: Given | None = None
    is_list: bool = False

    @property
    def size(self) -> int:
        if self.devices is None or isinstance(self.devices, bytes):
            return len(self.text) + len(self.devices or b"") + _DEVICE_SIZE
        return _DEVICE_SIZE * len(self.devices)


@dataclass(frozen=True, kw_only=True)
class RecordRule(Declared):
    """A record of all lists and calls."""

    HINT: ClassVar[str] = "write 'record: {file: /var/log/gpu.jsonl}'"

    file: str = key(
        "where the lines are written; {name} and {domain} stand for the parts of the name",
        check=absolute,
    )
    max_size: int = key(
        "bytes after which the next file begins", default=10 * MIB, check=at_least(1)
    )
    files: int = key("how many files are kept", default=5, check=at_least(1))
    redact_env: bool = key(
        "whether the values of environment variables are left out", default=False
    )


class RecordFile:
    """The files of a record: the file of `rule`, and older files beside it.

    A list may be larger than `max_size`. `on_lost` is called with the number of lost lines, from
    any thread.
    """

    def __init__(
        self, rule: RecordRule, *, on_lost: Callable[[int], None] = lambda _: None
    ) -> None:
        self._file = RotatedFile(Path(rule.file), files=rule.files)
        self.path, self._max_size = self._file.path, rule.max_size
        self._redact_env, self._on_lost = rule.redact_env, on_lost
        # One clock for all lines: the wall clock of the start plus the monotonic clock, so that
        # times never go backwards.
        self._offset = time.time() - time.monotonic()

        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._size = self._lost = 0
        self._is_ending = False
        self._thread: threading.Thread | None = None

        # Only for the thread: the options and lists that the file has so far, and the number of
        # missing lines that the file does not report yet.
        self._options: dict[str, dict[str, Any]] = {}
        self._lists: dict[str, tuple[bytes, ...] | None] = {}
        self._missing = 0
        self._fails = False
        self._room = 0

    @property
    def is_writing(self) -> bool:
        """Whether the thread still runs."""
        return self._thread is not None and self._thread.is_alive()

    def now(self) -> float:
        """Return the present time in seconds since 1970, for a line."""
        return self._offset + time.monotonic()

    # ------------------------------------------------------------ from any thread, at once

    def start(self) -> None:
        """Start the thread that writes."""
        name = f"record {self.path.name}"
        self._thread = threading.Thread(target=self._write_all, name=name, daemon=True)
        self._thread.start()

    def add(self, parts: dict[str, Any]) -> None:
        """Write a line with these parts (see `call_parts`)."""
        self._add(_Waiting(self.now(), text=line(parts)))

    def add_options(self, resource: str, options: dict[str, Any]) -> None:
        """Write the answer to GetDevicePluginOptions."""
        self._add(_Waiting(self.now(), resource=resource, options=options))

    def add_list(self, resource: str, devices: Given | None) -> None:
        """Write a list, or its difference to the last list; None: the resource is no longer served.

        If `devices` is a mapping, it must not change afterwards.
        """
        self._add(_Waiting(self.now(), resource=resource, devices=devices, is_list=True))

    def _add(self, new: _Waiting) -> None:
        with self._changed:
            # A list that is larger than the limit is accepted when nothing else waits.
            if self._size + new.size <= MOST_WAITING or not self._waiting:
                is_first = False
                self._put(new)
            else:
                is_first = not self._lost
                # `_lost`: lost since the last turn of the thread. `_missing`: lost and not yet
                # reported in the record.
                self._lost += 1
                self._make_room(new)
            self._changed.notify()
        # Outside the lock: the log may block, too.
        if is_first:
            _log.warning("%s: the disk is too slow: lines of the record are lost", self.path)

    def _put(self, new: _Waiting) -> None:
        self._waiting.append(new)
        self._size += new.size

    def _make_room(self, new: _Waiting) -> None:
        """Replace the waiting list or options of the resource by `new`; drop the line of a call."""
        if new.text:
            return
        for at in range(len(self._waiting) - 1, -1, -1):
            old = self._waiting[at]
            if (old.resource, old.is_list) == (new.resource, new.is_list):
                del self._waiting[at]
                self._size -= old.size
                break
        self._put(new)

    def close(self) -> None:
        """Write the waiting lines and end the thread; wait for this at most 2 s."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_LAST_WAIT)
            if self.is_writing:
                _log.warning(
                    "%s: the end of the record is not written: the disk is too slow", self.path
                )

    # ------------------------------------------------------------ in the thread

    def _write_all(self) -> None:
        try:
            while self._take_turn():
                pass
        finally:
            self._file.close()

    def _take_turn(self) -> bool:
        """Write the waiting lines, or wait for lines; return False after the last turn."""
        with self._changed:
            if not self._waiting and not self._is_ending:
                self._changed.wait(_TRY_AGAIN if self._missing else None)
            waiting, self._waiting, self._size = self._waiting, deque(), 0
            lost, self._lost = self._lost, 0
            is_last = self._is_ending
        self._lose(lost)
        try:
            while waiting:
                new = waiting[0]
                self._write(new.time, self._difference_of(new), new.text)
                waiting.popleft()
            if self._missing:
                self._write(self.now(), b"", b"")
            self._report_state(None)
        except OSError as error:
            self._lose(len(waiting))
            for each in waiting:
                self._difference_of(each)
            # Lost lists are remembered, too: the next file begins with the present lists.
            self._report_state(error)
            with self._changed:
                self._changed.wait_for(lambda: self._is_ending, _TRY_AGAIN)
        return not is_last

    def _lose(self, lines: int) -> None:
        if lines:
            self._missing += lines
            self._on_lost(lines)

    def _report_state(self, error: OSError | None) -> None:
        if error is not None and not self._fails:
            _log.warning("%s: lines of the record are lost: %s", self.path, error.strerror)
        if error is None and self._fails:
            _log.info("%s: the record goes on", self.path)
        self._fails = error is not None

    def _write(self, time: float, text: bytes, call: bytes) -> None:
        """Write `text`; in a new file or after a gap: all options and lists, then `call`.

        Raises `OSError`.
        """
        if not text and not self._missing:
            return
        if not self._file.is_open or len(text) > self._room:
            self._file.begin()
            self._room = self._max_size
        is_new = self._file.size == 0
        beginning = head(time, redact_env=self._redact_env) if is_new else b""
        if self._missing:
            beginning += line({"time": stamp(time), "lost": self._missing})
        self._room -= len(call) if beginning else len(text)  # a list of any size fits
        if beginning:
            text = beginning + self._everything(time) + call
        self._file.write(text)
        self._missing = 0

    def _everything(self, time: float) -> bytes:
        """Return all options and lists as lines, so that a reader can begin here."""
        options = [
            line(call_parts(time, resource, OPTIONS, message=each))
            for resource, each in self._options.items()
        ]
        lists = [
            self._list_line(time, resource, None, each) for resource, each in self._lists.items()
        ]
        return b"".join(options + lists)

    def _difference_of(self, new: _Waiting) -> bytes:
        """Remember `new`; return its line, for a list the difference; empty if nothing changed."""
        if new.options is not None:
            if new.options == self._options.get(new.resource):
                return b""
            self._options[new.resource] = new.options
            parts = call_parts(new.time, new.resource, OPTIONS, message=new.options)
            return line(parts)
        if not new.is_list:
            return new.text
        old = self._lists.get(new.resource)
        entries = None if new.devices is None else entries_of(_message(new.devices))
        if entries == old:
            return b""
        self._lists[new.resource] = entries
        return self._list_line(new.time, new.resource, old, entries)

    def _list_line(
        self,
        time: float,
        resource: str,
        old: tuple[bytes, ...] | None,
        new: tuple[bytes, ...] | None,
    ) -> bytes:
        parts = {"gone": True} if new is None else list_json(old, new)
        return line(call_parts(time, resource, LIST, **parts))


def _message(devices: Given) -> bytes:
    if isinstance(devices, bytes):
        return devices
    return device_list_to_wire(
        device_to_wire(each, each.numa_nodes or ()) for each in devices.values()
    )
