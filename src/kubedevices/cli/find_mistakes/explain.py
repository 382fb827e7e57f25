"""`kubedevices explain`: says why a device is not allocatable, or not usable in its container.

The keys of `-o json` and `-o yaml` are stable: `socket_dir`, `source` (the node or kubelet that
answered, empty if none did), `result` (the worst of all), `findings` and `resources` (none for a
driver), each with `resource`, `result`, `capacity`, `allocatable`, `held` (null if unknown) and
`findings`. A finding has `step`, `result` (ok, unknown, warning, problem), `looked_at`, `found`,
`advice` and `command`. `--fix` adds `repairs`, each with `what`, `why`, `changes`, `command`,
`automatic`, `done` and `problem`.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.find_mistakes import explain_cluster, explain_fix
from kubedevices.cli.shared.node_client import absolute_path, add_node_arguments, add_proxy_argument
from kubedevices.cli.shared.output import (
    Column,
    add_output_argument,
    print_document,
    print_listing,
)
from kubedevices.errors import UsageError
from kubedevices.errors.safe_text import one_line
from kubedevices.errors.words import counted, some_of
from kubedevices.explain.finding import Finding, Outcome, in_order
from kubedevices.host import terminal
from kubedevices.host.terminal import print_line
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, default_state_dir

if TYPE_CHECKING:
    from kubedevices.explain.on_node.diagnosis import Diagnosis
    from kubedevices.explain.on_node.host_paths import HostPaths
    from kubedevices.explain.on_node.look_node import NodeFacts
    from kubedevices.explain.on_node.repairs import Repair

NAME = "explain"
OPTIONS_BETWEEN_WORDS = True
HELP = """\
say why a pod waits, or why a device cannot be allocated or used

Looks at every step of a device: its name, the plugin directory, which process listens, which plugin
registered, the device list, health and holders, DRA drivers of any vendor and their claims, device
files, permissions, SELinux, CDI files, and the container. Asks a `kubedevices node`, or else the
kubelet of this host. Run it as root on the node; a step without permission is reported as unknown.
Exit code 1: it found a problem. Changes nothing, except with --fix --yes: then the exit code is
that of another look after the repairs.

With --cluster or --kubeconfig, and about a pod, claim or node, it asks the API server instead, from
anywhere: what is wrong in the cluster or with one resource or driver, and why a pod or claim waits,
with a reason for each device. It needs the rights to list pods, nodes, and the kinds of
resource.k8s.io, and names each right that is missing. Exit code 3: what may be read does not answer
the question.
"""
EXAMPLES = """\
examples:
  kubedevices explain                                      one line per resource
  kubedevices explain example.com/widget                   all about one resource
  kubedevices explain gpu.example.com                      all about one DRA driver
  kubedevices explain example.com/widget --socket-dir ~/kd -o json
  kubedevices explain --fix                                what could be repaired, and how
  kubedevices explain pod train-0                          asks the API server, as do:
  kubedevices explain node node1
  kubedevices explain --cluster                            all that is wrong in a cluster
