"""`kubedevices checkpoint`: reads the allocations in a kubelet_internal_checkpoint.

The keys of `-o json` and `-o yaml` are stable. A list with one report per file: `file`,
`verdict` (good, corrupt, unreadable), `reason`, `checksum` (`stored`, `computed`; null when the
file is not a checkpoint), `boot_id`, `before_1_20`, `notes`; with `show` also `entries` (`pod_uid`,
`container`, `resource`, `devices`: NUMA node or -1 to IDs, `answer`: `env`, `devices`, `mounts`,
`annotations`, `cdi_devices`, or null when it cannot be decoded) and `registered` (resource to the
IDs of its healthy devices).
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kubedevices.cli.shared.output import (
    Column,
    add_output_argument,
    print_document,
    print_listing,
)
from kubedevices.errors import CannotRead, ProtocolError, os_errors_as
from kubedevices.host.terminal import print_line, print_to_stderr
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.checkpoint.reader import read
from kubedevices.node.checkpoint.text import (
    BadCheckpoint,
    Checkpoint,
    CheckpointEntry,
    parse_checkpoint,
)
from kubedevices.values.allocation import ContainerAllocateResponse

NAME = "checkpoint"
HELP = """\
read a kubelet's device checkpoint: allocations, and whether the file is damaged

Reads a file of any node; no kubelet is needed. `-` is standard input. Exit code 1: a file is
corrupt; 3: a file cannot be read.
"""
EXAMPLES = """\
examples:
  kubedevices checkpoint show /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint
  kubedevices checkpoint show -o json node-7.checkpoint | jq '.[].entries[].answer.env'
  kubedevices checkpoint verify *.checkpoint
