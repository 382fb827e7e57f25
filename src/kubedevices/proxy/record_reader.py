"""Reads the files of a record: the lists of each resource with their times, and the answers.

docs/record.md describes the format. A line that is damaged, or incomplete because the recording
process ended, is reported and ignored; all other lines count.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import (
    CannotRead,
    KubedevicesError,
    NotJson,
    RpcError,
    StatusCode,
    os_errors_as,
)
from kubedevices.errors.words import counted, some_of
from kubedevices.host import untrusted_files
from kubedevices.kubelet_api import convert, message_json
from kubedevices.rules.record_format import (
    ALLOCATE,
    CALLS,
    LIST,
    OPTIONS,
    PRE_START,
    PREFER,
    VERSION,
    apply_list,
    error_of,
    seconds,
)
from kubedevices.values.allocation import PluginOptions
from kubedevices.values.resource_name import explain_resource_name

_LINE_LIMIT = 64 * 2**20
"""Bytes: more than any list that a kubelet accepts."""
_LISTED_PROBLEMS = 5
"""How many damaged lines are reported one by one."""
_NO_OPTIONS = PluginOptions()
_VERSION_KEY = "kubedevices-record"


class Change(NamedTuple):
    """A new list at a time, as the entries of a ListAndWatchResponse.

    `entries` is None if the plugin did not serve the resource from then on.
    """

    time: float
    entries: tuple[bytes, ...] | None


class Answer(NamedTuple):
    """The answer or the error of a call, and after how many seconds it came."""

    took: float
    response: Any = None
    error: RpcError | None = None


@dataclass
class RecordedResource:
    """The record of one resource."""

    name: str
    options: PluginOptions = _NO_OPTIONS
    changes: list[Change] = field(default_factory=list)
    answers: dict[tuple[str, Any], list[Answer]] = field(default_factory=dict)
    """By call and key, see `key_of`; in the order of the requests."""

    def recorded_requests(self, call: str) -> str:
        """Return the recorded requests of a call as text, for messages."""
        found = [key_text(call, key) for name, key in self.answers if name == call]
        return some_of(found) if found else "nothing"


@dataclass
class ReadRecord:
    """The content of all files of a record; `problems` are texts for people."""

    resources: dict[str, RecordedResource]
    problems: list[str]
    is_redacted: bool


def read_recording(files: Iterable[Path]) -> ReadRecord:
    """Read all `files`, in any order; raises `CannotRead` for one that is not a record."""
    reading = _RecordReader()
    for file in files:
        reading.read(file)
    return reading.finish()


def key_of(call: str, request: Any) -> Any:
    """Return the key of a request: its IDs by container, sorted. Equal requests have equal keys."""
    if call == PRE_START:
        return (tuple(sorted(request.device_ids)),)
    if call == ALLOCATE:
        return tuple(tuple(sorted(each.device_ids)) for each in request.containers)
    return tuple(
        (tuple(sorted(each.available)), tuple(sorted(each.must_include)), each.size)
        for each in request.containers
    )


def key_text(call: str, key: Any) -> str:
    """Return the key of a request as text, for messages."""
    if call == PREFER:
        return " | ".join(
            f"{size} of {','.join(available)}" + (f" with {','.join(must)}" if must else "")
            for available, must, size in key
        )
    return " | ".join(",".join(ids) for ids in key)


class _Line(NamedTuple):
    time: float
    place: str
    parts: dict[str, Any]


class _Damaged(ValueError):
    """A line that cannot be used."""


class _RecordReader:
    """Collects the lines of several files, then puts them in order."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._problems: list[str] = []
        self._is_redacted = False

    def read(self, file: Path) -> None:
        """Read one file; raises `CannotRead`."""
        with os_errors_as(CannotRead, file):
            descriptor = untrusted_files.open_regular(file, follow_links=True)
            with os.fdopen(descriptor, "rb") as stream:
                self._take_head(file, stream.readline(_LINE_LIMIT))
                rest = iter(partial(stream.readline, _LINE_LIMIT), b"")
                for number, text in enumerate(rest, 2):
                    self._take(f"{file}:{number}", text)

    def _take_head(self, file: Path, text: bytes) -> None:
        try:
            found = _parsed(text)
            version = found[_VERSION_KEY]
        except (_Damaged, KeyError):
            raise CannotRead(
                str(file), "its first line is not the header of a record of kubedevices"
            ) from None
        if version != VERSION:
            reason = f"it is a record of version {version!r:.20}, but this program reads {VERSION}"
            raise CannotRead(str(file), reason)
        self._is_redacted |= "env" in (found.get("redacted") or ())

    def _take(self, place: str, text: bytes) -> None:
        try:
            parts = _parsed(text)
            time = seconds(parts.get("time"))
        except ValueError as error:
            self._problems.append(f"{place}: {error}: ignored")
            return
        lost = parts.get("lost")
        if isinstance(lost, int):
            self._problems.append(f"{place}: {counted(lost, 'line')} could not be written here")
            return
        self._lines.append(_Line(time, place, parts))

    def finish(self) -> ReadRecord:
        """Return the content of all lines, in the order of their times."""
        resources: dict[str, RecordedResource] = {}
        waiting: dict[tuple[str, str, Any], tuple[float, Any]] = {}
        for line in sorted(self._lines, key=lambda each: each.time):
            try:
                _add_line(line, resources, waiting)
            except (ValueError, KeyError, TypeError, KubedevicesError) as error:
                self._problems.append(f"{line.place}: {error}: ignored")
        # The plugin never answered these requests: a replay answers them with an error that says
        # so.
        for (name, call, _), (_, key) in waiting.items():
            silence = RpcError(
                StatusCode.DEADLINE_EXCEEDED,
                f"{name}: the record has no answer to {call} of {key_text(call, key)}: "
                "the plugin never answered",
            )
            resources[name].answers.setdefault((call, key), [Answer(0.0, error=silence)])
        more = len(self._problems) - _LISTED_PROBLEMS
        problems = self._problems[:_LISTED_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        return ReadRecord(resources, problems, self._is_redacted)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = read_json(text, limit=_LINE_LIMIT)
    except NotJson:
        what = "it is damaged" if text.endswith(b"\n") else "it is cut off"
        raise _Damaged(what) from None
    if not isinstance(found, dict):
        raise _Damaged("it is not an object")
    return found


def _add_line(
    line: _Line,
    resources: dict[str, RecordedResource],
    waiting: dict[tuple[str, str, Any], tuple[float, Any]],
) -> None:
    """Add one line to `resources`, or to `waiting` if it is a request.

    Raises `ValueError`, `KeyError`, `TypeError` or `KubedevicesError` for a damaged line.
    """
    parts = line.parts
    name, call = str(parts["resource"]), str(parts["call"])
    if problem := explain_resource_name(name):
        raise _Damaged(f"{name!r:.80} is not a resource: {problem}")
    found = resources.setdefault(name, RecordedResource(name))
    if call == LIST:
        before = found.changes[-1].entries if found.changes else None
        entries = None if parts.get("gone") else apply_list(before or (), parts)
        if not found.changes or entries != before:
            found.changes.append(Change(line.time, entries))
    elif call == OPTIONS:
        message = message_json.to_bytes(convert.OPTIONS, parts["message"])
        found.options = convert.OPTIONS.from_wire(message)
    elif call in CALLS:
        how = CALLS[call]
        which = (name, call, parts["id"])
        if "hungUp" in parts:
            return  # the kubelet cancelled the call: what the plugin would have said is unknown
        if parts.get("from") == "kubelet":
            message = message_json.to_bytes(how.request, parts["message"])
            waiting[which] = line.time, key_of(call, how.request.from_wire(message))
            return
        asked, key = waiting.pop(which)
        took = max(0.0, line.time - asked)
        if "error" in parts:
            answer = Answer(took, error=error_of(parts["error"]))
        else:
            message = message_json.to_bytes(how.response, parts["message"])
            answer = Answer(took, how.response.from_wire(message))
        found.answers.setdefault((call, key), []).append(answer)
    # Calls of a later version are ignored.
