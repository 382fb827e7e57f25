"""`kubedevices replay`: serves a record as a device plugin."""

import argparse
import math

from kubedevices.cli.shared.serving import (
    add_serving_arguments,
    number_type,
    runner_options,
    serve_plugin,
    some_path,
)

NAME = "replay"
HELP = """\
serve a record as a plugin: the same lists, the same answers

The first list is sent at once, the last list stays until the end. A call that is not in the record
is answered with an error. docs/record.md says how to make a record.
"""
EXAMPLES = """\
examples:
  kubedevices replay example.com_gpu.jsonl --socket-dir ~/kd
  kubedevices replay records/*.jsonl* --speed 60
"""
LOG_LEVEL = "info"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "files", nargs="+", type=some_path, metavar="FILE", help="files of a record, in any order"
    )
    parser.add_argument(
        "--speed",
        type=number_type("a number above 0", lambda speed: 0 < speed < math.inf),
        default=1.0,
        metavar="FACTOR",
        help="speed of the replay: 2 is twice as fast as the record, 0.5 half as fast (default: 1)",
    )
    parser.add_argument(
        "--domain", default="", help="serve only this domain, if the record has several domains"
    )
    add_serving_arguments(parser)


def keeps_running(_: argparse.Namespace) -> bool:
    """Return True: the kubelet needs the process, even if nobody reads its log."""
    return True


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from kubedevices.proxy.replay import OPTIONS, Replay

    scanner = Replay(*args.files, speed=args.speed, domain=args.domain)
    serve_plugin(args, scanner, scanner.domain, {**OPTIONS, **runner_options(args)})
    return 0
