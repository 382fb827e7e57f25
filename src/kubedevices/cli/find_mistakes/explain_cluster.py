"""`kubedevices explain` about a cluster, a node, a pod or a claim: asks the API server.

The keys of `-o json` and `-o yaml` are stable: `subject`, `result` (ok, unknown, warning,
problem), `cause`, `evidence` (a list of `kind`, `about`, `reason` and `thing`), `advice`,
`command`, `notes` and `unread`.
"""

import argparse
import asyncio
from typing import TYPE_CHECKING

from kubedevices.cli.shared.cluster_client import add_cluster_arguments, connect
from kubedevices.cli.shared.output import print_document
from kubedevices.errors import UsageError
from kubedevices.host.terminal import print_line

if TYPE_CHECKING:
    from kubedevices.explain.answer import SubjectAnswer

SUBJECTS = ("pod", "claim", "node")
_STYLES = {"ok": "green", "unknown": "dim", "warning": "yellow", "problem": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments about a pod or a claim."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="[NAMESPACE/]NAME of the pod or claim, NAME of the node",
    )
    add_cluster_arguments(parser, "namespace of the pod or claim, if its NAME has none")


def run(args: argparse.Namespace) -> int:
    """Print the answer about a pod or a claim; return 1 for a problem, 3 without an answer."""
    answer = asyncio.run(_answer(args))
    if args.output == "table":
        _print(answer)
    else:
        print_document(answer.as_dict(), args.output)
    return answer.exit_code


async def _answer(args: argparse.Namespace) -> "SubjectAnswer":
    from kubedevices.explain import judge_subject as judge
    from kubedevices.explain.look_cluster import look_at_all, look_at_cluster

    namespace, slash, name = (args.name or "").rpartition("/")
    if args.resource not in SUBJECTS:
        api, namespace = connect(args)
        return judge.explain_cluster(await look_at_all(api, namespace), args.resource or "")
    is_node = args.resource == "node"
    if (slash and (is_node or not namespace)) or "/" in namespace or not name:
        raise UsageError(f"{args.name!r} is not {'' if is_node else '[NAMESPACE/]'}NAME")
    api, usual_namespace = connect(args)
    namespace = namespace or usual_namespace
    if is_node:
        return judge.explain_node(await look_at_all(api, namespace), name)
    if args.resource == "pod":
        return judge.explain_pod(await look_at_cluster(api, namespace, name), namespace, name)
    return judge.explain_claim(await look_at_cluster(api, namespace), namespace, name)


def _print(answer: "SubjectAnswer") -> None:
    """Print the cause, then a line per device and node, then what helps."""
    from kubedevices.explain.answer import summarised

    subject = f" {answer.subject}: {answer.cause}"
    print_line((f"{answer.result:8}", _STYLES[answer.result]), subject)
    rows = [*summarised(answer.evidence)]
    if rows:
        print_line()
    width = max((len(about) for about, _ in rows), default=0)
    for about, reason in rows:
        print_line(f"  {about:{width}}  {reason}".rstrip())
    limits = [*answer.notes, *(f"not read: {text}" for text in answer.unread)]
    if limits:
        print_line()
    for text in limits:
        print_line(f"  {text}")
    if answer.advice or answer.command:
        print_line()
    if answer.advice:
        print_line(f"→ {answer.advice}")
    if answer.command:
        print_line(f"$ {answer.command}")
