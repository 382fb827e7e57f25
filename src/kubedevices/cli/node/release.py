"""`kubedevices release`: takes the devices of a pod back, or of a claim that no pod uses.

The keys of `-o json` and `-o yaml` are stable: `namespace`, `name`, `uid` and `devices`
(resource to device IDs) for a pod, `driver`, `claim` and `devices` for a claim.
"""

import argparse
import asyncio

from kubedevices.cli.shared.node_client import add_node_arguments, ask_to_allocate
from kubedevices.cli.shared.output import Column, add_output_argument, print_listing
from kubedevices.host.terminal import print_line
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, POD_RESOURCES

NAME = "release"
HELP = "release the devices of a pod, or of a claim that no pod uses"
EXAMPLES = """\
examples:
  kubedevices release train --socket-dir ~/kd
  kubedevices release default/train --socket-dir ~/kd
  kubedevices release --claim default/train
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "pod", metavar="POD", nargs="?", help="name, namespace/name or uid of the pod"
    )
    what.add_argument(
        "--claim",
        metavar="NAMESPACE/NAME",
        help="free the devices of this ResourceClaim, which a DRA driver on this host has prepared "
        "and which no container has; also the uid of the claim",
    )
    add_output_argument(parser)
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Release the pod or the claim, and print the devices."""
    if args.claim is not None:
        return _release_claim(args)
    answer = ask_to_allocate(args, lambda client: client.release(args.pod))
    if args.output == "table":
        full_name = f"{answer['namespace']}/{answer['name']}" if answer["name"] else answer["uid"]
        print_line(f"pod {full_name} is released")
    rows = [
        {"resource": resource, "devices": device_ids}
        for resource, device_ids in answer["devices"].items()
    ]
    columns = (Column("resource"), Column("devices"))
    print_listing(rows, columns, args.output, document=answer, empty="the pod held no devices")
    return 0


def _release_claim(args: argparse.Namespace) -> int:
    from kubedevices.dra.claim_release import release_claim
    from kubedevices.explain.on_node.host_paths import KUBELET_ROOTS, below_kubelet_root
    from kubedevices.explain.on_node.look_processes import kubelets

    roots = [args.socket_dir.parent]
    if args.socket_dir == DEVICE_PLUGIN_DIR:
        roots += [*KUBELET_ROOTS, *(each.root_dir for each in kubelets())]
    pod_resources = below_kubelet_root(args.socket_dir, roots, POD_RESOURCES)
    released = asyncio.run(release_claim(args.claim, roots, pod_resources))
    rows = [each._asdict() | {"devices": list(each.devices)} for each in released]
    columns = (Column("driver"), Column("claim"), Column("devices"))
    print_listing(rows, columns, args.output, document={"released": rows}, empty="")
    return 0
