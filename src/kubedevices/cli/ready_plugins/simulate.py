"""`kubedevices simulate`: serves simulated devices, like simple-device-plugin."""

import argparse
import asyncio
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.shared.serving import (
    add_serving_arguments,
    runner_options,
    serve_plugin,
    some_path,
)
from kubedevices.errors import NotYaml, UsageError
from kubedevices.errors.words import counted
from kubedevices.host.terminal import print_line, print_text
from kubedevices.plugin.timing import HookTimeouts
from kubedevices.rules.faults import Faulty
from kubedevices.simulate.config import SimulatorConfig
from kubedevices.simulate.settings import SETTINGS, Timeline, check_timeline, merge_resources

if TYPE_CHECKING:
    from kubedevices.cli.ready_plugins.simulate_nodes import SimulatedPlugin

NAME = "simulate"
HELP = """\
serve simulated devices

Each setting is a flag, an environment variable or a key of the YAML file. A flag wins over a
variable, a variable wins over the file. Variables and keys are those of simple-device-plugin.
"""
EXAMPLES = """\
examples:
  kubedevices simulate --preset eight-gpus
  kubedevices simulate --resource-name example.com/gpu --number-devices 8 --numa-nodes 0,1
  kubedevices simulate --config simulate-two-numa-nodes.yaml --socket-dir ~/kd
  NUMBER_DEVICES=4 ENV_PREFIX=GPU kubedevices simulate
  kubedevices simulate --control-socket ~/sim.sock &
  kubedevices simulate --control-socket ~/sim.sock --tell '{set: {id: "*-1", health: Unhealthy}}'
  kubedevices simulate --control-socket ~/sim.sock --tell '{faults: {failAllocateEvery: 2}}'
  kubedevices simulate --config simulate.yaml --check
  kubedevices simulate --preset flapping-gpu --socket-dir 'nodes/*/plugins'

With a pattern as --socket-dir, one process serves a simulator in each directory that matches.

Further variables: PLUGIN_SOCK_DIR replaces --socket-dir. REGISTER_CONTROL_FILE names a file: if the
file exists at the start, the simulator registers only after the file is deleted.
"""
LOG_LEVEL = "info"

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--config", type=some_path, metavar="FILE", help="YAML file with settings")
    source.add_argument(
        "--preset",
        metavar="NAME",
        help="name of a ready configuration: eight-gpus, flapping-gpu, mig-like, slow-allocate, "
        "which change as time passes, or mixed-numa, which does not",
    )
    parser.add_argument(
        "--control-socket",
        type=some_path,
        metavar="PATH",
        help="socket on which the running simulator accepts steps",
    )
    parser.add_argument(
        "--tell",
        metavar="STEP",
        help="send a step, as in a timeline, to the simulator at --control-socket; 'list' prints "
        "its devices",
    )
    group = parser.add_argument_group("settings (flag, variable, YAML key, default)")
    defaults = SimulatorConfig(node_name="")
    for setting in SETTINGS:
        names = ", ".join(filter(None, (setting.variable, setting.yaml_key)))
        default = getattr(defaults, setting.field)
        shown = f"; default: {default}" if default not in ("", ()) else ""
        group.add_argument(
            setting.flag,
            dest=setting.field,
            metavar="VALUE",
            nargs="?" if setting.is_switch else None,
            const="true" if setting.is_switch else None,
            help=f"{setting.meaning} ({names}{shown})",
        )
    only = parser.add_argument_group("instead of serving").add_mutually_exclusive_group()
    only.add_argument(
        "--check", action="store_true", help="read the settings, print every mistake, and exit"
    )
    only.add_argument(
        "--schema", action="store_true", help="print the file's JSON schema, for editors"
    )
    add_serving_arguments(parser)


