"""`kubedevices expose`: serve this host's devices, chosen in a YAML file."""

import argparse
import signal
from pathlib import Path

from kubedevices.cli.serving import add_serving_arguments, runner_options

NAME = "expose"
HELP = """\
serve this host's devices, chosen in a YAML file

The file is read again when it changes, and on SIGHUP. `kubedevices scan --config FILE` shows what
it would expose, without serving anything.
"""
EXAMPLES = """\
example of a file:
  version: 1
  namespace: devices.example.com
  resources:
  - name: serial                            # pods ask for devices.example.com/serial
    match: [{path: /dev/ttyUSB*}]           # every match becomes a device
    container: {path: "/dev/ttyS{index}"}   # what the container calls it
    env: {SERIAL_PORT: "{container_path}"}

examples:
  kubedevices expose --config host-devices.yaml
  kubedevices expose --config host-devices.yaml --socket-dir /tmp/kd
"""
LOG_LEVEL = "info"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="which devices, as YAML"
    )
    parser.add_argument(
        "--dev-root",
        type=Path,
        default=Path("/dev"),
        metavar="DIR",
        help="where the host's /dev is seen, for example in a container (default: /dev)",
    )
    add_serving_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from kubedevices.builtin.expose import ExposeScanner

    scanner = ExposeScanner.from_file(args.config, dev_root=args.dev_root)
    options = runner_options(args)
    options["dev_root"] = args.dev_root
    from kubedevices.plugin.runner import run_until_signal

    signal.signal(signal.SIGHUP, lambda *_: scanner.reload())
    run_until_signal(scanner, domain=scanner.config.namespace, **options)
    return 0