"""

_INDENT = 25
_STYLES = explain_cluster.STYLES
_REPORTED = ("problem", "warning")
_SUMMARY = (
    Column("resource"),
    Column("capacity", right=True),
    Column("allocatable", right=True),
    Column("held", right=True),
    Column("result"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "resource",
        nargs="?",
        metavar="RESOURCE|DRIVER",
        help="only this resource or driver, in detail; or pod, claim or node, before a NAME",
    )
    explain_cluster.add_arguments(parser)
    add_output_argument(parser)
    parser.add_argument(
        "--ask-plugins",
        action="store_true",
        help="also ask the plugins for their devices (off by default: some plugins lose an update "
        "when a second client reads their list)",
    )
    explain_fix.add_arguments(parser)
    add_node_arguments(parser)
    places = parser.add_argument_group("where to look")
    add_proxy_argument(places)
    places.add_argument(
        "--pod-resources",
        type=absolute_path,
        metavar="SOCKET",
        help="the kubelet's podresources socket (default: pod-resources/kubelet.sock beside "
        "--socket-dir, or in the kubelet's root directory)",
    )
    places.add_argument(
        "--plugin-registry",
        type=absolute_path,
        metavar="DIR",
        help="where a kubelet finds plugins by their sockets (default: plugins_registry at "
        "the same places)",
    )
    places.add_argument(
        "--host-root",
        type=absolute_path,
        metavar="DIR",
        help="root of the host's files: all these directories except /proc (default: /, or "
        "/host in a pod of `kubectl debug node`)",
    )
    for name, usual in (("dev", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")):
        places.add_argument(
            f"--{name}-root",
            type=absolute_path,
            metavar="DIR",
            help=f"where the host's {usual} is (default: {usual})",
        )
    places.add_argument(
        "--cdi-dir",
        action="append",
        type=absolute_path,
        metavar="DIR",
        help="directory instead of /etc/cdi and /var/run/cdi; may be given several times, later "
        "directories win",
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if one of them is a problem."""
    explain_cluster.take_words(args)
    if args.source:
        return _run_from(args)
    if args.name or args.cluster or args.kubeconfig or args.namespace:
        _check_no_repair(args)
        return explain_cluster.run(args)
    explain_fix.check_arguments(args)
    places = _places(args)
    report, facts, repairs = asyncio.run(_look(args, places))
    if args.bundle:
        from kubedevices.explain.bundle import write_node

        write_node(args.bundle, [args.resource] if args.resource else [], report, facts)
    if args.output == "table":
        _print_report(report, args.resource)
    document = report.as_dict()
    if args.fix:
        document |= {"repairs": explain_fix.carry_out(args, places, repairs)}
    if args.output != "table":
        print_document(document, args.output)
    if args.yes and any(each["done"] for each in document["repairs"]):
        report, _, _ = asyncio.run(_look(args, places))
    return 1 if report.result is Outcome.PROBLEM else 0


async def _look(
    args: argparse.Namespace, places: "HostPaths"
) -> "tuple[Diagnosis, NodeFacts, tuple[Repair, ...]]":
    from kubedevices.explain.on_node.diagnosis import judge
    from kubedevices.explain.on_node.look_node import look_at_node

    subject = args.resource or ""
    facts = await look_at_node(places, subject, ask_plugins=args.ask_plugins)
    report = await asyncio.to_thread(judge, facts, subject)
    return report, facts, await explain_fix.find(args, facts)


def _check_no_repair(args: argparse.Namespace) -> None:
    if args.fix or args.yes:
        raise UsageError("--fix repairs this node: use it there, without the API server")


def _run_from(args: argparse.Namespace) -> int:
    """Answer from a bundle: about its own subject, unless the words name another one."""
    from kubedevices.explain.bundle import read_bundle

    _check_no_repair(args)
    bundle = read_bundle(args.source)
    words = tuple(each for each in (args.resource, args.name) if each) or bundle.subject
    if (report := bundle.answer) is not None:
        if words != bundle.subject:
            known = " ".join(bundle.subject) or "the whole node"
            raise UsageError(f"this bundle has the answer about {known} alone: leave out the words")
        if args.output == "table":
            _print_report(report, words[0] if words else None)
        else:
            print_document(report.as_dict(), args.output)
        return 1 if report.result is Outcome.PROBLEM else 0
    args.resource, args.name = (*words, None, None)[:2]
    return explain_cluster.run(args, bundle.cluster)


def _print_report(report: "Diagnosis", subject: str | None) -> None:
    findings = [*report.findings]
    if subject is not None:
        findings += [found for each in report.resources for found in each.findings]
    shown = _print_findings(_in_directory(findings, report.socket_dir))
    if subject is None:
        shown += _print_summary(report)
    _print_count(shown)


