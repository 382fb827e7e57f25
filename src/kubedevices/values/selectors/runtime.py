"""The official runtime of CEL, `cel-expr-python`, which is loaded at the first use.

It parses expressions, and answers functions of texts and regular expressions.
"""

import functools
import json
from collections.abc import Sequence
from typing import Any

from kubedevices.errors import BadSelector, UsageError

_EXTENSIONS = [
    {"name": "bindings"},
    {"name": "optional"},
    {"name": "strings", "version": 2},
    {"name": "lists", "version": 2},
    {"name": "two-var-comprehensions"},
    {"name": "regex"},
]


@functools.cache
def _runtime() -> Any:
    try:
        from cel_expr_python import cel  # noqa: PLC0415 - large, and needed only here
    except ImportError as error:
        raise UsageError("device selectors need CEL: pip install 'kubedevices[cel]'") from error
    return cel


@functools.cache
def _environment() -> Any:
    config = _runtime().NewEnvConfigFromYaml(json.dumps({"extensions": _EXTENSIONS}))
    return _runtime().NewEnv(config=config)


def parse(expression: str) -> bytes:
    """Return a serialized expression, not checked; raises `BadSelector` and `UsageError`."""
    try:
        return bytes(_environment().compile(expression, disable_check=True).serialize())
    except (RuntimeError, ValueError, LookupError) as error:
        problem = str(error).partition(" ERROR: <input>:")[2].partition("\n")[0] or str(error)
        raise BadSelector("compilation", problem) from error


@functools.lru_cache(maxsize=256)
def _compiled(call: str) -> Any:
    return _environment().compile(call, disable_check=True)


def call_runtime(call: str, values: Sequence[Any]) -> Any:
    """Return the value with variables `a0`, `a1`, …; raises `BadSelector` if there is none."""
    data = {f"a{i}": value for i, value in enumerate(values)}
    try:
        result = _compiled(call).eval(data=data)
        if result.type().name() == "ERROR":
            raise BadSelector("evaluation", str(result.plain_value()).partition(": ")[2])
        return result.plain_value()
    except (TypeError, RuntimeError, ValueError, LookupError) as error:
        raise BadSelector("evaluation", f"no such overload: {error}") from error
