"""The options of `kubedevices check`."""

import argparse
from collections.abc import Mapping

from kubedevices.cli.shared.output import add_output_argument
from kubedevices.cli.shared.serving import some_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "target",
        nargs="*",
        metavar="SOCKET_DIR | -- COMMAND ARG",
        help="the directory in which the plugin registers, or the command that starts the program",
    )
    parser.add_argument("--list", action="store_true", help="list all checks and exit")
    parser.add_argument("--explain", metavar="ID", help="describe a check and exit")
    _add_choice(parser)
    _add_driver_arguments(parser)
    _add_trigger_arguments(parser)
    _add_start_arguments(parser)
    _add_verdict_arguments(parser)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is checked")
    group.add_argument("--resource", default="", metavar="NAME", help="only this resource")
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--dra", action="store_true", help="the program is a DRA driver")
    kind.add_argument("--device-plugin", action="store_true", help="it is a device plugin")
    chosen = {"--only": "run only these", "--skip": "leave these out"}
    for name, what in chosen.items():
        text = f"{what}: IDs of checks or themes"
        group.add_argument(name, nargs="+", action="extend", default=[], metavar="ID", help=text)
    group.add_argument(
        "--kubelet",
        default="",
        metavar="VERSION",
        help="judge for these kubelets: 1.36, or 1.34-1.36 (default: the supported versions)",
    )
    flags = {
        "quick": "skip checks that wait long, which the report names; wait less in the others",
    }
    _add_flags(group, flags)


def _add_driver_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("DRA drivers")
    group.add_argument(
        "--manifests",
        type=some_path,
        action="append",
        default=[],
        metavar="FILE",
        help="manifests of the DRA driver: compare its ClusterRole with what it does",
    )
    files = {
        "parameters": "two YAML documents: two valid parameter sets of the DRA driver, which it "
        "may get as opaque configuration, with different values of the same fields",
    }
    _add_files(group, files)
    flags = {
        "long": "also wait 35 minutes without a call, 2 without a kubelet and 1 without the API "
        "server, and kill the DRA driver 200 times",
        "show-requests": "show what the DRA driver asked the API server of the check, and how "
        "often",
    }
    _add_flags(group, flags)


def _add_trigger_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("changes of the devices")
    group.add_argument(
        "--trigger",
        default="",
        metavar="[RESOURCE=]CMD",
        help="a shell command that changes the devices; {n} and $KUBEDEVICES_TRIGGER_NUMBER are "
        "1, 2, 3 …",
    )
    group.add_argument(
        "--undo",
        default="",
        metavar="CMD",
        help="a shell command that undoes the --trigger with the same {n}",
    )
    group.add_argument(
        "--change-timeout",
        type=float,
        metavar="SECONDS",
        help="how long a change may take to arrive (default: 15)",
    )


def _add_start_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how the program is started")
    group.add_argument(
        "--bind",
        action="append",
        default=[],
        metavar="HOST:INSIDE",
        help="show the directory HOST to the plugin at INSIDE, for example test files at /dev "
        "(needs root)",
    )
    group.add_argument(
        "--timeout-scale",
        type=_scale,
        default=1.0,
        metavar="X",
        help="multiply all limits and pauses, for a slow machine",
    )
    flags = {
        "one-at-a-time": "do not start several copies of the plugin at the same time",
        "in-place": "use the kubelet's usual directories without a mount: for the container of a "
        "CI job, which has no kubelet and may not mount",
        "no-registry": "there is no plugin registry directory, for a plugin that registers in both "
        "ways",
    }
    _add_flags(group, flags)


def _add_verdict_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("report and exit code")
    findings = {
        "expect": "a YAML file of known findings with their reasons; they do not fail the run",
        "write-expected": "add the findings of this run to FILE, which --expect reads; you write "
        "the reasons",
    }
    _add_files(group, findings)
    group.add_argument(
        "--fail-on",
        choices=("fail", "warn", "never"),
        default="fail",
        help="which new findings make the exit code 1 (default: fail)",
    )
    reports = {
        "junit": "also write JUnit XML",
        "html": "also write an HTML page",
        "markdown": "also write the summary of a CI job",
    }
    _add_files(group, reports)
    add_output_argument(group)


def _add_flags(group: argparse._ActionsContainer, flags: Mapping[str, str]) -> None:
    for name, text in flags.items():
        group.add_argument(f"--{name}", action="store_true", help=text)


def _add_files(group: argparse._ActionsContainer, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        group.add_argument(f"--{name}", type=some_path, metavar="FILE", help=text)


def _scale(text: str) -> float:
    value = float(text)
    if not 0.001 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.001 and 1000")
    return value
