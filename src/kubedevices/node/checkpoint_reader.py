"""The JSON of a kubelet's checkpoint into values, by the rules of the kubelet's own reader.

For `checkpoint`. Field names match in any case, unknown fields are skipped, null leaves a text or
number as it is and makes a list or mapping nil, of two fields with one name the later counts.
Mistakes are reported in that reader's words, because that is what a kubelet logs.
"""

import base64
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kubedevices.node.checkpoint_checksum import V1_NUMA_NODE
from kubedevices.node.json_syntax import explain

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_UNSIGNED = re.compile(r"[0-9]{1,20}")
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})?"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FOLDED = str.maketrans({"\u017f": "s", "\u212a": "k"})

Value = TypeVar("Value")
Ids = tuple[str, ...] | None


class CheckpointEntry(NamedTuple):
    """One container's devices of one resource, as stored; the response is left as bytes.

    None is a null of the file, which is not the same as empty: the checksum knows the difference.
    """

    pod_uid: str = ""
    container: str = ""
    resource: str = ""
    device_ids: dict[int, Ids] | None = None
    response: bytes | None = None


class Content(NamedTuple):
    """What a file says, whether or not its checksum is right."""

    entries: tuple[CheckpointEntry, ...] | None = None
    registered: dict[str, Ids] | None = None
    checksum: int = 0
    boot_id: str | None = None
    is_v1: bool = False


class ReadError(Exception):
    """The text is no JSON, or no checkpoint; the message is the reader's."""


class _Number(NamedTuple):
    text: str


class _Object(list[tuple[str, Any]]):
    """The fields of a JSON object in their order, equal names included."""


def read(data: bytes, *, allow_v1: bool) -> Content:
    """Return the content of a checkpoint; raises `ReadError` and nothing else."""
    document = _document(data)
    reader = _Reader(allow_v1=allow_v1)
    fields: dict[str, Any] = {}
    if isinstance(document, _Object):
        for name, value in document:
            reader.top_level(fields, _field(name, "Data", "Checksum", "BootID"), value)
    elif document is not None:
        reader.wrong(document, (), "checkpoint.Data")
    if reader.problem:
        raise ReadError(reader.problem)
    return Content(**fields, is_v1=reader.lists > 0)


