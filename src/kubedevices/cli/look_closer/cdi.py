"""`kubedevices cdi`: lists CDI devices, checks CDI files, explains why a name does not resolve.

The keys of `-o json` and `-o yaml` are stable. `list`: `devices` (`name`, `kind`, `device`,
`version`, `file`, `device_nodes`, `missing`) and `errors` (path to texts). `validate`: a list with
`path`, `valid`, `kind`, `version`, `devices`, `problems` (`pointer`, `problem`), `missing` (the
same) and `warnings`. `resolve`: a list with `name`, `resolves`, `file`, `reason`, `warnings` and
`edits` (as in a CDI file). `missing` is what a file names and this host does not have.
"""

import argparse
import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kubedevices.cli.shared.output import Column, add_output_argument, print_document, print_listing
from kubedevices.cli.shared.serving import some_path
from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import CannotRead, CdiProblem, NotJson, UsageError
from kubedevices.errors.words import counted
from kubedevices.host.cdi_host_paths import missing_paths
from kubedevices.host.cdi_specs import DIRECTORIES, read_registry, read_spec_file
from kubedevices.host.device_files import read_device_file
from kubedevices.host.terminal import print_to_stderr
from kubedevices.values.cdi import (
    CdiRegistry,
    CdiSpec,
    Definition,
    SpecFile,
    find_problems,
    inject,
    readers_too_old_for,
    to_dict,
)

NAME = "cdi"
HELP = """\
list CDI devices, check CDI files, say why a name does not resolve

A container engine says only that it does not find a device. These commands read the files like an
engine and say what is wrong.
"""
EXAMPLES = """\
examples:
  kubedevices cdi list
  kubedevices cdi validate /etc/cdi/widget.yaml
  kubedevices cdi resolve example.com/widget=w0
  kubedevices cdi inject example.com/widget=w0 <config.json >with-widget.json
"""

