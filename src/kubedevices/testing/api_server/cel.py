"""Evaluates the supported part of CEL, the language of device selectors. Pure.

Supported are comparisons of `device.driver`, of an attribute, and of an attribute with
`.orValue(…)`, and `"name" in device.attributes["domain"]`, all joined by `&&`. Other expressions
are refused; test such a selector on a real Kubernetes.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from kubedevices.testing.api_server.kinds import Object

_LITERAL = r'(?P<literal>"(?:[^"\\]|\\.)*"|-?\d+|true|false)'
_ATTRIBUTE = r'device\.attributes\["(?P<domain>[^"]+)"\]\.(?P<maybe>\?)?(?P<name>\w+)'
_DEFAULT = r'(?:\.orValue\((?P<default>"[^"]*"|-?\d+|true|false)\))?'
_DRIVER = re.compile(rf"device\.driver\s*==\s*{_LITERAL}")
_COMPARED = re.compile(rf"{_ATTRIBUTE}{_DEFAULT}\s*(?P<operator>==|!=|>=|<=|>|<)\s*{_LITERAL}")
_TRUTH = re.compile(rf"{_ATTRIBUTE}{_DEFAULT}")
_IN = re.compile(r'"(?P<name>\w+)"\s+in\s+device\.attributes\["(?P<domain>[^"]+)"\]')
_AND = re.compile(r'&&(?=(?:[^"]*"[^"]*")*[^"]*$)')
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    ">=": lambda a, b: bool(a >= b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    "<": lambda a, b: bool(a < b),
}


class BadExpression(ValueError):
    """An expression that is not supported, or that fails for this device."""


def is_selected(expression: str, driver: str, device: Object) -> bool:
    """Return whether `expression` selects a device of `driver`; raises `BadExpression`.

    As in Kubernetes, a missing attribute is an error, unless `?` is before its name.
    """
    attributes = _by_domain(driver, device.get("attributes") or {})
    return all(_holds(term.strip(), driver, attributes) for term in _AND.split(expression))


def _holds(term: str, driver: str, attributes: Mapping[str, Mapping[str, Any]]) -> bool:
    if match := _DRIVER.fullmatch(term):
        return bool(driver == _literal(match["literal"]))
    if match := _IN.fullmatch(term):
        return match["name"] in attributes.get(match["domain"], {})
    match = _COMPARED.fullmatch(term)
    if match:
        value = _attribute(match, attributes)
        return _OPERATORS[match["operator"]](value, _literal(match["literal"]))
    if match := _TRUTH.fullmatch(term):
        return _attribute(match, attributes) is True
    raise BadExpression(f"the stand-in for an API server cannot evaluate {term!r}")


def _attribute(match: re.Match[str], attributes: Mapping[str, Mapping[str, Any]]) -> Any:
    found = attributes.get(match["domain"], {})
    if match["name"] in found:
        return found[match["name"]]
    if match["maybe"] and match["default"] is not None:
        return _literal(match["default"])
    raise BadExpression(f"no such key: {match['name']}")


def _by_domain(driver: str, attributes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for key, value in attributes.items():
        domain, _, name = key.rpartition("/")
        found.setdefault(domain or driver, {})[name] = next(iter(value.values()))
    return found


def _literal(text: str) -> Any:
    return json.loads(text)
