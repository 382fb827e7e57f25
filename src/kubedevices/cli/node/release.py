"""`kubedevices release`: takes the devices of a pod back, or of a claim that no pod uses.

The keys of `-o json` and `-o yaml` are stable: `namespace`, `name`, `uid` and `devices`
(resource to device IDs) for a pod, `driver`, `claim` and `devices` for a claim.
"""

import argparse
import asyncio

from kubedevices.cli.shared.node_client import (
    add_host_root_argument,
    add_node_arguments,
    ask_to_allocate,
    look_below_host_root,
)
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
        help="free the devices of this ResourceClaim, which a DRA driver of kubedevices on this "
        "host has prepared and which no container has; also the uid of the claim",
    )
    add_host_root_argument(parser)
    add_output_argument(parser)
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Release the pod or the claim, and print the devices."""
    if args.claim is not None:
        return _release_claim(args)
    look_below_host_root(args)
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
    from kubedevices.explain.on_node.host_paths import (
        HostPaths,
        below_kubelet_root,
        find_host_root,
    )
    from kubedevices.explain.on_node.look_processes import kubelets

    socket_dir, roots = args.socket_dir, [args.socket_dir.parent]
    if socket_dir == DEVICE_PLUGIN_DIR:
        host = HostPaths.below(args.host_root or find_host_root())
        running = (host.on_host(each.root_dir) for each in kubelets(host_root=host.host_root))
        socket_dir = host.socket_dir
        roots = [socket_dir.parent, *host.kubelet_roots, *running]
    pod_resources = below_kubelet_root(socket_dir, roots, POD_RESOURCES)
    released = asyncio.run(release_claim(args.claim, roots, pod_resources))
    rows = [each._asdict() | {"devices": list(each.devices)} for each in released]
    columns = (Column("driver"), Column("claim"), Column("devices"))
    print_listing(rows, columns, args.output, document={"released": rows}, empty="")
    return 0
