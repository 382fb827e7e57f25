"""Imports `MODULE:NAME`, and returns its scanner. For scan and run.

The name is a scanner class, a function that returns a scanner, or a scanner: for example a scanner
in a middleware.

The module is a name that Python can import (the current directory is searched first), or the path
of a `.py` file. Every error is reported in one line. If a module cannot be imported, its traceback
is a debug log line.
"""

import argparse
import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any

from kubedevices.errors import KubedevicesError, ScanFailed, UsageError
from kubedevices.errors.words import closest, did_you_mean
from kubedevices.plugin.log_lines import summarize_exception
from kubedevices.plugin.scanner import Scanner
from kubedevices.values.device_tree import DeviceTree

Made = typing.TypeVar("Made")

EXAMPLE = "for example widgets.py:Widgets or mypackage.widgets:Widgets"

_TRUE, _FALSE = {"true", "yes", "1"}, {"false", "no", "0"}


def add_scanner_argument(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    """Add MODULE:CLASS as `args.scanner` and `--arg NAME=VALUE` as `args.arguments`."""
    parser.add_argument(
        "scanner",
        metavar="MODULE:CLASS",
        nargs=nargs,
        help=f"the scanner: a class, a function that returns it, or an object, {EXAMPLE}",
    )
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        dest="constructor_arguments",
        metavar="NAME=VALUE",
        help="an argument of the scanner's constructor or function; may be given several times",
    )


def load_scanner(target: str, arguments: list[str]) -> Scanner:
    """Import the class, function or object, and return its scanner.

    Raises `UsageError`, or `ScanFailed` if the constructor or function raises an exception.
    """
    module_name, colon, class_name = target.rpartition(":")
    if not colon or not module_name or not class_name:
        raise UsageError(f"{target!r} is not MODULE:CLASS, {EXAMPLE}")
    values = _split_arguments(arguments)
    found = _find(_import(module_name), class_name)
    if isinstance(found, Scanner):
        if values:
            raise UsageError(f"{target} is a scanner, not a class: it takes no --arg")
        return found
    if inspect.isclass(found):
        return _make(class_name, "its constructor", _check_class(found, class_name), values)
    if not callable(found):
        kind = type(found).__name__
        raise UsageError(f"{class_name} must be a class, a function or a scanner, not {kind}")
    made = _make(class_name, "it", found, values)
    if isinstance(made, Scanner):
        return made
    if inspect.iscoroutine(made):
        made.close()
    if isinstance(made, DeviceTree):
        raise UsageError(
            f"{class_name}() returns devices, not a scanner: write `every_5_seconds = "
            f"kubedevices.plugin.scanners.periodic(5, {class_name})`, and name this object"
        )
    raise UsageError(f"{class_name}() must return a scanner, not {type(made).__name__}")


def _split_arguments(arguments: list[str]) -> dict[str, str]:
    values = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--arg {argument!r} is not NAME=VALUE")
        values[name] = value
    return values


def _import(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name:
        return _import_file(Path(name))
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            near = Path(name.replace(".", "/") + ".py")
            hint = f"; for the file, write {near}:..." if near.exists() else ""
            raise UsageError(f"there is no module {error.name!r}{hint}") from error
        raise _does_not_import(name, error) from error
    except (Exception, SystemExit) as error:
        raise _does_not_import(name, error) from error


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise UsageError(f"there is no file {str(file)!r}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{str(file)!r} is not a Python file")
    sys.path.insert(0, str(file.parent.absolute()))  # like `python FILE`, for its imports
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses and pickle look there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _does_not_import(str(file), error) from error
    return module


def _does_not_import(name: str, error: BaseException) -> KubedevicesError:
    """Return the error for a module that cannot be imported; a `SyntaxError` has its own place."""
    reason = summarize_exception(error)
    if isinstance(error, SyntaxError):
        reason = f"SyntaxError: {error.msg} ({Path(error.filename or '?').name}:{error.lineno})"
    return UsageError(f"{name} does not import: {reason}")


def _find(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, _scanners_in(module)) or _listing_hint(module)
            raise UsageError(f"{module.__name__} has no {name!r}{hint}")
        found = getattr(found, part)
    return found


def _listing_hint(module: ModuleType) -> str:
    scanners = _scanners_in(module)
    return f", its scanners: {', '.join(scanners)}" if scanners else ", and no scanner at all"


def _scanners_in(module: ModuleType) -> list[str]:
    """Return the names of the scanner classes that a module defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, Scanner)
        and value.__module__ == module.__name__
    ]


def _check_class(found: type, name: str) -> Callable[..., Scanner]:
    if not issubclass(found, Scanner):
        wanted = "kubedevices.Scanner or kubedevices.PolledScanner"
        raise UsageError(f"{name} does not inherit {wanted}")
    missing: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
    if missing:
        own = {method for base in found.__mro__[:-1] for method in vars(base)} - missing
        described = []
        for method in sorted(missing):
            near = closest(method, own)
            described.append(f"{method}()" + (f" (is {near}() misspelt?)" if near else ""))
        raise UsageError(f"{name} lacks {', '.join(described)}")
    return found


def _make(name: str, what: str, make: Callable[..., Made], values: Mapping[str, str]) -> Made:
    arguments = _convert(name, make, values)
    try:
        return make(**arguments)
    except KubedevicesError:
        raise
    except Exception as error:
        raise ScanFailed(name, f"{what} raised {summarize_exception(error)}") from error


def _convert(name: str, make: Callable[..., Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Convert the texts to the types in the annotations of `make`; raises `UsageError`."""
    try:
        signature = inspect.signature(make)
    except ValueError as error:  # a few functions in C do not know their arguments
        raise UsageError(f"{name} must be a function in Python: {error}") from error
    try:
        annotated: Any = make.__init__ if inspect.isclass(make) else make
        annotations = typing.get_type_hints(annotated)
    except Exception:  # annotations may use names that only type checkers import
        annotations = {}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    converted = {}
    for key, text in values.items():
        if key not in signature.parameters and not takes_any:
            hint = did_you_mean(key, signature.parameters) or f": {name}{signature}"
            raise UsageError(f"{name} takes no argument {key!r}{hint}")
        converted[key] = _from_text(key, text, annotations.get(key, str))
    try:
        signature.bind(**converted)
    except TypeError as error:
        raise UsageError(f"{name}{signature}: {error}, give it as --arg NAME=VALUE") from error
    return converted


def _from_text(name: str, text: str, kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, UnionType):
        members = [member for member in typing.get_args(kind) if member is not type(None)]
        kind = str if str in members else members[0]
    if kind is bool:
        if text.lower() not in _TRUE | _FALSE:
            raise UsageError(f"--arg {name}: {text!r} is neither true nor false")
        return text.lower() in _TRUE
    if kind in (int, float, Path):
        try:
            return kind(text)
        except ValueError as error:
            raise UsageError(f"--arg {name}: {text!r} is not a number") from error
    return text