def keeps_running(args: argparse.Namespace) -> bool:
    """Return False for `--tell`, which only sends a step, and for `--check` and `--schema`."""
    return args.tell is None and not (args.check or args.schema)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C, or send a step to a running simulator."""
    if args.tell is not None:
        return tell_simulator(args)
    if args.schema:
        from kubedevices.cli.shared.output import print_schema
        from kubedevices.simulate.simulation_file import SimulatorFile

        print_schema(SimulatorFile, "kubedevices simulate")
        return 0
    configs, timeline = load_settings(args)
    if args.check:
        name = args.config or args.preset or "settings"
        print_line(f"{name}: {counted(len(configs), 'resource')}, no mistakes")
        return 0
    serve(args, configs, timeline)
    return 0


def serve(
    args: argparse.Namespace,
    configs: tuple[SimulatorConfig, ...],
    timeline: Timeline | None,
) -> None:
    """Serve until SIGTERM or Ctrl-C: one simulator, or one in each directory of a pattern."""
    if args.inject == "nodes" and any(config.cdi for config in configs):
        raise UsageError("cdi and --inject nodes contradict each other: use one of them")
    directory = args.socket_dir or os.environ.get("PLUGIN_SOCK_DIR")
    if directory and is_pattern(str(directory)):
        from kubedevices.cli.ready_plugins.simulate_nodes import check_nodes, serve_nodes

        check_nodes(args, configs)

        def of_node(name: str, socket_dir: Path) -> "SimulatedPlugin":
            on_node = [replace(each, node_name=name) for each in configs]
            return make_plugin(args, on_node, timeline, socket_dir)

        serve_nodes(args, str(directory), of_node)
        return
    simulator, scanner, options = make_plugin(
        args, configs, timeline, Path(directory) if directory else None, args.control_socket
    )
    serve_plugin(args, scanner, simulator.domain, options)


def is_pattern(directory: str) -> bool:
    """Whether a --socket-dir stands for many directories; an existing one stands for itself."""
    return any(each in directory for each in "*?[") and not Path(directory).exists()


def make_plugin(
    args: argparse.Namespace,
    configs: Sequence[SimulatorConfig],
    timeline: Timeline | None,
    socket_dir: Path | None,
    control: Path | None = None,
) -> "SimulatedPlugin":
    """Return a simulator, the scanner that adds its faults, and the options of its runner."""
    from kubedevices.simulate.simulator import Simulator

    hold_file = os.environ.get("REGISTER_CONTROL_FILE")
    simulator = Simulator(
        *configs,
        timeline=timeline,
        control=control,
        hold_file=Path(hold_file) if hold_file else None,
    )
    options = runner_options(args)
    options["socket_name"] = simulator.socket_name
    if socket_dir is not None:
        options["socket_dir"] = socket_dir
    # The user asks for these delays: they must not reach the time limit of a hook that hangs.
    options.setdefault(
        "allocate_timeout",
        HookTimeouts().allocate + _longest_delay(configs, timeline, args.control_socket),
    )
    delays = [config.pre_start.delay for config in configs if config.pre_start is not None]
    options.setdefault("pre_start_timeout", HookTimeouts().pre_start + max(delays, default=0.0))
    faulty = Faulty(simulator, {config.device_type: config.all_faults for config in configs})
    simulator.on_faults = faulty.use
    options["wrap_lists"] = faulty.wrap_lists
    return simulator, faulty, options


def _longest_delay(
    configs: Sequence[SimulatorConfig], timeline: Timeline | None, control: Path | None
) -> float:
    """Return the longest delay of Allocate in seconds; a control socket may set any delay."""
    if control is not None:
        return math.inf
    steps = timeline.steps if timeline else ()
    later = [step.faults.allocate_delay for step in steps if step.faults is not None]
    return max([config.faults.allocate_delay for config in configs] + later)


def tell_simulator(args: argparse.Namespace) -> int:
    """Send a step to the simulator at the control socket, or print its devices."""
    if args.control_socket is None:
        raise UsageError("--tell needs --control-socket PATH")
    from kubedevices.cli.shared.output import dump
    from kubedevices.rules.step_control import list_simulated, tell

    if args.tell == "list":
        print_text(dump(asyncio.run(list_simulated(args.control_socket)), "yaml"))
        return 0
    from kubedevices.config.documents.yaml_text import USER, load_yaml

    try:
        step = load_yaml(args.tell, USER)
    except NotYaml as error:
        raise UsageError(f"--tell: not valid YAML: {error}") from error
    if not isinstance(step, dict):
        raise UsageError(f"--tell: {args.tell!r} is not a step; an example: '{{count: 4}}'")
    concerned = asyncio.run(tell(args.control_socket, step))
    print_line(counted(concerned, "device"))
    return 0 if concerned else 1


def load_settings(
    args: argparse.Namespace,
) -> tuple[tuple[SimulatorConfig, ...], Timeline | None]:
    """Merge flags, variables and file; an unknown key of the file is a warning in the log."""
    file = None
    if args.config is not None or args.preset is not None:
        from kubedevices.simulate.simulation_file import read_simulator_file

        file = read_simulator_file(args.config or find_preset(args.preset))
        for warning in file.warnings:
            _log.warning("%s", warning)
    flags = {setting.field: getattr(args, setting.field) for setting in SETTINGS}
    configs = merge_resources(file, os.environ, flags)
    if file:
        check_timeline(file.timeline, configs)
    return configs, file.timeline if file else None


def find_preset(name: str) -> Path:
    """Return the file of a preset; raises `UsageError`."""
    from kubedevices.simulate.simulation_file import preset_file, preset_names

    if name not in preset_names():
        raise UsageError(f"there is no preset {name!r}, only {', '.join(preset_names())}")
    return preset_file(name)