"""

GOOD, CORRUPT, UNREADABLE = "good", "corrupt", "unreadable"
_CODES = {GOOD: 0, CORRUPT: 1, UNREADABLE: 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    showing = actions.add_parser(
        "show", help="print allocations, with the decoded answers of the plugins"
    )
    verifying = actions.add_parser("verify", help="say whether files are damaged")
    for action in (showing, verifying):
        action.add_argument("files", nargs="+", metavar="FILE")
        add_output_argument(action)


def run(args: argparse.Namespace) -> int:
    """Report on every file; return the exit code of the worst report."""
    shows = args.action == "show"
    reports = [_report(file, shows=shows) for file in args.files]
    if args.output != "table":
        print_document(reports, args.output)
    for number, report in enumerate(reports):
        if report["verdict"] == UNREADABLE:
            print_to_stderr(f"kubedevices: {report['reason']}")
        elif args.output == "table":
            if shows and number:
                print_line()
            _print_report(report, shows=shows)
    return max(_CODES[report["verdict"]] for report in reports)


# ---------------------------------------------------------------- reading


def _report(file: str, *, shows: bool) -> dict[str, Any]:
    report: dict[str, Any] = {
        "file": file,
        "verdict": GOOD,
        "reason": "",
        "checksum": None,
        "boot_id": None,
        "before_1_20": False,
        "notes": [],
    }
    if shows:
        report |= {"entries": [], "registered": {}}
    try:
        data = _read(file)
    except CannotRead as error:
        return report | {"verdict": UNREADABLE, "reason": str(error)}
    parsed = parse_checkpoint(data)
    if isinstance(parsed, BadCheckpoint):
        report |= {"verdict": CORRUPT, "reason": _why(data, parsed)}
        if parsed.content is None:
            return report
        content = parsed.content
        report["checksum"] = {"stored": content.checksum, "computed": parsed.computed}
        parsed = Checkpoint(content.entries, content.registered, content.boot_id, content.is_v1)
    else:
        checksum = read(data).checksum
        report["checksum"] = {"stored": checksum, "computed": checksum}
    report |= {"boot_id": parsed.boot_id, "before_1_20": parsed.is_v1}
    entries = [_entry(each, report["notes"], parsed.is_v1) for each in parsed.entries or ()]
    registered = {name: [*(ids or ())] for name, ids in sorted((parsed.registered or {}).items())}
    _note_sharing(entries, report["notes"])
    return report | ({"entries": entries, "registered": registered} if shows else {})


def _read(file: str) -> bytes:
    with os_errors_as(CannotRead, file):
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def _why(data: bytes, bad: BadCheckpoint) -> str:
    if data.startswith(b"SQLite format 3\0"):
        return "it is a database, such as the ledger of kubedevices, not a kubelet checkpoint"
    if bad.content is None:
        return bad.reason
    return f"the checksum is {bad.content.checksum}, but the content has {bad.computed}"


def _entry(entry: CheckpointEntry, notes: list[str], is_v1: bool) -> dict[str, Any]:
    devices = {str(node): [*(ids or ())] for node, ids in (entry.device_ids or {}).items()}
    if is_v1:  # without NUMA nodes in the file, the reader returns any node
        devices = {"-1": [each for ids in devices.values() for each in ids]}
    try:
        answer = _answer(CONTAINER_RESPONSE.from_wire(entry.response or b""))
    except ProtocolError:
        answer = None
        notes.append(
            f"pod {entry.pod_uid} container {entry.container}: the answer for {entry.resource} "
            "cannot be decoded; a kubelet that starts skips it, so the devices count as free"
        )
    return {
        "pod_uid": entry.pod_uid,
        "container": entry.container,
        "resource": entry.resource,
        "devices": devices,
        "answer": answer,
    }


def _answer(response: ContainerAllocateResponse) -> dict[str, Any]:
    return {
        "env": dict(response.env),
        "devices": [spec._asdict() for spec in response.devices],
        "mounts": [mount._asdict() for mount in response.mounts],
        "annotations": dict(response.annotations),
        "cdi_devices": [*response.cdi_devices],
    }


def _note_sharing(entries: Iterable[dict[str, Any]], notes: list[str]) -> None:
    """Add a note for each device of several pods.

    Containers of one pod may share a device, because they may reuse the devices of an init
    container. Two pods must not share a device.
    """
    pods: dict[tuple[str, str], dict[str, None]] = {}
    for entry in entries:
        for ids in entry["devices"].values():
            for device_id in ids:
                holders = pods.setdefault((entry["resource"], device_id), {})
                holders[entry["pod_uid"]] = None
    for (resource, device_id), holders in pods.items():
        if len(holders) > 1:
            notes.append(f"{resource} {device_id} is held by several pods: {', '.join(holders)}")


# ---------------------------------------------------------------- tables


def _per_numa(devices: Mapping[str, list[str]]) -> str:
    """Return the IDs, with their NUMA node if they have one."""
    return ", ".join(
        ",".join(ids) if node == "-1" else f"{','.join(ids)} (NUMA {node})"
        for node, ids in devices.items()
    )


def _specs(devices: Iterable[dict[str, Any]]) -> str:
    return ", ".join(f"{_paths(each)} ({each['permissions']})" for each in devices)


def _mounts(mounts: Iterable[dict[str, Any]]) -> str:
    return ", ".join(_paths(each) + (" (ro)" if each["read_only"] else "") for each in mounts)


def _paths(each: dict[str, Any]) -> str:
    host, container = each["host_path"], each["container_path"]
    return host if host == container else f"{host}:{container}"


_HOLDER_COLUMNS = (
    Column("pod_uid", "POD"),
    Column("container"),
    Column("resource"),
    Column("devices", text=_per_numa),
)
_ANSWER_COLUMNS = (
    Column("env"),
    Column("device_files", text=_specs),
    Column("mounts", text=_mounts),
    Column("annotations"),
    Column("cdi_devices", "CDI"),
)
_REGISTERED_COLUMNS = (
    Column("resource", "REGISTERED"),
    Column("healthy", right=True),
    Column("devices"),
)


def _print_report(report: dict[str, Any], *, shows: bool) -> None:
    """Print the verdict and, with `show`, who holds which device; empty columns are left out."""
    print_line(_verdict(report))
    for note in report["notes"]:
        print_line(f"  {note}")
    if not shows:
        return
    rows = []
    for entry in report["entries"]:
        answer = dict(entry["answer"] or {})
        files = answer.pop("devices", ())
        rows.append({**answer, **entry, "device_files": files})
    if rows:
        used = [column for column in _ANSWER_COLUMNS if any(row.get(column.key) for row in rows)]
        print_listing(rows, (*_HOLDER_COLUMNS, *used), "table")
    if report["registered"]:
        registered = [
            {"resource": name, "healthy": len(ids), "devices": ids}
            for name, ids in report["registered"].items()
        ]
        if rows:
            print_line()
        print_listing(registered, _REGISTERED_COLUMNS, "table")


def _verdict(report: dict[str, Any]) -> str:
    if report["verdict"] == CORRUPT:
        return f"{report['file']}: corrupt: {report['reason']}"
    age = ", in the form before Kubernetes 1.20" if report["before_1_20"] else ""
    return f"{report['file']}: good, checksum {report['checksum']['stored']}{age}"
