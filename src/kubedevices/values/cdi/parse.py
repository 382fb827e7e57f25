"""Converts the data of a JSON or YAML file to a `CdiSpec`, with the JSON pointer of each error.

As strict as CDI's reference library: with one unknown key the whole file is invalid for all
runtimes. `cdi.validity` checks the values. `host.cdi_specs` reads files.
"""

import json
from typing import Any

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import CdiProblem, InvalidCdiSpec, NotJson
from kubedevices.errors.words import did_you_mean
from kubedevices.values.cdi.values import CdiSpec, JsonField, JsonType, json_fields, to_dict

SIZE_LIMIT = 2**24
"""Bytes of a CDI file. Ours has 4 MB for 20,000 devices."""

_UINT32 = 2**32
_INT64 = 2**63
_DROPPED = {"enableCMT", "enableMBM"}
_ITEMS = {JsonType.TEXTS: JsonType.TEXT, JsonType.UNSIGNED_LIST: JsonType.UNSIGNED}
_EMPTY: dict[JsonType, Any] = {
    JsonType.TEXT: "",
    JsonType.FLAG: False,
    JsonType.TEXTS: (),
    JsonType.TEXT_MAP: (),
    JsonType.OBJECTS: (),
    JsonType.UNSIGNED_LIST: (),
}


def from_dict(data: Any, *, file: str = "", strict: bool = True) -> CdiSpec:
    """Return the value; raises `InvalidCdiSpec` with all wrong types and unknown keys.

    `strict=False` ignores unknown keys, to show the content of a file of a newer version.
    """
    reader = _SpecReader(strict)
    spec = reader.value(CdiSpec, data, "")
    if reader.problems:
        raise InvalidCdiSpec(file, reader.problems)
    return spec  # type: ignore[no-any-return]  # the class was given above


def from_json(text: str, *, file: str = "") -> CdiSpec:
    """Return the value of a JSON text; raises `InvalidCdiSpec`."""
    return from_dict(load_json(text, file=file), file=file)


def load_json(text: str, *, file: str = "") -> Any:
    """Return the data of a JSON text; a duplicate key raises `InvalidCdiSpec`, as in runtimes."""
    try:
        return read_json(text, limit=SIZE_LIMIT, object_pairs_hook=_without_duplicates)
    except NotJson as error:
        raise InvalidCdiSpec(file, [CdiProblem("", f"it is not JSON: {error}")]) from None


def to_json(spec: CdiSpec) -> str:
    """Return the text of a CDI file, the same text for equal values."""
    return json.dumps(to_dict(spec), indent=2, ensure_ascii=False) + "\n"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice!r}")
    return result


class _SpecReader:
    """Collects all problems of a file instead of stopping at the first."""

    def __init__(self, strict: bool) -> None:
        self.problems: list[CdiProblem] = []
        self._strict = strict

    def value(self, cls: type, data: Any, pointer: str) -> Any:
        """Return an instance of `cls`; an attribute with a wrong type gets its default."""
        if not isinstance(data, dict):
            self._add_problem(pointer, f"it must be an object, not {_name_of(data)}")
            return cls()
        known = {each.key: each for each in json_fields(cls)}
        given: dict[str, Any] = {}
        for key, content in data.items():
            place = f"{pointer}/{_escape(str(key))}"
            if key not in known:
                self._unknown(key, known, place)
            elif content is not None:  # null is the same as absent
                given[known[key].attribute] = self._content(known[key], content, place)
        return cls(**given)

    def _unknown(self, key: Any, known: dict[str, JsonField], place: str) -> None:
        if not self._strict:
            return
        if key in _DROPPED:
            self._add_problem(place, "CDI 1.1.0 removed this key: its readers refuse the file")
            return
        self._add_problem(place, f"unknown key{did_you_mean(str(key), known)}")

    def _content(self, each: JsonField, content: Any, place: str) -> Any:
        shape, of = each.shape, each.of
        if of is not None and shape is JsonType.OBJECT:
            return self.value(of, content, place)
        if of is not None and isinstance(content, list):
            return tuple(self.value(of, item, f"{place}/{i}") for i, item in enumerate(content))
        if shape is JsonType.TEXT_MAP and isinstance(content, dict):
            return self._texts_by_key(content, place)
        item_shape = _ITEMS.get(shape)
        if item_shape and isinstance(content, list):
            return tuple(
                self._scalar(item_shape, item, f"{place}/{i}") for i, item in enumerate(content)
            )
        return self._scalar(shape, content, place)

    def _texts_by_key(self, content: dict[Any, Any], place: str) -> tuple[tuple[str, str], ...]:
        return tuple(
            (str(key), self._scalar(JsonType.TEXT, text, f"{place}/{_escape(str(key))}"))
            for key, text in content.items()
        )

    def _scalar(self, shape: JsonType, content: Any, place: str) -> Any:
        number = isinstance(content, int) and not isinstance(content, bool)
        if (
            (shape is JsonType.TEXT and isinstance(content, str))
            or (shape is JsonType.FLAG and isinstance(content, bool))
            or (shape is JsonType.SIGNED and number and -_INT64 <= content < _INT64)
            or (shape is JsonType.UNSIGNED and number and 0 <= content < _UINT32)
        ):
            return content
        self._add_problem(place, f"it must be {shape.value}, not {_name_of(content)}")
        return _EMPTY.get(shape)

    def _add_problem(self, pointer: str, problem: str) -> None:
        self.problems.append(CdiProblem(pointer, problem))


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _name_of(content: Any) -> str:
    if isinstance(content, dict):
        return "an object"
    if isinstance(content, list):
        return "a list"
    return json.dumps(content, ensure_ascii=False, default=str)
