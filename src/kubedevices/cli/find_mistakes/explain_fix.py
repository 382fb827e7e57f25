"""`kubedevices explain --fix`: shows the repairs of a node, and does them with `--yes`."""

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from kubedevices.errors import UsageError
from kubedevices.errors.words import counted
from kubedevices.host.terminal import print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubedevices.explain.on_node.host_paths import HostPaths
    from kubedevices.explain.on_node.look_node import NodeFacts
    from kubedevices.explain.on_node.repairs import Repair

_WIDTH = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments about repairs."""
    parser.add_argument(
        "--fix",
        action="store_true",
        help="also show the repairs of this node: what each does, why it is safe, what it changes. "
        "Without --yes nothing is changed",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="with --fix: do the repairs of the state of kubedevices. Each looks at its condition "
        "again before. The state of other vendors is never changed",
    )


def check_arguments(args: argparse.Namespace) -> None:
    """Raise `UsageError` for `--yes` without `--fix`."""
    if args.yes and not args.fix:
        raise UsageError("--yes does the repairs of --fix: write both")


async def find(args: argparse.Namespace, facts: "NodeFacts") -> "tuple[Repair, ...]":
    """Return the repairs about the subject of the arguments; none without `--fix`."""
    if not args.fix:
        return ()
    from kubedevices.explain.on_node.do_repairs import repairs_of

    return await repairs_of(facts, args.resource or "")


def carry_out(
    args: argparse.Namespace, places: "HostPaths", repairs: "Sequence[Repair]"
) -> list[dict[str, Any]]:
    """Show the repairs, do them with `--yes`, and return them as objects, with what happened."""
    is_shown = args.output == "table"
    if is_shown:
        _show(repairs)
    found = [{**each.as_dict(), "done": False, "problem": ""} for each in repairs]
    if args.yes:
        for repair, problem in asyncio.run(_do(args, places, repairs)):
            number = repairs.index(repair)
            found[number] |= {"done": not problem, "problem": problem}
            if is_shown:
                print_line(f"{number + 1}. {f'not done: {problem}' if problem else 'done'}")
    elif is_shown and (count := sum(each.is_ours for each in repairs)):
        print_line(f"nothing was changed: --fix --yes would do {counted(count, 'repair')}")
    return found


async def _do(
    args: argparse.Namespace, places: "HostPaths", repairs: "Sequence[Repair]"
) -> "list[tuple[Repair, str]]":
    from kubedevices.explain.on_node.do_repairs import do_repairs

    return [each async for each in do_repairs(places, repairs, ask_plugins=args.ask_plugins)]


def _show(repairs: "Sequence[Repair]") -> None:
    print_line()
    if not repairs:
        print_line("there is nothing to repair")
    for number, each in enumerate(repairs, 1):
        print_line(f"{number}. {each.what}")
        word = "safe" if each.is_ours else "for you"
        for head, text in ((word, each.why), ("changes", each.changes)):
            print_line(f"   {head:{_WIDTH}}{text}")
        if each.command:
            print_line(f"   $ {each.command}")
        print_line()
