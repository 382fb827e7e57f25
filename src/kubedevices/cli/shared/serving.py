"""Options of the verbs that serve a plugin (run, simulate, expose, replay), and serving it.

The runner, and with it the transport, is loaded only after the arguments and files are checked.
"""

import argparse
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kubedevices.cli.shared.dra_serving import (
    add_mode_arguments,
    check_mode,
    has_both_apis,
    mode_options,
    serve_driver,
)
from kubedevices.errors import CannotAsk, UsageError
from kubedevices.values.socket_paths import (
    CHECKPOINT_NAME,
    DEVICE_PLUGIN_DIR,
    PLUGIN_REGISTRY_DIR,
    POD_RESOURCES,
    STATE_DIR,
    default_state_dir,
)

if TYPE_CHECKING:
    from kubedevices.plugin.allocate_response import Inject
    from kubedevices.plugin.options import RunnerOptions, Settings
    from kubedevices.plugin.scanner import Scanner

_ADVICE = " (run as its owner, mostly root, or choose another --socket-dir)"
_OPTIONS = (
    *("registration", "on_server_error", "env_merge", "inject", "socket_dir"),
    *("allocate_timeout", "preferred_timeout", "pre_start_timeout"),
    *("cdi_errors", "cdi_annotations", "cdi_dir"),
)
"""Options of `add_serving_arguments` that the runner has under the same names."""

_USUAL_INJECT = {
    "both": "by default as each device defines",
    "nodes": "for resources whose configuration does not choose (default: nodes)",
}


def some_path(text: str) -> Path:
    """Return a path from the command line; an empty text is an error.

    The usual cause of an empty text is a variable of the shell that is not set.
    """
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def number_type(what: str, is_right: Callable[[float], bool]) -> Callable[[str], float]:
    """Return the type of an option that takes numbers; `what` says in an error which are right."""

    def parse(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not is_right(found):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return found

    return parse


positive_seconds = number_type("a number of seconds above 0", lambda seconds: seconds > 0)
"""Takes `inf` too."""


def add_host_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose devices of this host: `--config`, `--profile`, `--dev-root`."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--config",
        type=some_path,
        metavar="FILE",
        help="YAML file that chooses the devices of this host",
    )
    source.add_argument(
        "--profile",
        action="append",
        metavar="NAME",
        help="a ready configuration instead of a file, see expose --list-profiles; may be given "
        "several times",
    )
    parser.add_argument(
        "--dev-root",
        type=some_path,
        default=Path("/dev"),
        metavar="DIR",
        help="path of the host's /dev, which differs in a container (default: /dev)",
    )


def add_serving_arguments(parser: argparse.ArgumentParser, *, inject: "Inject" = "both") -> None:
    """Add the options of a serving plugin; `inject` is the default of `--inject`."""
    group = parser.add_argument_group("serving")
    group.add_argument(
        "--socket-dir",
        type=some_path,
        metavar="DIR",
        help="directory of kubelet.sock and of the plugin's socket (default: "
        f"{DEVICE_PLUGIN_DIR}; with --registration watch {PLUGIN_REGISTRY_DIR})",
    )
    group.add_argument(
        "--state-dir",
        type=some_path,
        metavar="DIR",
        help="directory of the list that `kubedevices cordon` writes (default: DIR.state for "
        f"--socket-dir DIR; {STATE_DIR} for the kubelet's directories)",
    )
    group.add_argument(
        "--registration",
        choices=("register", "watch", "none"),
        default="register",
        help="register: at kubelet.sock (default); watch: the kubelet finds the socket in its "
        "plugin registry; none: only serve",
    )
    group.add_argument(
        "--on-server-error",
        choices=("exit", "isolate"),
        default="exit",
        help="if one resource cannot be served: exit (default), or continue with the others",
    )
    group.add_argument(
        "--env-merge",
        choices=("last", "join", "error"),
        default="last",
        help="if devices of a container set a variable to different values: the last value wins "
        "(default), join the values with commas, or refuse",
    )
    _add_timeouts(parser)
    _add_cdi_arguments(parser, inject)
    _add_observation_arguments(parser)
    add_mode_arguments(parser, some_path)


def _add_timeouts(parser: argparse.ArgumentParser) -> None:
    from kubedevices.plugin.timing import HookTimeouts

    group = parser.add_argument_group("time limits of the plugin")
    usual = HookTimeouts()
    for hook, seconds, what, then in (
        ("allocate", usual.allocate, "Allocate", "the pod fails"),
        ("preferred", usual.preferred, "GetPreferredAllocation", "no device is preferred"),
        ("pre-start", usual.pre_start, "PreStartContainer", "the kubelet tries again"),
    ):
        group.add_argument(
            f"--{hook}-timeout",
            type=positive_seconds,
            metavar="SECONDS",
            help=f"time limit for {what}, after which {then} (default: {seconds:g}; inf: no limit)",
        )


