"""`kubedevices simulate`: serve devices that do not exist, as simple-device-plugin does."""

import argparse
import logging
import os
from pathlib import Path

from kubedevices.builtin.simulator import Simulator
from kubedevices.builtin.simulator_config import SETTINGS, SimulatorConfig, merge_settings
from kubedevices.cli.serving import add_serving_arguments, runner_options, serve_plugin

NAME = "simulate"
HELP = """\
serve devices that do not exist

Each setting can be given as a flag, an environment variable or a key of the YAML file; the first
of these that is given counts. Variables and keys are those of simple-device-plugin.
"""
EXAMPLES = """\
examples:
  kubedevices simulate --resource-name example.com/gpu --number-devices 8 --numa-nodes 0,1
  kubedevices simulate --config simulate-two-numa-nodes.yaml --socket-dir /tmp/kd
  NUMBER_DEVICES=4 ENV_PREFIX=GPU kubedevices simulate
"""
LOG_LEVEL = "info"

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file with settings")
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
            help=f"{setting.meaning} ({names}{shown})",
        )
    add_serving_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    simulator = Simulator(load_settings(args))
    options = runner_options(args)
    options["socket_name"] = simulator.socket_name
    serve_plugin(args, simulator, simulator.domain, options)
    return 0


def load_settings(args: argparse.Namespace) -> SimulatorConfig:
    """Merge all sources; a key of the file that nobody knows is a warning."""
    file = None
    if args.config is not None:
        from kubedevices.builtin.simulator_file import read_simulator_file

        file = read_simulator_file(args.config)
        for warning in file.warnings:
            _log.warning("%s", warning)
    flags = {setting.field: getattr(args, setting.field) for setting in SETTINGS}
    return merge_settings(file, os.environ, flags)
