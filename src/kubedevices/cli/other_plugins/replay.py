"""`kubedevices replay`: serves a record as a device plugin."""

import argparse
import math

from kubedevices.cli.shared.serving import (
    add_serving_arguments,
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
        type=_speed,
        default=1.0,
        metavar="FACTOR",
        help="speed of the replay: 2 is twice as fast as the record, 0.5 half as fast (default: 1)",
    )
    parser.add_argument(
        "--domain", default="", help="serve only this domain, if the record has several domains"
    )
    add_serving_arguments(parser)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return speed


def keeps_running(_: argparse.Namespace) -> bool:
    """Return True: the kubelet needs the process, even if nobody reads its log."""
    return True


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from kubedevices.proxy.replay import OPTIONS, Replay

    scanner = Replay(*args.files, speed=args.speed, domain=args.domain)
    serve_plugin(args, scanner, scanner.domain, {**OPTIONS, **runner_options(args)})
    return 0
