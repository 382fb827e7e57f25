"""Reads JSON that another process or a stranger may have written. Pure.

`json.loads` raises `RecursionError` at a depth that depends on the version of Python and on the
stack of the caller, and code that walks a deep value raises it too. A short text can also take much
memory: an empty list needs 3 bytes of text and 64 bytes of memory. So this module checks size,
depth and number of values first, and every fault of a text is one error, `NotJson`.
"""

import json
import re
from typing import Any

from kubedevices.config.documents.nesting import is_deeper
from kubedevices.errors import NotJson

DEPTH_LIMIT = 100
VALUE_LIMIT = 2_000_000
"""Lists, objects and their members. A million empty objects take 70 MB."""

# The last quote is optional: a text that is cut off is searched once, not once for each quote.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PAIR_OR_OTHER = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|(?P<alone>u[dD][89a-fA-F])|.)", re.DOTALL
)


def read_json(
    text: bytes | str,
    *,
    limit: int,
    values: int = VALUE_LIMIT,
    any_surrogate: bool = False,
    **hooks: Any,
) -> Any:
    """Return the value of a JSON text (RFC 8259) of at most `limit` bytes; raises `NotJson`.

    Bytes must be UTF-8; a byte order mark is skipped. NaN and Infinity are not JSON. Half of a
    surrogate pair is refused too, because nothing can print or store it, unless `any_surrogate`.
    `hooks` are `object_pairs_hook`, `parse_int` and `parse_float` of `json.loads`.
    """
    _check(text, limit, values, any_surrogate=any_surrogate)
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse_constant, **hooks)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def read_json_stream(text: str, *, limit: int) -> list[Any]:
    """Return the JSON values that follow each other in `text`, which may be none.

    White space between two values is optional. The limits of `read_json` apply to the whole text.
    """
    _check(text, limit, VALUE_LIMIT, any_surrogate=False)
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    found: list[Any] = []
    start = _end_of_space(text, 0)
    try:
        while start < len(text):
            value, end = decoder.raw_decode(text, start)
            found.append(value)
            start = _end_of_space(text, end)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None
    return found


def read_json_object(text: bytes | str, *, limit: int) -> dict[str, Any]:
    """Return the value of a JSON text as `read_json` does; it must be an object."""
    found = read_json(text, limit=limit)
    if not isinstance(found, dict):
        raise NotJson("it is not a JSON object")
    return found


def _check(text: bytes | str, limit: int, values: int, *, any_surrogate: bool) -> None:
    data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    if len(data) > limit:
        raise NotJson(f"it has more than {limit} bytes", is_beyond_limits=True)
    _check_shape(data, values)
    if not any_surrogate and _has_half_pair(data):
        raise NotJson("it has half of a surrogate pair")


def _end_of_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _check_shape(data: bytes, values: int) -> None:
    """Raise `NotJson` for a text that is too deep or has too many values."""
    brackets = data.count(b"[") + data.count(b"{")
    if brackets <= DEPTH_LIMIT and data.count(b",") + brackets < values:
        return
    bare = _STRING.sub(b"", data)
    if is_deeper(bare, DEPTH_LIMIT):
        raise NotJson(f"it is nested more than {DEPTH_LIMIT} levels deep", is_beyond_limits=True)
    if sum(map(bare.count, (b",", b"[", b"{"))) >= values:
        raise NotJson(f"it has more than {values} values", is_beyond_limits=True)


def _has_half_pair(data: bytes) -> bool:
    if not _SURROGATE.search(data):
        return False
    return any(found["alone"] for found in _PAIR_OR_OTHER.finditer(data))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a value of JSON")
