"""Converts files of smarter-device-manager: regular expressions of names below /dev become globs.

A glob cannot express "any number of digits", so each number of digits becomes a separate glob.
"""

import re
from itertools import product
from math import prod
from os.path import commonprefix
from typing import Any, NamedTuple

import yaml

from kubedevices.config.keys import KeyPath
from kubedevices.config.yaml_source import entries, find
from kubedevices.expose.checks import resource_template as explain_name
from kubedevices.expose.foreign_conversion import DIRECTORIES, Conversion, is_map
from kubedevices.expose.path_patterns import WILDCARD, PathPattern

NAMESPACE = "smarter-devices"

_KEYS = ("devicematch", "nummaxdevices")

_MOST_DIGITS = 3
_MOST_GLOBS = 32

_ITEM = re.compile(
    r"""(?: (?P<any> \.)
          | (?P<set> \\d | \[ \^? [\w./:-]+ \])
          | (?P<char> [^\\^$.|?*+()\[\]{}] | \\[./:-])
        )
        (?P<repeat> [*+?] | \{ [0-9]{1,2} (?: , [0-9]{0,2})? \})?""",
    re.VERBOSE,
)


def is_smarter(root: yaml.Node) -> bool:
    """Whether this is a list with a `devicematch`."""
    return isinstance(root, yaml.SequenceNode) and any(
        find(each, ("devicematch",)) is not each for each in root.value
    )


def from_smarter(work: Conversion) -> list[dict[str, Any]]:
    """Return a resource for each expression of the file."""
    for i, node in enumerate(work.root.value):
        if isinstance(node, yaml.MappingNode):
            for name, key, _ in entries(node, (i,), work.report):
                if name not in _KEYS:
                    work.unknown_key(key, (i, name), _KEYS)
    found: list[dict[str, Any]] = []
    for i, each in enumerate(work.data()):
        with work.entry(found):
            expression = each.get("devicematch") if is_map(each) else None
            at: KeyPath = (i, "devicematch")
            if not isinstance(expression, str):
                work.mistake((i,), "a devicematch is needed")
            elif expression == "nvidia-gpu":
                work.note(at, "nvidia-gpu is left out: it means the files of a Jetson board")
            elif resource := _resource(work, at, expression):
                plain = {other["name"] for other in found if "{" not in other["name"]}
                if resource["name"] in plain:
                    work.mistake(at, f"this would be a second resource {resource['name']}")
                replicas = work.count((i,), each, "nummaxdevices")
                found.append(resource | ({"replicas": replicas} if replicas > 1 else {}))
    return found


def _resource(work: Conversion, at: KeyPath, expression: str) -> dict[str, Any]:
    """Return the resource without its replicas; after a mistake an empty dict."""
    translated = globs_of(expression)
    if translated is None:
        work.mistake(at, f"{expression!r} cannot be written with *, ? and [...]")
        return {}
    globs = translated.globs
    common = commonprefix(globs)  # noqa: RUF071 - of characters, not of directories
    name = WILDCARD.split(common)[0].replace("/", "_").strip("-_.")
    matches = [{"path": f"/dev/{glob}"} for glob in globs]
    if globs == (name,) and name in DIRECTORIES:
        matches = [{"directory": f"/dev/{name}"}]
    elif len(globs) > 1 or WILDCARD.search(globs[0]):
        if "*" in globs:
            work.mistake(at, f"{expression!r} would serve every file of /dev")
        if any("/" in glob for glob in globs):
            work.mistake(at, f"{expression!r}: expose has no names for files in directories")
        name = "{name}"
        for limit in translated.limits:
            work.note(at, f"{expression}: {limit}")
    if problem := explain_name(name):
        work.mistake(at, f"this cannot become a resource name: {problem}")
        return {}
    return {"name": name, "match": matches, "id": "path"}


class Globs(NamedTuple):
    """Globs below /dev that together match the same as an expression, except for `limits`."""

    globs: tuple[str, ...]
    limits: tuple[str, ...]


def globs_of(expression: str) -> Globs | None:
    """Return the globs that match the same as an expression, or None if there are none."""
    text = expression.removeprefix("^") if expression.startswith("^") else f".*{expression}"
    text = text.removesuffix("$") if text.endswith("$") else f"{text}.*"
    choices: list[list[str]] = []
    limits: dict[str, None] = {}
    position = 0
    while position < len(text):
        item = _ITEM.match(text, position)
        here = _choices(item, limits) if item else []
        if item is None or not here:
            return None
        choices.append(here)
        position = item.end()
    if prod(map(len, choices)) > _MOST_GLOBS:
        return None
    joined = ("".join(parts) for parts in product(*choices))
    globs = tuple(dict.fromkeys(re.sub(r"\*+", "*", glob) for glob in joined))
    return Globs(globs, tuple(limits)) if all(map(_is_glob, globs)) else None


def _choices(item: re.Match[str], limits: dict[str, None]) -> list[str]:
    """Return globs that together match an item of an expression; none if globs cannot."""
    repeat = item["repeat"] or "{1}"
    if item["any"]:
        limits["matches in lower directories are left out"] = None
        if repeat in {"*", "+"}:
            return ["*" if repeat == "*" else "?*"]
        glob = "?"
    elif item["set"]:
        glob = "[0-9]" if item["set"] == r"\d" else item["set"].replace("[^", "[!")
    else:
        glob = item["char"].removeprefix("\\")
    least, most = _times(repeat)
    if most is None:
        if not re.fullmatch(r"\[[0-9-]+\]", glob):
            return []
        most = max(least, _MOST_DIGITS)
        limits[f"a number has at most {most} digits"] = None
    return [glob * times for times in range(least, most + 1)]


def _times(repeat: str) -> tuple[int, int | None]:
    """Return how often an item must appear at least and at most; None is any number."""
    if repeat in {"*", "+", "?"}:
        return int(repeat == "+"), 1 if repeat == "?" else None
    least, comma, most = repeat.strip("{}").partition(",")
    return int(least), int(most) if most else None if comma else int(least)


def _is_glob(glob: str) -> bool:
    try:
        PathPattern(f"/dev/{glob}")
    except ValueError:
        return False
    return True