_STDIN_LIMIT = 2**24
_NOT_WORKING = "no container with it works; write the CDI file again"
_LIST_COLUMNS = (Column("name"), Column("version"), Column("device_nodes"), Column("file"))
_VALIDATE_COLUMNS = (
    Column("path", "FILE"),
    Column("result"),
    Column("version"),
    Column("where"),
    Column("text", "WHAT"),
)
_RESOLVE_COLUMNS = (Column("name"), Column("result"), Column("text", "WHY"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list every device that an engine finds")
    checking = actions.add_parser("validate", help="check files or directories")
    checking.add_argument("paths", nargs="*", type=some_path, metavar="FILE|DIR")
    checking.add_argument(
        "--strict",
        action="store_true",
        help="also report content that readers accept and runtimes fail on",
    )
    resolving = actions.add_parser(
        "resolve", help="say where a name is defined, or why it is not defined"
    )
    resolving.add_argument("names", nargs="+", metavar="VENDOR/CLASS=NAME")
    injecting = actions.add_parser(
        "inject", help="add devices to the OCI config.json on standard input, for runc and crun"
    )
    injecting.add_argument("names", nargs="+", metavar="VENDOR/CLASS=NAME")
    for action in (listing, checking, resolving, injecting):
        action.add_argument(
            "--cdi-dir",
            action="append",
            type=some_path,
            metavar="DIR",
            help="directory instead of /etc/cdi and /var/run/cdi; may be given several times, "
            "later directories win",
        )
    for action in (listing, checking, resolving):
        add_output_argument(action)


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    directories = args.cdi_dir or list(DIRECTORIES)
    if args.action == "validate":
        return _validate(args.paths or directories, args.output, strict=args.strict)
    registry = read_registry(directories)
    if args.action == "list":
        return _list(registry, args.output)
    if args.action == "resolve":
        return _resolve(registry, args.names, args.output)
    return _inject(registry, args.names)


# ---------------------------------------------------------------- list


def _list(registry: CdiRegistry, output: str) -> int:
    rows = [_describe(each) for _, each in sorted(registry.devices.items())]
    errors = {path: list(texts) for path, texts in registry.errors.items()}
    where = ", ".join(registry.directories)
    print_listing(
        rows,
        _LIST_COLUMNS,
        output,
        document={"devices": rows, "errors": errors},
        empty=f"no CDI devices in {where}",
    )
    if output == "table":
        for path, texts in errors.items():
            for text in texts:
                print_to_stderr(f"{path}: {text}")
        for row in rows:
            for text in row["missing"]:
                print_to_stderr(f"{row['name']}: {text}: {_NOT_WORKING}")
    return 0


def _describe(definition: Definition) -> dict[str, Any]:
    nodes = definition.device.container_edits.device_nodes
    return {
        "name": str(definition.name),
        "kind": definition.name.kind,
        "device": definition.name.device,
        "version": definition.spec.version,
        "file": definition.file.path,
        "device_nodes": [node.host_path or node.path for node in nodes],
        "missing": [text for _, text in missing_paths(definition.device.container_edits)],
    }


# ---------------------------------------------------------------- validate


def _validate(paths: Iterable[Path], output: str, *, strict: bool) -> int:
    reports: list[dict[str, Any]] = []
    for path in paths:
        registry = _read(path)
        reports += [_report(file, registry, strict) for file in registry.files]
    rows = [row for report in reports for row in _rows_of_report(report)]
    looked = ", ".join(map(str, paths))
    print_listing(
        rows, _VALIDATE_COLUMNS, output, document=reports, empty=f"no CDI files in {looked}"
    )
    return 0 if all(report["valid"] for report in reports) else 1


def _read(path: Path) -> CdiRegistry:
    """Read one file or directory. It must exist, unless it is a default directory."""
    if not path.is_dir():
        if not path.exists() and path not in DIRECTORIES:
            raise CannotRead(str(path), "no such file or directory")
        return CdiRegistry((read_spec_file(path),) if path.exists() else ())
    registry = read_registry([path])
    if registry.directory_errors:
        raise CannotRead(str(path), registry.directory_errors[str(path)])
    return registry


def _report(file: SpecFile, registry: CdiRegistry, strict: bool) -> dict[str, Any]:
    problems = [*file.problems]
    warnings: list[str] = []
    if file.spec is not None:
        problems += find_problems(file.spec, strict=strict)
        problems += [CdiProblem("", text) for text in registry.errors.get(file.path, ())]
        warnings = [
            f"{reader.runtime} reads versions up to {reader.newest}"
            for reader in readers_too_old_for(file.spec.version.removeprefix("v"))
        ]
    missing = [] if file.spec is None else [*_missing_in(file.spec)]
    return {
        "path": file.path,
        "valid": not problems,
        "kind": file.kind,
        "version": file.spec.version if file.spec else None,
        "devices": len(file.spec.devices) if file.spec else None,
        "problems": [{"pointer": each.pointer, "problem": each.problem} for each in problems],
        "missing": [{"pointer": pointer, "problem": text} for pointer, text in missing],
        "warnings": warnings,
    }


def _missing_in(spec: CdiSpec) -> Iterator[tuple[str, str]]:
    """Yield where a file names a path that this host does not have, and what is wrong with it."""
    parts = [("", spec.container_edits)]
    parts += [(f"/devices/{i}", each.container_edits) for i, each in enumerate(spec.devices)]
    for place, edits in parts:
        for pointer, text in missing_paths(edits):
            yield f"{place}/containerEdits{pointer}", text


def _rows_of_report(report: dict[str, Any]) -> Iterable[dict[str, Any]]:
    common = {"path": report["path"], "version": report["version"]}
    if report["valid"]:
        text = f"{report['kind']}, {counted(report['devices'], 'device')}"
        yield common | {"result": "valid", "where": None, "text": text}
    for each in report["problems"]:
        yield common | {"result": "invalid", "where": each["pointer"], "text": each["problem"]}
    for each in report["missing"]:
        yield common | {"result": "warning", "where": each["pointer"], "text": each["problem"]}
    for text in report["warnings"]:
        yield common | {"result": "warning", "where": "/cdiVersion", "text": text}


# ---------------------------------------------------------------- resolve, inject


def _resolve(registry: CdiRegistry, names: list[str], output: str) -> int:
    rows: list[dict[str, Any]] = []
    document: list[dict[str, Any]] = []
    for each in map(registry.explain, names):
        edits = registry.edits([each.name]) if each.definition else None
        missing = [text for _, text in missing_paths(edits)] if edits else []
        result = "resolves" if each.resolves else "does not resolve"
        rows.append({"name": each.name, "result": result, "text": each.reason})
        warnings = [*each.warnings, *(f"{text}: {_NOT_WORKING}" for text in missing)]
        rows += [{"name": each.name, "result": "warning", "text": text} for text in warnings]
        document.append(
            {
                "name": each.name,
                "resolves": each.resolves,
                "file": each.definition.file.path if each.definition else None,
                "reason": each.reason,
                "warnings": [*each.warnings, *missing],
                "edits": to_dict(edits) if edits else None,
            }
        )
    print_listing(rows, _RESOLVE_COLUMNS, output, document=document)
    return 0 if all(each["resolves"] for each in document) else 1


def _inject(registry: CdiRegistry, names: list[str]) -> int:
    try:
        config = read_json(sys.stdin.read(_STDIN_LIMIT + 1), limit=_STDIN_LIMIT)
    except NotJson as error:
        raise UsageError(f"no OCI configuration on standard input: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise UsageError("no OCI configuration on standard input: not a JSON object")
    look = functools.partial(read_device_file, follow=False)
    print_document(inject(config, names, registry, look), "json")
    return 0
