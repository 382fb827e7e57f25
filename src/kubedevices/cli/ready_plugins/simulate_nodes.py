"""`kubedevices simulate --socket-dir 'nodes/*/plugins'`: the simulators of many nodes, one process.

Each directory that matches has a simulator, whose node is named after the matching part of the
path. Directories may come later.
"""

import argparse
import contextlib
import glob
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kubedevices.cli.shared.serving import with_cordon
from kubedevices.errors import UsageError
from kubedevices.host.descriptors import allow_all_descriptors
from kubedevices.values.socket_paths import default_state_dir

if TYPE_CHECKING:
    from kubedevices.plugin.options import RunnerOptions
    from kubedevices.plugin.runner import PluginRunner
    from kubedevices.plugin.scanner import Scanner
    from kubedevices.simulate.config import SimulatorConfig
    from kubedevices.simulate.simulator import Simulator

SimulatedPlugin: TypeAlias = "tuple[Simulator, Scanner, RunnerOptions]"

_WILDCARD = re.compile(r"[*?[]")
_OF_ONE_NODE = ("state_dir", "listen", "node_name", "mode_file", "mode_label")

_log = logging.getLogger(__name__)


def check_nodes(args: argparse.Namespace, configs: "Sequence[SimulatorConfig]") -> None:
    """Raise `UsageError` for what the simulators of one process cannot have each."""
    wrong = [f"--{each.replace('_', '-')}" for each in _OF_ONE_NODE if getattr(args, each)]
    if not wrong and os.environ.get("NODE_NAME"):
        wrong = ["the variable NODE_NAME"]
    if not wrong and args.mode != "device-plugin":
        wrong = [f"--mode {args.mode}"]
    if not wrong and (args.inject == "cdi" or any(each.cdi for each in configs)):
        wrong = ["CDI"]  # the nodes would share the files
    if wrong:
        raise UsageError(
            f"{wrong[0]} belongs to one node, and --socket-dir is a pattern for many nodes: leave "
            "it out, or start a process for each node"
        )


def matching(pattern: str) -> list[str]:
    """Return the directories that match, without state directories, in order."""
    found = glob.glob(f"{pattern}/")  # noqa: PTH207 - an absolute pattern is no pattern for Path
    return sorted(each for each in found if not each.endswith(".state/"))


def node_of(pattern: str, directory: str) -> str:
    """Return the name of a node: the parts of the path that wildcards stand for."""
    parts = zip(Path(pattern).parts, Path(directory).parts, strict=False)
    return "-".join(there for wanted, there in parts if _WILDCARD.search(wanted))


def serve_nodes(
    args: argparse.Namespace, pattern: str, make: "Callable[[str, Path], SimulatedPlugin]"
) -> None:
    """Serve in every directory of `pattern` until SIGTERM or Ctrl-C.

    `make` returns the simulator of a node by its name and directory.
    """
    from kubedevices.plugin.side_by_side import SideBySide
    from kubedevices.plugin.stop_signals import run_until_signal

    simulators: dict[str, Simulator] = {}

    def find() -> "Iterator[PluginRunner]":
        from kubedevices.plugin.runner import PluginRunner

        for directory in matching(pattern):
            if directory in simulators:
                continue
            place = Path(directory)
            simulator, scanner, options = make(node_of(pattern, directory), place)
            simulators[directory] = simulator
            scanner = with_cordon(scanner, simulator.domain, default_state_dir(place))
            yield PluginRunner(scanner, domain=simulator.domain, **options)

    @contextlib.asynccontextmanager
    async def control(_: object) -> AsyncIterator[None]:
        if args.control_socket is None:
            yield
            return
        from kubedevices.rules.step_control import StepControl
        from kubedevices.simulate.step_keys import step_of

        def take_step(request: Any) -> int:
            step = step_of(request)
            return sum(each.take_step(step) for each in simulators.values())

        def describe() -> dict[str, Any]:
            return {node_of(pattern, at): each.describe() for at, each in simulators.items()}

        steps = StepControl(args.control_socket, take_step, describe)
        await steps.start()
        try:
            yield
        finally:
            await steps.stop()

    allow_all_descriptors()
    if not matching(pattern):
        _log.warning("no directory matches %s yet", pattern)
    run_until_signal(SideBySide(find), control)
