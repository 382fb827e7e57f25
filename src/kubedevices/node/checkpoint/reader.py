"""Reads the JSON of a kubelet's checkpoint by the rules of the kubelet's reader.

These are the rules of Go's JSON reader: field names match in any case; unknown fields are skipped;
null leaves a text or number unchanged and makes a list or mapping nil; if a field occurs twice, the
later field counts. The checksum covers the values, so these rules decide which files are valid.
"""

import base64
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import NotJson
from kubedevices.node.checkpoint.checksum import V1_NUMA_NODE

# At most 30 digits: int() is slow for very long texts, and 64 bits have 20 digits.
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
# Broken UTF-8 is read as lone surrogates; Go puts U+FFFD there, also for broken escapes.
_SURROGATE = re.compile("[\ud800-\udfff]")
# Go compares field names by Unicode folding: the long s and the Kelvin sign match ASCII letters.
_FOLDED = str.maketrans({"\u017f": "s", "\u212a": "k"})
_INT64, _UINT64, _BYTE = range(-(2**63), 2**63), range(2**64), range(256)

_SIZE_LIMIT = 2**28  # bytes; `file.read_bytes` reads less

Value = TypeVar("Value")
Key = TypeVar("Key")
Ids = tuple[str, ...] | None


class CheckpointEntry(NamedTuple):
    """The devices of one resource that one container holds; the response stays bytes.

    None stands for null, which differs from an empty value in the checksum.
    """

    pod_uid: str = ""
    container: str = ""
    resource: str = ""
    device_ids: dict[int, Ids] | None = None
    response: bytes | None = None


class Content(NamedTuple):
    """The content of a file. Its checksum may be wrong."""

    entries: tuple[CheckpointEntry, ...] | None = None
    registered: dict[str, Ids] | None = None
    checksum: int = 0
    boot_id: str | None = None
    is_v1: bool = False


class ReadError(Exception):
    """The text is not JSON or not a checkpoint. The message names the place and the reason."""


class _Number(NamedTuple):
    text: str


class _Object(list[tuple[str, Any]]):
    """The fields of a JSON object in their order; a name may occur several times."""


def read(data: bytes) -> Content:
    """Return the content of a checkpoint; raises `ReadError` and nothing else."""
    content: dict[str, Any] = {}
    forms: set[bool] = set()

    def entry(value: Any, place: str) -> CheckpointEntry:
        return _entry(value, place, forms)

    for name, value in _fields(_document(data), "the file"):
        field = _known(name, "Data", "Checksum", "BootID")
        if field == "Checksum" and value is not None:
            content["checksum"] = _integer(value, field, _UINT64)
        elif field == "BootID" and isinstance(value, str):
            content["boot_id"] = _text(value, field)
        for inner, listed in _fields(value, field) if field == "Data" else ():
            known = _known(inner, "PodDeviceEntries", "RegisteredDevices")
            if known == "PodDeviceEntries":
                content["entries"] = _list(listed, known, entry)
            elif known:
                content["registered"] = _mapping(listed, known, _text, content.get("registered"))
    if len(forms) > 1:
        raise ReadError(
            "DeviceIDs: some entries have a list, as before Kubernetes 1.20, and others a mapping"
        )
    return Content(**content, is_v1=True in forms)


def _document(data: bytes) -> Any:
    """Parse JSON keeping numbers as text; broken UTF-8 becomes replacement characters."""
    try:
        return read_json(
            data.decode(errors="surrogateescape"),
            limit=_SIZE_LIMIT,
            any_surrogate=True,
            object_pairs_hook=_Object,
            parse_int=_Number,
            parse_float=_Number,
        )
    except NotJson as error:
        raise ReadError(f"it is not JSON: {error}") from None


def _entry(value: Any, place: str, forms: set[bool]) -> CheckpointEntry:
    found: dict[str, Any] = {}
    texts = {"PodUID": "pod_uid", "ContainerName": "container", "ResourceName": "resource"}
    for name, inner in _fields(value, place):
        field = _known(name, *texts, "DeviceIDs", "AllocResp")
        here = f"{place}.{field}"
        if field in texts and inner is not None:
            found[texts[field]] = _text(inner, here)
        elif field == "AllocResp":
            found["response"] = _bytes(inner, here)
        elif field == "DeviceIDs":
            forms.update({_is_list(inner)} if inner is not None else ())
            found["device_ids"] = (
                {V1_NUMA_NODE: _list(inner, here, _element)}
                if _is_list(inner)
                else _mapping(inner, here, _node, found.get("device_ids"))
            )
    return CheckpointEntry(**found)


# ---------------------------------------------------------------- values


def _fields(value: Any, place: str) -> Iterable[tuple[str, Any]]:
    return () if value is None else _expect(value, place, "an object", isinstance(value, _Object))


def _known(name: str, *known: str) -> str:
    """Return the known field with this `name`, an empty string for an unknown name."""
    folded = name.lower().translate(_FOLDED)
    return next((each for each in known if each.lower() == folded), "")


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and not isinstance(value, _Object)


def _list(value: Any, place: str, element: Callable[[Any, str], Value]) -> tuple[Value, ...] | None:
    if value is None:
        return None
    _expect(value, place, "a list", _is_list(value))
    return tuple(element(each, f"{place}.{index}") for index, each in enumerate(value))


def _mapping(
    value: Any, place: str, key: Callable[[str, str], Key], before: dict[Key, Ids] | None
) -> dict[Key, Ids] | None:
    if value is None:
        return None
    found = dict(before or {})
    for name, inner in _fields(value, place):
        here = f"{place}.{_text(name, place)}"
        found[key(name, here)] = _list(inner, here, _element)
    return found


def _element(value: Any, place: str) -> str:
    return "" if value is None else _text(value, place)


def _text(value: Any, place: str) -> str:
    return _SURROGATE.sub("\ufffd", _expect(value, place, "a text", isinstance(value, str)))


def _node(name: str, place: str) -> int:
    return _integer(_Number(name), place, _INT64)


def _integer(value: Any, place: str, allowed: range) -> int:
    fits = isinstance(value, _Number) and _INTEGER.fullmatch(value.text) is not None
    number = int(_expect(value, place, "an integer", fits).text)
    if number not in allowed:
        raise ReadError(f"{place}: {number} is not from {allowed[0]} to {allowed[-1]}")
    return number


def _bytes(value: Any, place: str) -> bytes | None:
    if not isinstance(value, str):
        numbers = _list(value, place, lambda each, here: each and _integer(each, here, _BYTE))
        return None if numbers is None else bytes(number or 0 for number in numbers)
    try:
        return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
    except ValueError as error:
        raise ReadError(f"{place}: it is not base64: {error}") from None


def _expect(value: Any, place: str, wanted: str, fits: bool) -> Any:
    if fits:
        return value
    raise ReadError(f"{place}: {wanted} is expected, not {_kind(value)}")


def _kind(value: Any) -> str:
    if isinstance(value, _Object):
        return "an object"
    if isinstance(value, _Number):
        return f"the number {value.text:.40}"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else "a text" if isinstance(value, str) else "a list"
