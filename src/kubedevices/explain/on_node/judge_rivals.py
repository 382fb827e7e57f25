"""Compares lists of devices: which plugin serves which resource, and who holds devices. Pure.

A kubelet does not say which socket serves which resource, nor which devices are unhealthy. A plugin
that is asked lists its devices, but does not name its resource; and IDs are unique within one
resource only. So a plugin serves a resource if both have the same healthy devices, and no other
plugin and no other resource has them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kubedevices.errors.words import counted, some_of
from kubedevices.explain.finding import Finding, Step
from kubedevices.explain.on_node.facts import (
    UNSEEN,
    Allocation,
    DeviceState,
    ResourceFacts,
    ResourceState,
    Socket,
)
from kubedevices.values.device import Health


def completed(name: str, plugins: Sequence[Socket], answers: ResourceFacts) -> ResourceState | None:
    """Return the state of a resource, with the devices that its plugin listed if it was asked.

    The plugin's list adds unhealthy devices and NUMA nodes, which a kubelet does not report.
    """
    state = answers.resources.get(name)
    if not answers.is_kubelet or name not in answers.known:
        return state
    healthy = _healthy(name, answers)
    alike = [each for each in _asked(plugins) if each.healthy_ids == healthy]
    rivals = [each for each in answers.known if _healthy(each, answers) == healthy]
    if len(alike) != 1 or len(rivals) != 1:
        return state
    (plugin,) = alike
    listed = (plugin.answer and plugin.answer.devices) or ()
    known = {each.device_id: each for each in state.devices} if state else {}
    devices = {
        each.id: replace(
            known.get(each.id) or DeviceState(each.id, each.health),
            health=each.health,
            numa_nodes=each.numa_nodes or (),
        )
        for each in listed
    }
    unlisted = [each for each_id, each in known.items() if each_id not in devices]
    return ResourceState(
        name,
        (*devices.values(), *unlisted),
        len(devices),
        len(healthy),
        None,
        plugin.path.name,
    )


def held_now(resource: str, answers: ResourceFacts, names: Mapping[str, str]) -> list[Allocation]:
    """Return the checkpoint's allocations of `resource`, without pods that have ended.

    A kubelet removes ended pods from its checkpoint only when it admits the next pod, but its
    podresources service no longer lists them. `names` maps uids of pods to `namespace/name`; a pod
    without a known name is returned, because it cannot be compared.
    """
    found = [each for each in answers.allocations if each.resource == resource]
    state = answers.resources.get(resource)
    if not answers.source or not answers.is_kubelet or state is None:
        return found
    holders = (holder for device in state.devices for holder in device.held_by)
    live = {holder.partition(" (")[0] for holder in holders}
    return [each for each in found if {each.pod_uid, names.get(each.pod_uid)} & {None, *live}]


def judge_rivals(plugins: Iterable[Socket], answers: ResourceFacts) -> list[Finding]:
    """Say whether more plugins are connected than resources exist, and which are too many.

    A kubedevices node says which socket serves a resource; a kubelet does not, so there the plugins
    have to be asked.
    """
    connected = [each for each in plugins if not each.refusal and each.connections]
    known = answers.known
    if not answers.source or len(connected) <= len(known):
        return []
    found = f"{len(connected)} plugins are connected to serve {counted(len(known), 'resource')}: "
    last = (
        "if several plugins serve a resource, a kubelet uses only the plugin that registered last"
    )
    stop = f"{last}; stop the wrong plugin, unless an update is under way"
    asked = _asked(connected)
    if not answers.is_kubelet:
        serving = {each.socket for each in answers.resources.values()}
        rivals = [each for each in connected if each.path.name not in serving]
        found += "this plugin serves no resource"
    elif asked:
        rivals = _too_many(asked, [_healthy(each, answers) for each in known])
        found += "this plugin lists devices that no resource has, or that another plugin lists too"
    else:
        found += "two plugins serve the same resource, or a plugin has not sent a list yet"
        at = some_of(each.path.name for each in connected)
        advice = (
            f"{last}. The command asks the plugins for their lists to tell them apart; some "
            "plugins lose an update when a second client reads their list"
        )
        return [Step.REGISTRATION.warning(at, found, advice, "kubedevices explain --ask-plugins")]
    at = some_of(f"{each.path.name}, {each.listener or UNSEEN}" for each in rivals or connected)
    return [Step.REGISTRATION.warning(at, found, stop)]


def _too_many(asked: Iterable[Socket], resources: Sequence[frozenset[str]]) -> list[Socket]:
    """Return the plugins with the same list as other plugins, if too few resources have it."""
    groups: dict[frozenset[str], list[Socket]] = {}
    for each in asked:
        groups.setdefault(each.healthy_ids, []).append(each)
    return [
        each
        for healthy, alike in groups.items()
        if len(alike) > resources.count(healthy)
        for each in alike
    ]


def _asked(plugins: Iterable[Socket]) -> list[Socket]:
    return [each for each in plugins if each.answer and each.answer.devices is not None]


def _healthy(name: str, answers: ResourceFacts) -> frozenset[str]:
    """Return the IDs of the healthy devices that the kubelet lists for a resource."""
    state = answers.resources.get(name)
    devices = state.devices if state else ()
    return frozenset(each.device_id for each in devices if each.health == Health.HEALTHY)
