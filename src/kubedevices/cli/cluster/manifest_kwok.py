"""`kubedevices manifests kwok`: fake nodes with the devices and the timeline of the simulator."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kubedevices.cli.cluster.manifest_arguments import plugin_name
from kubedevices.errors import UsageError
from kubedevices.host.terminal import print_to_stderr
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.dra_access import device_classes
from kubedevices.manifests.kwok import FakeNodes, State, kwok_objects

if TYPE_CHECKING:
    from kubedevices.simulate.config import SimulatorConfig
    from kubedevices.simulate.settings import Timeline
    from kubedevices.values.device_tree import DeviceTree

NAME = "kubedevices-kwok"
MOST_NODES = 10_000
_NODE = "kwok"
"""The name of the node in the IDs of the devices: all nodes have equal devices."""


def add_kwok_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options for fake nodes."""
    group = parser.add_argument_group("kwok")
    group.add_argument(
        "--nodes",
        type=int,
        metavar="NUMBER",
        help="kwok: how many fake nodes (default: 1)",
    )


def fake_nodes(
    args: argparse.Namespace, deployment_of: Callable[[argparse.Namespace], Deployment]
) -> list[dict[str, Any]]:
    """Return the objects for KWOK; `deployment_of` gives a Deployment with the DeviceClasses.

    Raises `UsageError` and `ConfigError`.
    """
    from kubedevices.cli.cluster.manifest_plugins import simulated
    from kubedevices.dra.slice_limits import DEVICES_PER_SLICE

    count = 1 if args.nodes is None else args.nodes
    if not 1 <= count <= MOST_NODES:
        raise UsageError(f"--nodes {count}: use a number from 1 to {MOST_NODES}")
    if args.mode == "split":
        raise UsageError("--mode split: kwok has the modes device-plugin and dra")
    found = simulated(args)
    timeline = None if found.settings is None else found.settings.timeline
    configs = tuple(replace(each, node_name=_NODE) for each in found.configs)
    domain, is_dra = configs[0].domain, args.mode == "dra"
    nodes = FakeNodes(
        plugin_name(args.name) if args.name else NAME,
        count,
        domain,
        states_of(configs, timeline, domain if is_dra else None),
        loops=timeline is not None and timeline.loop,
        is_dra=is_dra,
        slice_size=DEVICES_PER_SLICE,
    )
    return [*(device_classes(deployment_of(args)) if is_dra else ()), *kwok_objects(nodes)]


def states_of(
    configs: "Sequence[SimulatorConfig]", timeline: "Timeline | None", driver: str | None
) -> list[State]:
    """Return the states of a timeline, the last one of each moment; faults change no device."""
    from kubedevices.simulate.devices import SimulatedDevices

    devices = SimulatedDevices(configs)

    def state(at: float) -> State:
        tree = devices.tree()
        return State(at, tree, () if driver is None else _objects_of(tree, driver))

    found = {0.0: state(0.0)}
    for step in () if timeline is None else timeline.steps:
        if step.faults is not None:
            print_to_stderr(f"kubedevices: {step} (at {step.at:g} s): a fake node has no plugin")
            continue
        devices.apply(step)
        found[step.at] = state(step.at)
    return [*found.values()]


def _objects_of(tree: "DeviceTree", driver: str) -> tuple[dict[str, Any], ...]:
    """Return the devices as in a slice; raises `UsageError` if an API server would refuse one."""
    from kubedevices.dra.names import check_driver_name
    from kubedevices.dra.slices import describe_refused, offer_of

    offer = offer_of(tree, check_driver_name(driver))
    if problems := describe_refused(offer.refused):
        raise UsageError("; ".join(problems))
    return offer.objects
