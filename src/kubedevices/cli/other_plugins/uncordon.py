"""`kubedevices uncordon`: lets new pods have a cordoned device again.

The keys of `-o json` and `-o yaml` are stable: `uncordoned`, each with `resource`, `id`,
`reason` and `since` of its entry in the list.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubedevices.cli.other_plugins.cordon import (
    add_devices_argument,
    cordon_file,
    parse_devices,
)
from kubedevices.cli.shared.node_client import (
    add_host_root_argument,
    add_node_arguments,
    look_below_host_root,
)
from kubedevices.cli.shared.output import add_output_argument, print_document
from kubedevices.errors import KubedevicesError, UsageError
from kubedevices.errors.words import did_you_mean
from kubedevices.host.terminal import print_line

if TYPE_CHECKING:
    from kubedevices.rules.cordon_file import CordonEntry

NAME = "uncordon"
HELP = "let new pods have a cordoned device again"
EXAMPLES = """\
examples:
  kubedevices uncordon example.com/gpu/GPU-1
  kubedevices uncordon --all
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    add_devices_argument(parser)
    parser.add_argument("--all", action="store_true", help="uncordon every device")
    add_output_argument(parser)
    add_node_arguments(parser)
    add_host_root_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Uncordon the devices; if one of them is not cordoned, raise an error and change nothing."""
    from kubedevices.rules.cordon_file import as_dict, change_cordoned

    look_below_host_root(args)
    if args.all and args.devices:
        raise UsageError("--all uncordons every device: leave out RESOURCE/ID")
    wanted = () if args.all else parse_devices(args.devices)
    gone: list[CordonEntry] = []

    def leave(before: "tuple[CordonEntry, ...]") -> "list[CordonEntry]":
        chosen = {each[:2] for each in before} if args.all else set(wanted)
        check_cordoned(before, wanted)
        gone.extend(each for each in before if each[:2] in chosen)
        return [each for each in before if each[:2] not in chosen]

    change_cordoned(cordon_file(args), leave)
    if args.output != "table":
        print_document({"uncordoned": [*map(as_dict, gone)]}, args.output)
        return 0
    for each in gone:
        print_line(f"{each.resource}/{each.id} is uncordoned")
    if not gone:
        print_line("no device is cordoned")
    return 0


def check_cordoned(before: "Sequence[CordonEntry]", wanted: Sequence[tuple[str, str]]) -> None:
    """Raise `KubedevicesError` for the first device that is not cordoned."""
    known = {f"{each.resource}/{each.id}" for each in before}
    for resource, device_id in wanted:
        name = f"{resource}/{device_id}"
        if name not in known:
            raise KubedevicesError(f"{name} is not cordoned{did_you_mean(name, known)}")