def _document(data: bytes) -> Any:
    """Parse JSON keeping numbers as text; broken UTF-8 becomes replacement characters."""
    try:
        return json.loads(
            data.decode(errors="surrogateescape"),
            object_pairs_hook=_Object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        raise ReadError(explain(data) or "exceeded max depth") from None


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _text(raw: str) -> str:
    return _SURROGATE.sub("\ufffd", raw)


def _field(name: str, *known: str) -> str:
    """Return the field that `name` means, an empty string for none of the known."""
    if name in known:
        return name
    folded = name.lower().translate(_FOLDED)
    return next((each for each in known if each.lower() == folded), "")


class _Reader:
    """Turns JSON values into ours and remembers the first that does not fit; it never stops."""

    def __init__(self, *, allow_v1: bool) -> None:
        self._allow_v1 = allow_v1
        self.problem = ""
        self.lists = 0
        self._mappings = 0

    def wrong(self, value: Any, path: tuple[object, ...], wanted: str, detail: str = "") -> None:
        where = f"struct field Data.{'.'.join(map(str, path))}" if path else "value"
        self._fail(
            f"json: cannot unmarshal {_kind(value)}{detail} into Go {where} of type {wanted}"
        )

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem

    def top_level(self, fields: dict[str, Any], field: str, value: Any) -> None:
        if field == "Checksum":
            fields["checksum"] = self._unsigned(value, fields.get("checksum", 0))
        elif field == "BootID" and isinstance(value, str):
            fields["boot_id"] = _text(value)
        elif field == "Data" and isinstance(value, _Object):
            for name, inner in value:
                known = _field(name, "PodDeviceEntries", "RegisteredDevices")
                path = ("Data", known)
                if known == "PodDeviceEntries":
                    fields["entries"] = self._list(
                        inner, path, "[]checkpoint.PodDevicesEntry", self._entry
                    )
                elif known:
                    fields["registered"] = self._mapping(
                        inner, path, "map[string][]string", fields.get("registered"), str
                    )
        elif field == "Data" and value is not None:
            self.wrong(value, ("Data",), "checkpoint.checkpointData")

    def _entry(self, value: Any, path: tuple[object, ...]) -> CheckpointEntry:
        if not isinstance(value, _Object):
            if value is not None:
                self.wrong(value, path, "checkpoint.PodDevicesEntry")
            return CheckpointEntry()
        found: dict[str, Any] = {}
        texts = {"PodUID": "pod_uid", "ContainerName": "container", "ResourceName": "resource"}
        for name, inner in value:
            field = _field(name, *texts, "DeviceIDs", "AllocResp")
            here = (*path, field)
            if field in texts:
                found[texts[field]] = self._string(inner, here, found.get(texts[field], ""))
            elif field == "DeviceIDs":
                found["device_ids"] = self._device_ids(inner, here, found.get("device_ids"))
            elif field == "AllocResp":
                found["response"] = self._bytes(inner, here)
        return CheckpointEntry(**found)

    def _device_ids(
        self, value: Any, path: tuple[object, ...], before: dict[int, Ids] | None
    ) -> dict[int, Ids] | None:
        if isinstance(value, list) and not isinstance(value, _Object) and self._allow_v1:
            self.lists += 1
            if self._mappings:
                self.wrong(value, path, "checkpoint.DevicesPerNUMA")
            return {V1_NUMA_NODE: self._list(value, path, "[]string", self._element)}
        if isinstance(value, _Object):
            self._mappings += 1
            if self.lists:
                self.wrong(value, path, "[]string")
        return self._mapping(value, path, "checkpoint.DevicesPerNUMA", before, self._node)

    # ------------------------------------------------------------ values

    def _list(
        self,
        value: Any,
        path: tuple[object, ...],
        wanted: str,
        element: Callable[[Any, tuple[object, ...]], Value],
    ) -> tuple[Value, ...] | None:
        if isinstance(value, list) and not isinstance(value, _Object):
            return tuple(element(each, (*path, index)) for index, each in enumerate(value))
        if value is not None:
            self.wrong(value, path, wanted)
        return None

    def _mapping(
        self,
        value: Any,
        path: tuple[object, ...],
        wanted: str,
        before: dict[Any, Ids] | None,
        key: Callable[[str], Any],
    ) -> dict[Any, Ids] | None:
        if not isinstance(value, _Object):
            if value is not None:
                self.wrong(value, path, wanted)
            return None
        found = dict(before or {})
        for name, inner in value:
            text = _text(name)
            ids = self._list(inner, (*path, text), "[]string", self._element)
            try:
                found[key(text)] = ids
            except ValueError:
                self.wrong(_Number(""), (*path, text), "int64", f" {text}")
        return found

    @staticmethod
    def _node(text: str) -> int:
        if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
            raise ValueError(text)
        return int(text)

    def _element(self, value: Any, path: tuple[object, ...]) -> str:
        return self._string(value, path, "")

    def _string(self, value: Any, path: tuple[object, ...], before: str) -> str:
        if isinstance(value, str):
            return _text(value)
        if value is not None:
            self.wrong(value, path, "string")
        return before

    def _bytes(self, value: Any, path: tuple[object, ...]) -> bytes | None:
        if isinstance(value, str):
            encoded = value.replace("\r", "").replace("\n", "")
            if not _BASE64.fullmatch(encoded):
                bad = re.search(r"[^A-Za-z0-9+/\r\n]", value)
                self._fail(
                    f"illegal base64 data at input byte {bad.start() if bad else len(value)}"
                )
                return None
            return base64.b64decode(encoded)
        numbers = self._list(value, path, "[]uint8", self._byte)
        return None if numbers is None else bytes(numbers)

    def _byte(self, value: Any, path: tuple[object, ...]) -> int:
        if isinstance(value, _Number) and _UNSIGNED.fullmatch(value.text):
            number = int(value.text)
            if number < 256:
                return number
        if value is not None:
            detail = f" {value.text}" if isinstance(value, _Number) else ""
            self.wrong(value, path, "uint8", detail)
        return 0

    def _unsigned(self, value: Any, before: int) -> int:
        if isinstance(value, _Number) and _UNSIGNED.fullmatch(value.text):
            number = int(value.text)
            if number < 2**64:
                return number
        if value is None:
            return before
        detail = f" {value.text}" if isinstance(value, _Number) else ""
        self.wrong(value, ("Checksum",), "checksum.Checksum", detail)
        return before


def _kind(value: Any) -> str:
    if isinstance(value, _Object):
        return "object"
    if isinstance(value, _Number):
        return "number"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "array"
