"""Writes a record: a thread that nobody waits for, whatever the disk does.

What is to be written waits in a queue that has a bound. What finds no place in it, and what the
disk refuses, is counted and told, and the record says how many lines it lacks. Every file, and
what follows a gap, begins with the options and the list of each resource, so it can be read alone.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kubedevices.device import Device
from kubedevices.errors import UsageError
from kubedevices.host.rotated_file import RotatedFile
from kubedevices.kubelet_api.convert import device_list_to_wire, device_to_wire
from kubedevices.middleware.record_format import (
    LIST,
    OPTIONS,
    entries_of,
    head,
    line,
    list_json,
    said,
    stamp,
)

MIB = 2**20
MOST_WAITING = 4 * MIB
"""Bytes that wait for the disk."""
_A_DEVICE = 64
"""Bytes that stand for a device in a list that waits."""
_LAST_WAIT = 2.0
"""Seconds that the end of a record waits for the disk."""
_TRY_AGAIN = 1.0
"""Seconds between two attempts at a disk that refuses."""

Given: TypeAlias = bytes | Mapping[str, Device]
"""A list as its plugin sent it, or the devices of a scanner."""

_log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """A line as it is; or options or a list, which the begin of the next file will repeat."""

    time: float
    text: bytes = b""
    resource: str = ""
    options: dict[str, Any] | None = None
    devices: Given | None = None
    is_list: bool = False

    @property
    def size(self) -> int:
        if self.devices is None or isinstance(self.devices, bytes):
            return len(self.text) + len(self.devices or b"") + _A_DEVICE
        return _A_DEVICE * len(self.devices)


class RecordFile:
    """A record in `path` and in older files beside it, `files` together of `max_size` bytes each.

    A list that is larger than that still fits. `on_lost` hears how many lines are lost, from any
    thread. Raises `UsageError`.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_size: int = 10 * MIB,
        files: int = 5,
        redact_env: bool = False,
        on_lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        if max_size < 1 or files < 1:
            raise UsageError("a record needs at least one file of at least one byte")
        self._file, self._max_size = RotatedFile(path, files=files), max_size
        self.path = self._file.path
        self._redact_env, self._on_lost = redact_env, on_lost
        # One clock for all lines: the wall's at the start, and from there one that never jumps.
        self._offset = time.time() - time.monotonic()

        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._size = self._lost = 0
        self._is_ending = False
        self._thread: threading.Thread | None = None

        # Only for the thread: what the reader of the file knows so far, and whether it lacks lines.
        self._options: dict[str, dict[str, Any]] = {}
        self._lists: dict[str, tuple[bytes, ...] | None] = {}
        self._missing = 0
        self._fails = False
        self._room = 0

    @property
    def is_writing(self) -> bool:
        """Whether something may still be written."""
        return self._thread is not None and self._thread.is_alive()

    def now(self) -> float:
        """Return the time of a line that is written now, in seconds since 1970."""
        return self._offset + time.monotonic()

    # ------------------------------------------------------------ from any thread, at once

    def start(self) -> None:
        """Begin to write."""
        name = f"record {self.path.name}"
        self._thread = threading.Thread(target=self._write_all, name=name, daemon=True)
        self._thread.start()

    def add(self, parts: dict[str, Any]) -> None:
        """Write a line that `said` began."""
        self._add(_Waiting(self.now(), text=line(parts)))

    def add_options(self, resource: str, options: dict[str, Any]) -> None:
        """Write what GetDevicePluginOptions says."""
        self._add(_Waiting(self.now(), resource=resource, options=options))

    def add_list(self, resource: str, devices: Given | None) -> None:
        """Write a list, or what differs from the last; None: the resource is no longer served.

        A mapping must not change afterwards.
        """
        self._add(_Waiting(self.now(), resource=resource, devices=devices, is_list=True))

    def _add(self, new: _Waiting) -> None:
        with self._changed:
            # A list that is larger than the bound is taken when nothing else waits.
            if self._size + new.size <= MOST_WAITING or not self._waiting:
                is_first = False
                self._put(new)
            else:
                is_first = not self._lost
                # `_lost`: since the last turn of the thread. `_missing`: not yet told in the
                # record.
                self._lost += 1
                self._make_room(new)
            self._changed.notify()
        # Outside the lock: the log may block, as the disk does.
        if is_first:
            _log.warning("%s: the disk is too slow: lines of the record are lost", self.path)

    def _put(self, new: _Waiting) -> None:
        self._waiting.append(new)
        self._size += new.size

    def _make_room(self, new: _Waiting) -> None:
        """Let the newest list replace the one that waits; a call is dropped."""
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
        """Write what waits and end; waits for the disk, but no longer than 2 s."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_LAST_WAIT)
            if self.is_writing:
                _log.warning("%s: the end of the record is not written yet: leaving it", self.path)

    # ------------------------------------------------------------ in the thread

    def _write_all(self) -> None:
        try:
            while self._take_turn():
                pass
        finally:
            self._file.close()

    def _take_turn(self) -> bool:
        """Write what waits, or wait for it; return False for the last time."""
        with self._changed:
            if not self._waiting and not self._is_ending:
                self._changed.wait(_TRY_AGAIN if self._missing else None)
            waiting, self._waiting, self._size = self._waiting, deque(), 0
            lost, self._lost = self._lost, 0
            is_last = self._is_ending
        self._lose(lost)
        new = None
        try:
            while waiting:
                new = waiting.popleft()
                self._write(new.time, self._learn(new), new.text)
                new = None
            if self._missing:
                self._write(self.now(), b"", b"")
            self._tell(None)
        except OSError as error:
            self._lose(len(waiting) + (new is not None))
            for each in waiting:
                self._learn(each)
            # What was lost is learned all the same: the next file begins with the lists as they are
            # now.
            self._tell(error)
            with self._changed:
                self._changed.wait_for(lambda: self._is_ending, _TRY_AGAIN)
        return not is_last

    def _lose(self, lines: int) -> None:
        if lines:
            self._missing += lines
            self._on_lost(lines)

    def _tell(self, error: OSError | None) -> None:
        if error is not None and not self._fails:
            _log.warning("%s: lines of the record are lost: %s", self.path, error.strerror)
        if error is None and self._fails:
            _log.info("%s: the record goes on", self.path)
        self._fails = error is not None

    def _write(self, time: float, text: bytes, call: bytes) -> None:
        """Write `text`, or all that is known and the line of a call; raises `OSError`."""
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
        """Return the lines from which a reader can begin: all options and all lists."""
        options = [
            line(said(time, resource, OPTIONS, message=each))
            for resource, each in self._options.items()
        ]
        lists = [
            self._list_line(time, resource, None, each) for resource, each in self._lists.items()
        ]
        return b"".join(options + lists)

    def _learn(self, new: _Waiting) -> bytes:
        """Return the line for `new`, as a difference to before; empty if nothing changed."""
        if new.options is not None:
            if new.options == self._options.get(new.resource):
                return b""
            self._options[new.resource] = new.options
            parts = said(new.time, new.resource, OPTIONS, message=new.options)
            return line(parts)
        if not new.is_list:
            return new.text
        old = self._lists.get(new.resource)
        entries = None if new.devices is None else entries_of(_message(new.devices))
        if new.resource in self._lists and entries == old:
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
        return line(said(time, resource, LIST, **parts))


def _message(devices: Given) -> bytes:
    if isinstance(devices, bytes):
        return devices
    return device_list_to_wire(
        device_to_wire(each, each.numa_nodes or ()) for each in devices.values()
    )
