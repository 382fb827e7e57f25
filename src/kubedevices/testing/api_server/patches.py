"""The kinds of PATCH: merge patch, strategic merge patch, JSON patch, server-side apply. Pure.

Sources: RFC 7396 and RFC 6902; k8s.io/apimachinery, `pkg/util/strategicpatch`. A strategic patch
and an apply know the keys of the lists in `LIST_KEYS`, and replace all other lists. An apply takes
the fields away that the same manager has applied before and leaves out now; it knows no conflict
between managers, as with `force`.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from kubedevices.errors import ApiRefused
from kubedevices.values.scheduling.kinds import Object

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

LIST_KEYS: Mapping[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "reservedFor": ("uid",),
    "addresses": ("type",),
    "containers": ("name",),
    "ips": ("ip",),
}
"""The keys of the items of lists, by the name of the list."""

_APPLIED_KEYS = {**LIST_KEYS, "devices": ("driver", "pool", "device", "shareID")}
"""A strategic patch replaces the devices of a claim's status; an apply merges them."""

_ABSENT = object()


def patched(found: Object, patch: Any, content_type: str) -> Object:
    """Return an object after a patch; raises `ApiRefused`."""
    if content_type == JSON_PATCH:
        return _json_patched(found, patch)
    if not isinstance(patch, dict):
        raise _bad("the patch must be an object")
    if content_type == STRATEGIC:
        return dict(_merged(found, patch, LIST_KEYS))
    if content_type == MERGE:
        return dict(_merged(found, patch, {}))
    raise ApiRefused(
        "patch", 415, "UnsupportedMediaType", f"the body of the request was {content_type}"
    )


def applied(found: Object, before: Object, now: Object) -> Object:
    """Return an object after an apply of `now` by a manager that has applied `before`."""
    kept = _without(copy.deepcopy(found), before, now)
    return dict(_merged(kept, now, _APPLIED_KEYS, is_apply=True))


def _bad(problem: str) -> ApiRefused:
    return ApiRefused("patch", 400, "BadRequest", problem)


def _merged(
    found: Mapping[str, Any],
    patch: Mapping[str, Any],
    keys: Mapping[str, tuple[str, ...]],
    *,
    is_apply: bool = False,
) -> Object:
    if keys and patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    made = dict(found)
    for name, value in patch.items():
        if keys and name.startswith("$"):
            _directive(made, name, value)
        elif value is None and not is_apply:
            made.pop(name, None)
        elif isinstance(value, dict):
            inner = made.get(name)
            made[name] = _merged(
                inner if isinstance(inner, dict) else {}, value, keys, is_apply=is_apply
            )
        elif isinstance(value, list) and name in keys:
            made[name] = _merged_list(made.get(name) or [], value, name, keys, is_apply)
        else:
            made[name] = copy.deepcopy(value)
    return made


def _directive(made: Object, name: str, value: Any) -> None:
    """`$deleteFromPrimitiveList/NAME`; the order of lists is left as it is."""
    what, _, field = name.partition("/")
    if what == "$deleteFromPrimitiveList":
        made[field] = [each for each in made.get(field) or () if each not in value]
    elif what not in ("$setElementOrder", "$retainKeys", "$patch"):
        raise _bad(f"the directive {what} is not known here")


def _merged_list(
    found: list[Any],
    patch: list[Any],
    name: str,
    keys: Mapping[str, tuple[str, ...]],
    is_apply: bool,
) -> list[Any]:
    def key(item: Any) -> tuple[Any, ...]:
        return tuple(item.get(each) for each in keys[name]) if isinstance(item, dict) else (item,)

    made = {key(each): each for each in found}
    for each in patch:
        if isinstance(each, dict) and each.get("$patch") == "delete":
            made.pop(key(each), None)
        elif isinstance(each, dict):
            made[key(each)] = _merged(made.get(key(each), {}), each, keys, is_apply=is_apply)
        else:
            made[key(each)] = each
    if is_apply:
        return list(made.values())
    before = {key(each) for each in found}  # a strategic patch puts new items before the others
    new = [value for each, value in made.items() if each not in before]
    return [*new, *(value for each, value in made.items() if each in before)]


def _without(found: Any, before: Any, now: Any, name: str = "") -> Any:
    """Return a value without the parts that a manager had before and does not have now."""
    if isinstance(found, dict) and isinstance(before, dict):
        wanted = now if isinstance(now, dict) else {}
        for each in before:
            if each in found and each not in wanted and not isinstance(before[each], dict | list):
                del found[each]
            elif each in found:
                left = _without(found[each], before[each], wanted.get(each), each)
                if each not in wanted and left in ({}, []):
                    del found[each]
                else:
                    found[each] = left
        return found
    if isinstance(found, list) and isinstance(before, list):
        wanted_items = now if isinstance(now, list) else []
        if name not in _APPLIED_KEYS:
            return found if wanted_items else []

        def keyed(items: list[Any]) -> dict[Any, Any]:
            return {tuple(item.get(k) for k in _APPLIED_KEYS[name]): item for item in items}

        gone = keyed(before).keys() - keyed(wanted_items).keys()
        return [item for key, item in keyed(found).items() if key not in gone]
    return found


# ---------------------------------------------------------------- RFC 6902


def _json_patched(found: Object, patch: Any) -> Object:
    if not isinstance(patch, list):
        raise _bad("a JSON patch must be a list")
    made: Any = copy.deepcopy(found)
    for step in patch:
        try:
            made = _step(made, step)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            problem = f"the server rejected our request due to an error in our request: {error!r}"
            raise ApiRefused("patch", 422, "Invalid", problem) from error
    if not isinstance(made, dict):
        raise _bad("the patched object is no object")
    return made


def _step(made: Any, step: Mapping[str, Any]) -> Any:
    path = _pointer(step["path"])
    operations: dict[str, Callable[[], Any]] = {
        "add": lambda: _set(made, path, step["value"], is_new=True),
        "replace": lambda: _set(made, path, step["value"], is_new=False),
        "remove": lambda: _remove(made, path),
        "move": lambda: _set(
            _remove(made, _pointer(step["from"])), path, _get(made, step["from"]), is_new=True
        ),
        "copy": lambda: _set(made, path, _get(made, step["from"]), is_new=True),
        "test": lambda: _tested(made, step),
    }
    return operations[step["op"]]()


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(made: Any, pointer: str) -> Any:
    for part in _pointer(pointer):
        made = made[int(part)] if isinstance(made, list) else made[part]
    return copy.deepcopy(made)


def _set(made: Any, path: list[str], value: Any, *, is_new: bool) -> Any:
    if not path:
        return value
    made, (name, *rest) = copy.copy(made), path
    if isinstance(made, list):
        place = len(made) if name == "-" else int(name)
        if rest or not is_new:
            made[place] = _set(made[place], rest, value, is_new=is_new)
        else:
            made.insert(place, value)
        return made
    if rest or (not is_new and name not in made):
        made[name] = _set(made[name], rest, value, is_new=is_new)
    else:
        made[name] = value
    return made


def _remove(made: Any, path: list[str]) -> Any:
    made, (name, *rest) = copy.copy(made), path
    place = int(name) if isinstance(made, list) else name
    if rest:
        made[place] = _remove(made[place], rest)
    else:
        del made[place]
    return made


def _tested(made: Any, step: Mapping[str, Any]) -> Any:
    if _get(made, step["path"]) != step["value"]:
        raise ValueError(f"testing value {step['path']} failed")
    return made
