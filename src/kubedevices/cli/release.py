"""`kubedevices release`: takes the devices of a pod back.

The keys of `-o json` and `-o yaml` are stable: `namespace`, `name`, `uid` and `devices`
(resource to device IDs).
"""

import argparse

from kubedevices.cli.node_client import add_node_arguments, ask_to_allocate
from kubedevices.cli.output import Column, add_output_argument, print_listing
from kubedevices.terminal import print_line

NAME = "release"
HELP = "release a pod's devices"
EXAMPLES = """\
examples:
  kubedevices release train --socket-dir ~/kd
  kubedevices release default/train --socket-dir ~/kd
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("pod", metavar="POD", help="name, namespace/name or uid of the pod")
    add_output_argument(parser)
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Release the pod and print its devices."""
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
