"""Field selectors, label selectors, and the pages of a list. Pure."""

import base64
import re
from collections.abc import Callable, Mapping

from kubedevices.errors import ApiRefused
from kubedevices.values.scheduling.kinds import KINDS, Object

Selected = Callable[[Object], bool]

_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
"""Fields that a field selector may name for every kind."""

_SET = re.compile(r"(\S+) (in|notin) ?\((.*)\)")


def selection(plural: str, query: Mapping[str, str]) -> Selected:
    """Return a function that tells whether a request of many objects selects an object."""
    by_field = field_selector(plural, query.get("fieldSelector", ""))
    by_label = label_selector(query.get("labelSelector", ""))
    return lambda found: by_field(found) and by_label(found)


def field_selector(plural: str, text: str) -> Callable[[Object], bool]:
    """Return a test of objects by, say, `a=b,c!=d`; raises `ApiRefused` for unknown fields."""
    terms: list[tuple[str, str, bool]] = []
    for term in filter(None, text.split(",")):
        key, _, value = term.partition("=")
        is_equal = not key.endswith("!")
        key, value = key.removesuffix("!"), value.removeprefix("=")
        if key not in (*_COMMON_FIELDS, *KINDS[plural].fields):
            kind = KINDS[plural]
            problem = f"field label not supported for {kind.api_version}, Kind={kind.name}: {key}"
            raise ApiRefused(f"list {plural}", 400, "BadRequest", problem)
        terms.append((key, value, is_equal))
    return lambda found: all((_value(found, key) == value) == equal for key, value, equal in terms)


def _value(found: Object, key: str) -> str:
    value: object = found
    for part in key.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def label_selector(text: str) -> Selected:
    """Return a function for a selector such as `a=b,c!=d,e in (f,g),!h`."""
    terms = [each.strip() for each in re.split(r",(?![^(]*\))", text) if each.strip()]
    return lambda found: all(
        _has_label(each, found["metadata"].get("labels") or {}) for each in terms
    )


def _has_label(term: str, labels: Mapping[str, str]) -> bool:
    if match := _SET.fullmatch(term):
        values = [each.strip() for each in match[3].split(",")]
        return (labels.get(match[1]) in values) == (match[2] == "in")
    if "=" not in term:
        return (term.removeprefix("!") in labels) != term.startswith("!")
    key, _, value = term.partition("=")
    is_equal = not key.endswith("!")
    return (labels.get(key.removesuffix("!")) == value.removeprefix("=")) == is_equal


def page(found: list[Object], query: Mapping[str, str], version: int, oldest: int) -> Object:
    """Return the items of a page, and the metadata of its list; raises `ApiRefused`.

    A page that begins before `oldest`, the version from which changes are known, is gone.
    """
    if token := query.get("continue"):
        try:
            version_text, *last = base64.urlsafe_b64decode(token).decode().split("/")
            begun = int(version_text)
        except ValueError as error:
            problem = "continue key is not valid"
            raise ApiRefused("list", 400, "BadRequest", problem) from error
        if begun < oldest:
            problem = "The provided continue parameter is too old to display a consistent list"
            raise ApiRefused("list", 410, "Expired", problem)
        found, version = [each for each in found if _place(each) > last], begun
    metadata: Object = {"resourceVersion": str(version)}
    limit = int(query.get("limit") or 0)
    if limit and len(found) > limit:
        data = "/".join([str(version), *_place(found[limit - 1])])
        metadata["continue"] = base64.urlsafe_b64encode(data.encode()).decode()
        if not query.get("fieldSelector") and not query.get("labelSelector"):
            metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return {"metadata": metadata, "items": found}


def _place(found: Object) -> list[str]:
    metadata = found["metadata"]
    return [metadata.get("namespace", ""), metadata["name"]]