def _add_cdi_arguments(parser: argparse.ArgumentParser, inject: "Inject") -> None:
    group = parser.add_argument_group("container device interface (CDI)")
    group.add_argument(
        "--inject",
        choices=("nodes", "cdi", "both"),
        default=inject,
        help="give containers device files (nodes), CDI devices (cdi), or both; "
        + _USUAL_INJECT[inject],
    )
    group.add_argument(
        "--cdi-dir",
        type=some_path,
        metavar="DIR",
        help="directory for CDI files, if a device needs one (default: /var/run/cdi)",
    )
    group.add_argument(
        "--cdi-errors",
        choices=("fail", "log"),
        default="fail",
        help="if a CDI file cannot be written: fail the allocation (default), or log the error "
        "and start the container without the CDI device",
    )
    group.add_argument(
        "--cdi-annotations",
        action="store_true",
        help="write CDI names into annotations too, for kubelets before 1.29",
    )


def _add_observation_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("observation")
    group.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="serve /healthz, /readyz, /metrics and /state at this address: 127.0.0.1:9400, or "
        "only 9400 for the same, or *:9400 for all addresses (default: off)",
    )
    group.add_argument(
        "--pod-resources",
        type=some_path,
        metavar="SOCKET",
        help="with --listen: /metrics also says which container holds which device; the source is "
        "this podresources socket of the kubelet",
    )


def serve_plugin(
    args: argparse.Namespace, scanner: "Scanner", domain: str, options: "RunnerOptions"
) -> None:
    """Serve until SIGTERM or Ctrl-C; with `--listen`, serve the pages as well."""
    check_mode(args)
    if args.mode == "dra" and not has_both_apis(args):
        serve_driver(args, scanner, domain, options, serving_state_dir(args))
        return
    if args.listen is None and args.pod_resources is not None:
        raise UsageError("--pod-resources needs --listen")
    from kubedevices.plugin.options import Settings
    from kubedevices.serving.modes import run_until_signal

    settings = Settings(**options)
    state_dir = args.state_dir or _default_state_dir(settings.directory)
    scanner = with_cordon(scanner, domain, state_dir)
    more: Any = {"mode": args.mode, **mode_options(args)} if has_both_apis(args) else {}
    more |= {"listen": args.listen, "pod_resources": args.pod_resources}
    more |= {"check_host": lambda: check_socket_dir(settings)}
    run_until_signal(scanner, domain=domain, **options, **more)


def serving_state_dir(args: argparse.Namespace) -> Path:
    """Return the directory in which `kubedevices cordon` writes for the plugin or driver."""
    if args.state_dir is not None:
        return Path(args.state_dir)
    if args.mode == "dra" and not has_both_apis(args):
        return STATE_DIR if args.kubelet_dir is None else default_state_dir(args.kubelet_dir)
    return _default_state_dir(args.socket_dir or DEVICE_PLUGIN_DIR)


def kubelet_files(args: argparse.Namespace) -> tuple[Path, Path]:
    """Return the kubelet's checkpoint and its podresources socket; they may not exist."""
    root = args.kubelet_dir or DEVICE_PLUGIN_DIR.parent
    if args.socket_dir is not None:
        root = args.socket_dir.parent
    is_plugin_dir = args.socket_dir is not None and args.registration != "watch"
    plugin_dir = args.socket_dir if is_plugin_dir else root / DEVICE_PLUGIN_DIR.name
    return plugin_dir / CHECKPOINT_NAME, args.pod_resources or root / POD_RESOURCES


def with_cordon(scanner: "Scanner", domain: str, state_dir: Path) -> "Scanner":
    """Return `scanner` without the devices that `kubedevices cordon` names."""
    from kubedevices.host.private_directory import check_private
    from kubedevices.rules.cordon import FILE_NAME, Cordoned

    check_private(state_dir)
    return Cordoned(scanner, domain, state_dir.absolute() / FILE_NAME)


def _default_state_dir(directory: Path) -> Path:
    """Return the directory in which `kubedevices cordon` writes for a plugin in `directory`."""
    return STATE_DIR if directory == PLUGIN_REGISTRY_DIR else default_state_dir(directory)


def check_socket_dir(settings: "Settings") -> None:
    """Raise `CannotAsk` for a directory in which the plugin can never create a socket.

    A missing directory is no error: it may appear later. With `--on-server-error isolate` nothing
    is raised either: the plugin continues, and logs the error of each resource.
    """
    if settings.on_server_error != "exit":
        return
    directory = settings.directory
    try:
        if not stat.S_ISDIR(directory.stat().st_mode):
            raise CannotAsk(f"cannot create a socket in {directory}: it is not a directory")
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotAsk(
            f"cannot create a socket in {directory}: {error.strerror}{_ADVICE}"
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise CannotAsk(f"cannot create a socket in {directory}: it cannot be written to{_ADVICE}")


def runner_options(args: argparse.Namespace) -> "RunnerOptions":
    """Return the options of `add_serving_arguments` as options of the runner."""
    given = {name: value for name in _OPTIONS if (value := getattr(args, name)) is not None}
    return cast("RunnerOptions", given)
