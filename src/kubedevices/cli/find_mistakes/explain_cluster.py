"""`kubedevices explain` about a cluster, a node, a pod or a claim: asks the API server.

The keys of `-o json` and `-o yaml` are stable: `subject`, `result` (ok, unknown, warning,
problem), `cause`, `evidence` (a list of `kind`, `about`, `reason` and `thing`), `advice`,
`command`, `notes` and `unread`.
"""

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubedevices.cli.shared.cluster_client import add_cluster_arguments, connect
from kubedevices.cli.shared.node_client import absolute_path
from kubedevices.cli.shared.output import print_document
from kubedevices.errors import UsageError
from kubedevices.host import terminal
from kubedevices.host.terminal import print_line

if TYPE_CHECKING:
    from kubedevices.dra.api_client import ApiClient
    from kubedevices.explain.in_cluster.answer import SubjectAnswer
    from kubedevices.explain.in_cluster.objects import ClusterObjects

SUBJECTS = ("pod", "claim", "node")
_ALSO = {
    **dict.fromkeys(("pods", "po"), "pod"),
    **dict.fromkeys(("claims", "resourceclaim", "resourceclaims"), "claim"),
    **dict.fromkeys(("nodes", "no"), "node"),
}
_ROOM = 30
"""Columns that a text needs at least."""

STYLES = {"ok": "green", "unknown": "dim", "warning": "yellow", "problem": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments about a pod or a claim."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="[NAMESPACE/]NAME of the pod or claim, NAME of the node",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="ask the API server about the cluster, or about RESOURCE|DRIVER in it",
    )
    add_cluster_arguments(parser, "namespace of the pod or claim, if its NAME has none")
    bundles = parser.add_argument_group("bug reports").add_mutually_exclusive_group()
    bundles.add_argument(
        "--bundle",
        type=absolute_path,
        metavar="FILE",
        help="write what was read into a new .tar.gz: of a cluster the objects, without "
        "environment, annotations and parameters; of a node the facts and findings",
    )
    bundles.add_argument(
        "--from",
        dest="source",
        type=absolute_path,
        metavar="FILE",
        help="answer from such a file, on any machine; of a cluster also about other subjects",
    )


def take_words(args: argparse.Namespace) -> None:
    """Read the words as kubectl would: `pods NAME` and `pod/NAME` are `pod NAME`."""
    kind, slash, name = (args.resource or "").partition("/")
    kind = _ALSO.get(kind, kind)
    if kind in SUBJECTS:
        args.resource, args.name = kind, name if slash and not args.name else args.name
        if not args.name:
            raise UsageError(f"the name is missing: kubedevices explain {kind} NAME")
    elif args.name:
        words = ", ".join(SUBJECTS)
        raise UsageError(
            f"{args.resource!r} is none of {words}: kubedevices explain pod NAME, for example"
        )


def run(args: argparse.Namespace, read: "ClusterObjects | None" = None) -> int:
    """Print the answer; return 1 for a problem, 3 without an answer. `read` are known objects."""
    answer = asyncio.run(_answer(args, read))
    if args.output == "table":
        _print(answer)
    else:
        print_document(answer.as_dict(), args.output)
    return answer.exit_code


async def _answer(args: argparse.Namespace, read: "ClusterObjects | None") -> "SubjectAnswer":
    from kubedevices.explain.in_cluster import judge_subject as judge

    kind = args.resource if args.resource in SUBJECTS else ""
    namespace, slash, name = (args.name or "").rpartition("/")
    is_node = kind == "node"
    if kind and ((slash and (is_node or not namespace)) or "/" in namespace or not name):
        raise UsageError(f"{args.name!r} is not {'' if is_node else '[NAMESPACE/]'}NAME")
    namespace = namespace or args.namespace or ""
    if read is None:
        api, usual_namespace = connect(args)
        namespace = namespace or usual_namespace
        read = await _read(api, kind, namespace, name)
    namespace = namespace or "default"
    if args.bundle:
        from kubedevices.explain.bundle import write_cluster

        about = f"{namespace}/{name}" if kind in ("pod", "claim") else args.name or ""
        write_cluster(args.bundle, [each for each in (args.resource, about) if each], read)
    return judge.explain(read, args.resource or "", namespace, name)


async def _read(api: "ApiClient", kind: str, namespace: str, name: str) -> "ClusterObjects":
    from kubedevices.explain.in_cluster.read_objects import look_at_all, look_at_cluster

    if kind in ("pod", "claim"):
        return await look_at_cluster(api, namespace, name if kind == "pod" else "")
    return await look_at_all(api, namespace)


def _print(answer: "SubjectAnswer") -> None:
    """Print the cause, then a line per device and node, then what helps.

    A terminal gets lines of its width; a pipe, and a command to paste, lines without a limit.
    """
    from kubedevices.explain.in_cluster.answer import summarised

    first, *others = terminal.wrapped(f"{answer.subject}: {answer.cause}", 9)
    print_line((f"{answer.result:8}", STYLES[answer.result]), f" {first}")
    for line in others:
        print_line(f"{'':9}{line}")
    if rows := [*summarised(answer.evidence)]:
        print_line()
        _print_rows(rows)
    limits = [*answer.notes, *(f"not read: {text}" for text in answer.unread)]
    if limits:
        print_line()
    for text in limits:
        for line in terminal.wrapped(text, 2):
            print_line(f"  {line}")
    if answer.advice or answer.command:
        print_line()
    if answer.advice:
        for number, line in enumerate(terminal.wrapped(answer.advice, 2)):
            print_line(f"{'  ' if number else '→ '}{line}")
    if answer.command:
        print_line(f"$ {answer.command}")


def _print_rows(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(about) for about, _ in rows)
    if terminal.wrap_width() and terminal.wrap_width() - width - 4 < _ROOM:
        width = 0  # each reason below what it is about
    for about, reason in rows:
        head = f"  {about:{width}}  " if width else "      "
        if about and not width:
            print_line(f"  {about}")
        for line in terminal.wrapped(reason, len(head)):
            print_line(f"{head}{line}".rstrip())
            head = " " * len(head)
