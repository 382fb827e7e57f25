"""Does the repairs that `repairs` found, each after another look at the node. asyncio."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from kubedevices.dra.claim_release import release_claim
from kubedevices.errors import CannotAsk, KubedevicesError
from kubedevices.explain.on_node.ask import DEADLINE
from kubedevices.explain.on_node.host_paths import HostPaths
from kubedevices.explain.on_node.judge_rivals import completed
from kubedevices.explain.on_node.look_node import NodeFacts, look_at_node
from kubedevices.explain.on_node.repairs import Action, Repair, RepairFacts, find_repairs
from kubedevices.host.cdi_specs import kind_of_our_file, remove_file
from kubedevices.kubelet_api.kubelet_devices import ask_pods
from kubedevices.rules.cordon import FILE_NAME
from kubedevices.rules.cordon_file import change_cordoned
from kubedevices.wire.unix_socket import unlink_if_dead

_MIN_AGE = 1.0
"""Seconds; a younger socket may be bound by a process that does not listen yet."""


async def repairs_of(facts: NodeFacts, subject: str = "") -> tuple[Repair, ...]:
    """Return the repairs of a node, or those about one resource or driver."""
    try:
        pods = await ask_pods(facts.pod_resources, timeout=DEADLINE)
    except CannotAsk:
        known = None
    else:
        having = {
            (each.namespace, each.name)
            for each in pods
            if any(container.claims for container in each.containers)
        }
        names = ((each.namespace, each.name) for each in pods)
        known = tuple(each for each in names if each not in having)
    plugins = facts.directory.plugins
    states = {name: completed(name, plugins, facts.answers) for name in facts.answers.known}
    seen = RepairFacts(
        facts.dra,
        facts.watched,
        facts.answers,
        {name: state for name, state in states.items() if state is not None},
        facts.cordoned,
        facts.units,
        known,
    )
    return tuple(each for each in find_repairs(seen) if each.concerns(subject))


async def do_repairs(
    places: HostPaths, wanted: Sequence[Repair], *, ask_plugins: bool = False
) -> AsyncIterator[tuple[Repair, str]]:
    """Do each repair that is still right; yield it with what went wrong, empty if it is done."""
    for repair in wanted:
        if repair.is_ours:
            facts = await look_at_node(places, ask_plugins=ask_plugins)
            yield repair, await _do_if_right(repair, facts)


async def _do_if_right(repair: Repair, facts: NodeFacts) -> str:
    """Look again: meanwhile a pod may have got the claim, or a process may listen."""
    now = {(each.action, each.target) for each in await repairs_of(facts)}
    if (repair.action, repair.target) not in now:
        return "it is not right any more: the node has changed meanwhile"
    try:
        return await _do(repair, facts)
    except KubedevicesError as error:
        return str(error)


async def _do(repair: Repair, facts: NodeFacts) -> str:
    match repair.action:
        case Action.UNPREPARE:
            await release_claim(repair.target[1], facts.kubelet_roots, facts.pod_resources)
        case Action.REMOVE_FILE:
            path = Path(repair.target[0])
            if not kind_of_our_file(path) or not await asyncio.to_thread(remove_file, path):
                return "it is not there any more"
        case Action.REMOVE_SOCKET:
            path = Path(repair.target[0])
            if not await asyncio.to_thread(unlink_if_dead, path, min_age=_MIN_AGE):
                return "it could not be removed: a process may be about to listen"
        case Action.UNCORDON:
            file = facts.places.state_dir / FILE_NAME
            await asyncio.to_thread(
                change_cordoned,
                file,
                lambda before: [each for each in before if each[:2] != repair.target],
            )
    return ""
