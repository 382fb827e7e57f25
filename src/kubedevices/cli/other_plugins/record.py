"""`kubedevices record`: records the lists and calls between device plugins and the kubelet."""

import argparse
import os

from kubedevices.cli.other_plugins.proxy import add_place_arguments, serve_rules
from kubedevices.cli.shared.dra_serving import OF_DRIVERS
from kubedevices.cli.shared.serving import some_path
from kubedevices.errors import CannotAsk

NAME = "record"
HELP = """\
record what device plugins and the kubelet say, for kubedevices replay

The recorder is a `kubedevices proxy` that changes nothing: plugins register in --plugin-dir. Each
resource gets a file in DIRECTORY, such as nvidia.com_gpu.jsonl. docs/record.md describes the
format.
"""
EXAMPLES = """\
examples:
  kubedevices record /var/log/kubedevices
  kubedevices record --redact-env records --plugin-dir ~/inside --socket-dir ~/kd
"""
LOG_LEVEL = "info"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("directory", type=some_path, metavar="DIRECTORY")
    parser.add_argument(
        "--max-size",
        type=_mebibytes,
        default=10,
        metavar="MIB",
        help="size of a file after which a new file begins; a resource keeps 5 files (default: 10)",
    )
    parser.add_argument(
        "--redact-env",
        action="store_true",
        help="leave out the values of environment variables",
    )
    add_place_arguments(
        parser,
        "with --listen: /metrics also says which container holds which device; the source is this "
        "podresources socket of the kubelet",
    )
    parser.set_defaults(mode="device-plugin", **dict.fromkeys(OF_DRIVERS))


def _mebibytes(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def keeps_running(_: argparse.Namespace) -> bool:
    """Return True: the kubelet needs the process, even if nobody reads its log."""
    return True


def run(args: argparse.Namespace) -> int:
    """Serve and record until SIGTERM or Ctrl-C."""
    from kubedevices.proxy.live_rules import LiveRules
    from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
    from kubedevices.rules.record_file import RecordRule

    directory = args.directory.absolute()
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise CannotAsk(f"cannot record in {directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise CannotAsk(f"cannot record in {directory}: it cannot be written to")
    record = RecordRule(
        file=f"{directory}/{{domain}}_{{name}}.jsonl",
        max_size=args.max_size * 2**20,
        redact_env=args.redact_env,
    )
    rule = ProxyRule(record=record, repair=False)
    serve_rules(args, LiveRules(ProxyConfig(resources={"*/*": rule})))
    return 0
