"""`kubedevices expose`: serves devices of this host, which a YAML file chooses."""

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.shared.output import add_output_argument, dump, print_schema
from kubedevices.cli.shared.serving import (
    add_host_arguments,
    add_serving_arguments,
    kubelet_files,
    runner_options,
    serve_plugin,
    serving_state_dir,
    some_path,
)
from kubedevices.errors import UsageError
from kubedevices.errors.words import counted
from kubedevices.host.terminal import print_line, print_text, print_to_stderr

if TYPE_CHECKING:
    from kubedevices.expose.scanner import ExposeScanner
    from kubedevices.plugin.allocate_response import Inject

NAME = "expose"
HELP = """\
serve devices of this host, chosen by a profile or a YAML file

The file is read again when it changes, and on SIGHUP. To see the devices without serving them, use
`kubedevices scan --config FILE`.
"""
EXAMPLES = """\
example of a file:
  version: 1
  namespace: devices.example.com
  resources:
  - name: serial  # pods want devices.example.com/serial
    match: [{path: /dev/ttyUSB*}]  # each match is a device
    container: {path: "/dev/ttyS{index}"}
    env: {SERIAL_PORT: "{container_path}"}

examples:
  kubedevices expose --config host-devices.yaml
  kubedevices expose --config host-devices.yaml --socket-dir ~/kd
  kubedevices expose --config host-devices.yaml --check
  kubedevices expose --config host-devices.yaml --dry-run ttyUSB0 ttyUSB1
  kubedevices expose --list-profiles
  kubedevices expose --profile serial --profile fuse
  kubedevices expose --profile serial --print > host-devices.yaml
  kubedevices expose --convert generic-device-plugin.yaml > host-devices.yaml
  kubedevices expose --schema > expose.schema.json
"""
LOG_LEVEL = "info"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    add_host_arguments(parser)
    parser.add_argument(
        "--domain",
        metavar="DOMAIN",
        help="with --profile: the part of resource names before the slash (default: "
        "devices.example.com)",
    )
    group = parser.add_argument_group("instead of serving")
    only = group.add_mutually_exclusive_group()
    only.add_argument(
        "--check", action="store_true", help="read the file, print every mistake, and exit"
    )
    only.add_argument(
        "--dry-run",
        nargs="+",
        metavar="ID",
        help="scan once and print what a container with these devices gets; NAME/ID names the "
        "resource of the file",
    )
    only.add_argument(
        "--list-profiles",
        action="store_true",
        help="print the ready configurations, and how many devices each finds on this host",
    )
    only.add_argument(
        "--print",
        action="store_true",
        help="print the file of --profile, to be changed and used with --config",
    )
    only.add_argument(
        "--schema", action="store_true", help="print the file's JSON schema, for editors"
    )
    only.add_argument(
        "--convert",
        type=some_path,
        metavar="FILE",
        help="convert a file of generic-device-plugin or smarter-device-manager, or the DaemonSet, "
        "ConfigMap or argument list of one",
    )
    add_output_argument(parser)
    add_serving_arguments(parser, inject="nodes")


def keeps_running(args: argparse.Namespace) -> bool:
    """Return False for options that print something instead of serving."""
    return not (
        args.check
        or args.dry_run
        or args.list_profiles
        or args.print
        or args.schema
        or args.convert
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C, or print what an option asks for."""
    if args.schema:
        from kubedevices.expose.config import ExposeConfig

        print_schema(ExposeConfig, "kubedevices expose")
        return 0
    if args.convert:
        return print_converted(args.convert)
    if args.list_profiles:
        from kubedevices.cli.ready_plugins.expose_printing import print_profiles

        print_profiles(args)
        return 0
    if args.config is None and args.profile is None:
        raise UsageError("expose needs --config FILE or --profile NAME")
    if args.profile is None and (args.domain or args.print):
        option = "--domain" if args.domain else "--print"
        raise UsageError(f"{option} needs --profile: a file has its own namespace and text")
    if args.print:
        from kubedevices.cli.ready_plugins.expose_printing import print_profile

        print_profile(args)
    elif args.check:
        scanner = scanner_of(args, args.inject)
        scanner.warn_of_shared_files()
        count = counted(len(scanner.config.resources), "resource")
        print_line(f"{args.config or ', '.join(args.profile)}: {count}, no mistakes")
    elif args.dry_run:
        from kubedevices.cli.ready_plugins.expose_printing import print_answer

        print_answer(scanner_of(args, args.inject), args)
    else:
        serve(args)
    return 0


def serve(args: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C; SIGHUP reads the file again."""
    # Ignore SIGHUP until the file was read for the first time: by default it ends the process.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        scanner = scanner_of(args, args.inject)
        remember_names(args, scanner)
        options = runner_options(args)
        options["dev_root"] = args.dev_root
        options["inject"] = "both"  # the scanner has already chosen for every device
        signal.signal(signal.SIGHUP, lambda *_: scanner.reload())
        serve_plugin(args, scanner, scanner.config.namespace, options)
    finally:
        # Otherwise our caller, and programs that it starts, would ignore SIGHUP too.
        signal.signal(signal.SIGHUP, before)


def remember_names(args: argparse.Namespace, scanner: "ExposeScanner") -> None:
    """Let devices keep the IDs that an earlier process gave them, or that somebody holds."""
    from kubedevices.expose.names_file import KeptNames
    from kubedevices.expose.witnesses import Witnesses
    from kubedevices.rules.cordon import FILE_NAME

    domain, state_dir = scanner.config.namespace, serving_state_dir(args).absolute()
    checkpoint, pod_resources = kubelet_files(args)
    scanner.remember(
        KeptNames(domain, state_dir),
        Witnesses(
            domain,
            checkpoint=checkpoint,
            pod_resources=pod_resources,
            cordoned=state_dir / FILE_NAME,
        ),
    )


def scanner_of(args: argparse.Namespace, inject: "Inject" = "nodes") -> "ExposeScanner":
    """Return the scanner of `--config` or `--profile`; raises `KubedevicesError`.

    `inject` is for resources whose configuration does not choose it.
    """
    from kubedevices.expose.scanner import ExposeScanner, check_dev_root

    if args.profile is None:
        return ExposeScanner.from_file(args.config, dev_root=args.dev_root, inject=inject)
    from kubedevices.expose.read_profiles import DOMAIN, combine

    check_dev_root(args.dev_root)
    config = combine(args.profile, args.domain or DOMAIN)
    return ExposeScanner(config, dev_root=args.dev_root, inject=inject)


def print_converted(file: Path) -> int:
    """Print the file of another plugin as a file of expose, with notes on the differences.

    Return 1 if a part of it is left out.
    """
    from kubedevices.expose.foreign_configs import convert

    converted = convert(file)
    print_line(f"# Converted from {file.name}.")
    for note in converted.notes:
        print_line(f"# Note: {note}.")
    for problem in converted.left_out:
        print_line(f"# Not converted: {problem}.")
    if converted.left_out:
        print_to_stderr("kubedevices: some entries are not converted, see the comments")
    print_text(dump(converted.document, "yaml"))
    return 1 if converted.left_out else 0
