"""`kubedevices explain` about a cluster, a node, a pod or a claim: asks the API server.

The keys of `-o json` and `-o yaml` are stable: `subject`, `result` (ok, unknown, warning,
problem), `cause`, `evidence` (a list of `kind`, `about`, `reason` and `thing`), `advice`,
`command`, `notes` and `unread`.
"""

import argparse
import asyncio
from typing import TYPE_CHECKING

from kubedevices.cli.shared.cluster_client import add_cluster_arguments, connect
from kubedevices.cli.shared.node_client import absolute_path
from kubedevices.cli.shared.output import print_document
from kubedevices.errors import UsageError
from kubedevices.host.terminal import print_line

if TYPE_CHECKING:
    from kubedevices.dra.api_client import ApiClient
    from kubedevices.explain.answer import SubjectAnswer
    from kubedevices.explain.cluster import ClusterObjects

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


def run(args: argparse.Namespace, read: "ClusterObjects | None" = None) -> int:
    """Print the answer; return 1 for a problem, 3 without an answer. `read` are known objects."""
    answer = asyncio.run(_answer(args, read))
    if args.output == "table":
        _print(answer)
    else:
        print_document(answer.as_dict(), args.output)
    return answer.exit_code


async def _answer(args: argparse.Namespace, read: "ClusterObjects | None") -> "SubjectAnswer":
    from kubedevices.explain import judge_subject as judge

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
    if kind == "pod":
        return judge.explain_pod(read, namespace, name)
    if kind == "claim":
        return judge.explain_claim(read, namespace, name)
    if is_node:
        return judge.explain_node(read, name)
    return judge.explain_cluster(read, args.resource or "")


async def _read(api: "ApiClient", kind: str, namespace: str, name: str) -> "ClusterObjects":
    from kubedevices.explain.look_cluster import look_at_all, look_at_cluster

    if kind in ("pod", "claim"):
        return await look_at_cluster(api, namespace, name if kind == "pod" else "")
    return await look_at_all(api, namespace)


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
