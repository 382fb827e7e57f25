"""`kubedevices run`: serves a scanner as a device plugin until SIGTERM or Ctrl-C."""

import argparse

from kubedevices.cli.shared.serving import add_serving_arguments, runner_options, serve_plugin
from kubedevices.cli.write.scanner_loader import add_scanner_argument, load_scanner

NAME = "run"
HELP = """\
serve a plugin written in Python

Registers every device type of the scanner as DOMAIN/TYPE, and registers again after every kubelet
restart.
"""
EXAMPLES = """\
examples:
  kubedevices run widgets.py:Widgets --domain example.com
  kubedevices run mypackage.widgets:Widgets --domain example.com --arg dev=/host/dev
  kubedevices run widgets.py:Widgets --domain example.com --socket-dir ~/kd
"""
LOG_LEVEL = "info"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    add_scanner_argument(parser)
    parser.add_argument(
        "--domain", required=True, help="the part of the resource names before the slash"
    )
    add_serving_arguments(parser)


def keeps_running(_: argparse.Namespace) -> bool:
    """Return True: the kubelet needs the process, even if nobody reads its log."""
    return True


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    scanner = load_scanner(args.scanner, args.constructor_arguments)
    serve_plugin(args, scanner, args.domain, runner_options(args))
    return 0
