"""What a selector may name, and the official runtime of CEL, which is loaded at the first use.

Sources: k8s.io/dynamic-resource-allocation, `cel/compile.go`; k8s.io/apiserver,
`pkg/cel/environment/base.go`; Kubernetes 1.36 with its default feature gates.
"""

import functools
import json
from typing import Any

from kubedevices.errors import BadSelector, UsageError

_Q, _S = "kubernetes.Quantity", "kubernetes.Semver"
_SCALARS = ("int", "uint", "double", "bool", "string", "bytes")
_UNKNOWN_HERE = [
    "url",
    "isURL",
    "ip",
    "isIP",
    "cidr",
    "isCIDR",
    "format",
    "find",
    "findAll",
    "indexOf",
    "lastIndexOf",
    "includes",
]
_EXTENSIONS = [
    {"name": "bindings"},
    {"name": "optional"},
    {"name": "strings", "version": 2},
    {"name": "sets"},
    {"name": "lists", "version": 2},
    {"name": "two-var-comprehensions"},
]
_MEMBERS = [
    *[
        (name, kind, (kind,), "bool")
        for name in ("isGreaterThan", "isLessThan")
        for kind in (_Q, _S)
    ],
    *[("compareTo", kind, (kind,), "int") for kind in (_Q, _S)],
    *[(name, _Q, (other,), _Q) for name in ("add", "sub") for other in (_Q, "int")],
    ("isInteger", _Q, (), "bool"),
    ("asInteger", _Q, (), "int"),
    ("asApproximateFloat", _Q, (), "double"),
    *[(name, _S, (), "int") for name in ("major", "minor", "patch")],
    *[("isSorted", f"list {each}", (), "bool") for each in _SCALARS],
    *[(name, f"list {each}", (), each) for name in ("min", "max") for each in _SCALARS],
    *[("sum", f"list {each}", (), each) for each in ("int", "uint", "double")],
]
_GLOBALS = [
    ("quantity", "", ("string",), _Q),
    ("isQuantity", "", ("string",), "bool"),
    ("sign", "", (_Q,), "int"),
    ("semver", "", ("string",), _S),
    ("semver", "", ("string", "bool"), _S),
    ("isSemver", "", ("string",), "bool"),
    ("isSemver", "", ("string", "bool"), "bool"),
]


def _type(name: str) -> dict[str, Any]:
    outer, _, inner = name.partition(" ")
    return {"type_name": outer, **({"params": [_type(inner)]} if inner else {})}


def _map(value: dict[str, Any]) -> dict[str, Any]:
    return {"type_name": "map", "params": [_type("string"), value]}


def _config() -> str:
    functions: dict[str, list[dict[str, Any]]] = {}
    for name, target, args, result in [*_MEMBERS, *_GLOBALS]:
        overload: dict[str, Any] = {
            "id": f"{name}_{target}_{'_'.join(args)}".replace(" ", "_"),
            "args": [_type(each) for each in args],
            "return": _type(result),
        }
        functions.setdefault(name, []).append(
            overload | ({"target": _type(target)} if target else {})
        )
    variables = {
        "device.driver": _type("string"),
        "device.allowMultipleAllocations": _type("bool"),
        "device.attributes": _map(_map(_type("google.protobuf.Any"))),
        "device.capacity": _map(_map(_type(_Q))),
    }
    return json.dumps(
        {
            "extensions": _EXTENSIONS,
            "functions": [{"name": name, "overloads": each} for name, each in functions.items()],
            "variables": [{"name": name, **each} for name, each in variables.items()],
        }
    )


@functools.cache
def _runtime() -> Any:
    try:
        from cel_expr_python import cel  # noqa: PLC0415 - large, and needed only here
    except ImportError as error:
        raise UsageError("device selectors need CEL: pip install 'kubedevices[cel]'") from error
    return cel


@functools.cache
def _checker() -> Any:
    return _runtime().NewEnv(config=_runtime().NewEnvConfigFromYaml(_config()))


@functools.cache
def _standard(call: str) -> Any:
    cel = _runtime()
    config = cel.NewEnvConfigFromYaml(json.dumps({"extensions": _EXTENSIONS}))
    names = {f"a{i}": cel.Type.DYN for i in range(4)}
    return cel.NewEnv(config=config, variables=names).compile(call)


def check(expression: str) -> bytes:
    """Return an expression, checked and serialized; raises `BadSelector` and `UsageError`."""
    try:
        return bytes(_checker().compile(expression).serialize())
    except (RuntimeError, ValueError, LookupError) as error:
        problem = str(error).partition(" ERROR: <input>:")[2].partition("\n")[0] or str(error)
        for name in _UNKNOWN_HERE:
            if f"undeclared reference to '{name}" in problem or f"overload for '{name}'" in problem:
                raise BadSelector("unsupported", f"{name} is not evaluated here") from error
        raise BadSelector("compilation", problem) from error


def call_standard(name: str, is_member: bool, values: list[Any]) -> Any:
    """Return what the official runtime answers for a standard function or operator.

    Raises `BadSelector` if the function fails, or has no overload for these values.
    """
    args = [f"a{i}" for i in range(len(values))]
    operator = name.strip("_")
    if name.startswith("_") and len(args) == 2:
        text = f"{args[0]} {operator} {args[1]}"
    elif name == "-_":
        text = f"-{args[0]}"
    elif is_member:
        text = f"{args[0]}.{name}({', '.join(args[1:])})"
    else:
        text = f"{name}({', '.join(args)})"
    try:
        result = _standard(text).eval(data=dict(zip(args, values, strict=True)))
        kind = result.type().name()
        if kind == "ERROR":
            problem = str(result.plain_value()).partition(": ")[2]
            raise BadSelector(
                "evaluation", problem.replace("No matching overloads found", "no such overload")
            )
        return result.plain_value()
    except (TypeError, RuntimeError, ValueError, LookupError) as error:
        raise BadSelector("evaluation", f"{name}: no such overload: {error}") from error
