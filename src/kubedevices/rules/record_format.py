"""The lines of a record, version 1: JSON about what a node and a plugin sent to each other.

docs/record.md describes the format. Only lines are written and read here; files are in
`record_file`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api import convert
from kubedevices.kubelet_api.message_json import Json, to_bytes, to_json
from kubedevices.kubelet_api.protobuf import Message, next_field

VERSION = 1
LIST, OPTIONS = "ListAndWatch", "GetDevicePluginOptions"
ALLOCATE, PREFER, PRE_START = "Allocate", "GetPreferredAllocation", "PreStartContainer"
_DEVICE = 1 << 3 | 2
"""The protobuf tag of a device in a list (field 1, length-delimited)."""
REDACTED = "REDACTED"
"""Replaces the values of variables if the first line of a file names `env` in `redacted`."""


class CallMessages(NamedTuple):
    """The messages of one call."""

    request: Message[Any]
    response: Message[Any]


CALLS: Mapping[str, CallMessages] = {
    ALLOCATE: CallMessages(convert.ALLOCATE_REQUEST, convert.ALLOCATE_RESPONSE),
    PREFER: CallMessages(convert.PREFERRED_REQUEST, convert.PREFERRED_RESPONSE),
    PRE_START: CallMessages(convert.PRE_START_REQUEST, convert.PRE_START_RESPONSE),
}
"""The calls for a container, with their messages."""


# ---------------------------------------------------------------- lines


def line(parts: Json) -> bytes:
    """Return one line; equal parts give equal bytes."""
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def head(time: float, *, redact_env: bool) -> bytes:
    """Return the first line of a file; `time` in seconds since 1970."""
    redacted = ["env"] if redact_env else []
    return line({"kubedevices-record": VERSION, "time": stamp(time), "redacted": redacted})


def stamp(time: float) -> str:
    """Return seconds since 1970 as UTC by RFC 3339, to the microsecond."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def seconds(text: Any) -> float:
    """Return the seconds since 1970 of a `stamp`; raises ValueError."""
    return datetime.fromisoformat(str(text)).timestamp()


def call_parts(
    time: float, resource: str, call: str, *, speaker: str = "plugin", **more: Any
) -> Json:
    """Return the parts of a line: time, sender, resource, call, and `more`."""
    return {"time": stamp(time), "from": speaker, "resource": resource, "call": call, **more}


def request_json(call: str, request: Any) -> Json:
    """Return a request of a kubelet as JSON."""
    how = CALLS[call]
    return to_json(how.request, how.request.to_wire(request))


def response_json(call: str, response: Any, *, redact_env: bool = False) -> Json:
    """Return an answer of a plugin as JSON."""
    how = CALLS[call]
    found = to_json(how.response, how.response.to_wire(response))
    if redact_env:
        for container in found.get("containerResponses", ()):
            if "envs" in container:
                container["envs"] = dict.fromkeys(container["envs"], REDACTED)
    return found


def error_json(error: Exception) -> Json:
    """Return the gRPC status that a kubelet gets for an error, as JSON."""
    if isinstance(error, RpcError):
        return {"code": error.code.name, "message": error.message}
    code = getattr(error, "code", StatusCode.UNKNOWN)
    name = code.name if isinstance(code, StatusCode) else StatusCode.UNKNOWN.name
    return {"code": name, "message": str(error) or type(error).__name__}


def error_of(given: Any) -> RpcError:
    """Return the error of an `error_json`; raises ValueError."""
    if not isinstance(given, dict) or given.get("code") not in StatusCode.__members__:
        raise ValueError("its error has no gRPC code")
    return RpcError(StatusCode[given["code"]], str(given.get("message", "")))


# ---------------------------------------------------------------- lists


def entries_of(message: bytes) -> tuple[bytes, ...]:
    """Return the fields of a ListAndWatchResponse, most of them devices, as bytes."""
    found, at = [], 0
    while at < len(message):
        after = next_field(message, at)[2]
        found.append(message[at:after])
        at = after
    return tuple(found)


def list_json(old: Sequence[bytes] | None, new: Sequence[bytes]) -> Json:
    """Return the parts of a line that turns the list `old` into `new`; `old` None: the whole list.

    The line has only the differences if devices keep their order and new devices are last.
    """
    if old is not None and (change := _change(old, new)) is not None:
        return {"change": change}
    return {"message": to_json(convert.DEVICE_LIST, b"".join(new))}


def _change(old: Sequence[bytes], new: Sequence[bytes]) -> Json | None:
    before, after = set(old), set(new)
    ids_before = {_id(each) for each in old if each not in after}
    came = [each for each in new if each not in before]
    ids_after = [_id(each) for each in came]
    removed = ids_before.difference(ids_after)
    # The reader must get exactly `new`: duplicate IDs and another order need the whole list.
    if _applied(old, came, removed) != tuple(new):
        return None
    return {
        "devices": [],
        **to_json(convert.DEVICE_LIST, b"".join(came)),
        "removed": sorted(removed),
    }


def apply_list(old: Sequence[bytes], parts: Json) -> tuple[bytes, ...]:
    """Return the list after a line that `list_json` wrote; raises ValueError for other lines."""
    if "message" in parts:
        return entries_of(to_bytes(convert.DEVICE_LIST, parts["message"]))
    change = parts.get("change")
    came = entries_of(to_bytes(convert.DEVICE_LIST, change))
    removed = change.get("removed", [])  # type: ignore[union-attr]  # to_bytes took it
    if not isinstance(removed, list) or not all(isinstance(each, str) for each in removed):
        raise ValueError("removed: it is not a list of IDs")
    return _applied(old, came, set(removed))


def _applied(old: Sequence[bytes], came: Sequence[bytes], removed: "set[str]") -> tuple[bytes, ...]:
    by_id = {_id(each): each for each in came}
    kept: list[bytes] = []
    for each in old:
        name = _id(each)
        if name not in removed:
            kept.append(by_id.pop(name, each))
    return (*kept, *by_id.values())


@lru_cache(maxsize=2**14)
def _id(entry: bytes) -> str:
    tag, content, _ = next_field(entry, 0)
    return convert.DEVICE.value(content).id if isinstance(content, bytes) and tag == _DEVICE else ""