def _places(args: argparse.Namespace) -> "HostPaths":
    from kubedevices.explain.on_node.host_paths import HostPaths, find_host_root

    is_usual = args.socket_dir == DEVICE_PLUGIN_DIR
    host_root = args.host_root or (find_host_root() if is_usual else Path("/"))
    state_dir = args.state_dir or (None if is_usual else default_state_dir(args.socket_dir))
    given = {
        "socket_dir": None if is_usual else args.socket_dir,
        "state_dir": state_dir,
        "pod_resources": args.pod_resources,
        "plugin_registry": args.plugin_registry,
        "proxy_state_dir": args.proxy_state_dir,
        "dev_root": args.dev_root,
        "proc_root": args.proc_root,
        "sysfs_root": args.sysfs_root,
        "cdi_dirs": tuple(args.cdi_dir) if args.cdi_dir else None,
    }
    return HostPaths.below(
        host_root, **{name: value for name, value in given.items() if value is not None}
    )


def _print_findings(findings: Iterable[Finding]) -> list[str]:
    """Print a paragraph per step; return the results that were printed.

    A terminal gets lines of its width, a pipe gets lines without a limit.
    """
    merged = _merged(findings)
    for each in merged:
        head = f"{each.result:8} {each.step:15} "
        first, *others = _lines(each)
        print_line((f"{each.result:8}", _STYLES[each.result]), head[8:] + first)
        for line in others:
            print_line(" " * _INDENT + line)
    return [str(each.result) for each in merged]


def _in_directory(findings: Iterable[Finding], directory: Path) -> Iterator[Finding]:
    """Shorten paths in the plugin directory to file names: another line names the directory."""
    for each in findings:
        yield replace(each, looked_at=each.looked_at.removeprefix(f"{directory}/"))


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """Merge equal findings of several devices; the command is the command of the first device."""
    alike: dict[object, list[Finding]] = {}
    for each in in_order(findings):
        alike.setdefault((each.step, each.result, each.found, each.advice), []).append(each)
    return [
        replace(
            first, looked_at=some_of(dict.fromkeys(each.looked_at for each in (first, *others)))
        )
        for first, *others in alike.values()
    ]


def _lines(finding: Finding) -> Iterator[str]:
    """Yield the finding, then its advice and its command, if any; a command is not wrapped."""
    advice = f"→ {finding.advice}" if finding.advice else ""
    for text in filter(None, (f"{finding.looked_at}: {finding.found}", advice)):
        yield from terminal.wrapped(text, _INDENT, least=30)
    if finding.command:
        yield f"$ {one_line(finding.command)}"


def _print_summary(report: "Diagnosis") -> list[str]:
    """Print a line per resource, then the problems and warnings; return the results printed.

    Resources with the same problems share a paragraph.
    """
    print_line()
    rows = [each.as_dict() for each in report.resources]
    print_listing(rows, _SUMMARY, "table", empty="no resource is known here")
    alike: dict[tuple[Finding, ...], list[str]] = {}
    for each in report.resources:
        if reported := tuple(finding for finding in each.findings if finding.result in _REPORTED):
            reported = tuple(_in_directory(reported, report.socket_dir))
            alike.setdefault(reported, []).append(each.resource)
    shown = []
    for findings, names in alike.items():
        print_line()
        print_line(some_of(names))
        shown += _print_findings(findings)
    return shown


def _print_count(shown: Iterable[str]) -> None:
    """Print the number of problems as the last line."""
    counts = Counter(shown)
    problems, warnings, unknowns = (counts[each] for each in ("problem", "warning", "unknown"))
    summary = counted(problems, "problem") if problems else "no problem"
    summary += f", {counted(warnings, 'warning')}" if warnings else ""
    style = _STYLES["problem" if problems else "warning" if warnings else "ok"]
    print_line()
    print_line((summary, style), f", {unknowns} unknown" if unknowns else "")
