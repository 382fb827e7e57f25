"""Judges one resource: its name, registration, list, health, holders and NUMA nodes. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kubedevices.errors.safe_text import shell_line
from kubedevices.errors.words import closest, counted, some_of
from kubedevices.explain.finding import Finding, Step
from kubedevices.explain.on_node.commands import log_of
from kubedevices.explain.on_node.facts import DeviceState, ResourceFacts, ResourceState, Socket
from kubedevices.rules.replicas import device_of
from kubedevices.values.device import Health
from kubedevices.values.proxied_plugin import AWAY, CordonedDevice
from kubedevices.values.resource_name import explain_resource_name, suggest_resource_name

_STRICT = ("restricted", "single-numa-node")
_CAPACITY = "kubectl describe node NODE"
_LOG = "journalctl --unit kubelet --grep device"


def judge_name(resource: str) -> Finding:
    """Say whether a kubelet accepts this name."""
    rule = explain_resource_name(resource)
    if not rule:
        return Step.NAME.ok(resource, "a kubelet accepts this name")
    better = suggest_resource_name(resource)
    advice = f"call it {better}, for example" if better else "choose another name"
    return Step.NAME.problem(resource, f"no kubelet accepts this name: {rule}", advice)


def judge_registration(
    resource: str,
    answers: ResourceFacts,
    plugins: Sequence[Socket],
    state: ResourceState | None = None,
) -> list[Finding]:
    """Say whether the node or kubelet knows the resource, and has a list from its plugin.

    `state` also has the devices that a plugin listed, if plugins were asked.
    """
    if resource not in answers.known:
        return [_judge_unknown(resource, answers)]
    if not answers.source:
        ids = answers.registered.get(resource, ())
        return [
            Step.REGISTRATION.unknown(
                str(answers.checkpoint),
                "registered before the checkpoint was written, with "
                f"{counted(len(ids), 'healthy device')}; nothing newer is known",
                "; ".join(answers.unasked),
            )
        ]
    if answers.is_kubelet:
        return _judge_at_kubelet(resource, state, answers, plugins)
    if resource not in answers.resources:
        found = "only a checkpoint knows it; no plugin has registered since"
        return [Step.REGISTRATION.problem(answers.source, found, "start its plugin")]
    return _judge_at_node(answers.resources[resource], answers.source)


def _judge_unknown(resource: str, answers: ResourceFacts) -> Finding:
    known = answers.known
    if not answers.source:
        found = "neither a node nor a kubelet could be asked"
        if answers.checkpoint is not None:
            found += f"; the checkpoint lists {some_of(known) or 'no resource'}"
        return Step.REGISTRATION.unknown(resource, found, "; ".join(answers.unasked))
    meant = closest(resource, known)
    found = "no plugin has registered it"
    found += f"; known resources: {some_of(known) or 'none'}"
    advice = (
        f"did you mean {meant}?"
        if meant
        else "start its plugin; until then a pod that asks for it stays Pending, and a static pod "
        "starts without devices"
    )
    command = f"kubedevices explain {meant}" if meant else ""
    return Step.REGISTRATION.problem(answers.source, found, advice, command)


def _judge_at_node(state: ResourceState, source: str) -> list[Finding]:
    at = f"{source}, {state.socket}" if state.socket else source
    match state.plugin:
        case "connected":
            return [
                Step.REGISTRATION.ok(at, "registered and connected"),
                Step.DEVICE_LIST.ok(at, "the ListAndWatch stream is open"),
            ]
        case "starting":
            return [
                Step.REGISTRATION.ok(at, "registered and connected"),
                Step.DEVICE_LIST.problem(
                    at,
                    "the plugin has not sent a list since it registered",
                    "a plugin must send a list, even an empty list, as soon as ListAndWatch is "
                    "called; the log of the plugin may say why it waits",
                ),
            ]
        case "stopped":
            found = (
                "its plugin disconnected: all its devices are unhealthy, and the node removes the "
                "resource after the grace period"
            )
        case _:
            found = "its plugin disconnected and did not register again within the grace period"
    advice = "start the plugin again; running pods keep their devices"
    return [Step.REGISTRATION.problem(at, found, advice)]


def _judge_at_kubelet(
    resource: str, state: ResourceState | None, answers: ResourceFacts, plugins: Sequence[Socket]
) -> list[Finding]:
    """A kubelet lists only healthy and held devices: the connections of plugins say the rest."""
    at = answers.source
    registered = Step.REGISTRATION.ok(at, "registered")
    listed_by_kubelet = answers.resources.get(resource)
    if listed_by_kubelet is not None and listed_by_kubelet.allocatable:
        healthy = f"the list has {counted(listed_by_kubelet.allocatable, 'healthy device')}"
        return [registered, Step.DEVICE_LIST.ok(at, healthy)]
    if state is not None and state.capacity is not None and not state.allocatable:
        listed = f"{state.socket} lists {counted(state.capacity, 'device')}, none of them healthy"
        return [registered, Step.DEVICE_LIST.ok(at, listed)]
    found = "the kubelet lists no healthy device now, so capacity or allocatable is 0"
    before = answers.registered.get(resource, ())
    if before:
        found += f"; {len(before)} were healthy when the checkpoint was written"
    served = [each for each in plugins if not each.refusal]
    if not served:
        found = f"its plugin does not run, no plugin listens in this directory: {found}"
        advice = "start the plugin again; the capacity stays for five minutes, then it becomes 0"
        return [Step.REGISTRATION.problem(at, found, advice, _LOG)]
    connected = [each for each in served if each.connections is None or each.connections]
    if not connected:
        found = f"no plugin has a connection from the kubelet, so none is registered: {found}"
        advice = "see the plugin sockets above"
        return [Step.REGISTRATION.problem(at, found, advice, _LOG)]
    others = sum(bool(each.allocatable) for each in answers.resources.values())
    if len(connected) <= others and None not in [each.connections for each in connected]:
        found = (
            "its plugin is not connected, all connected plugins serve other resources with "
            f"healthy devices: {found}"
        )
        advice = "start the plugin, or see the plugin sockets above"
        return [Step.REGISTRATION.problem(at, found, advice, _LOG)]
    if len(connected) == 1:
        found = f"the list of its plugin is empty, or all its devices are unhealthy: {found}"
    advice, command = _advice_for_empty_list(resource, connected)
    return [Step.DEVICE_LIST.problem(at, found, advice, command)]


def _advice_for_empty_list(resource: str, connected: Sequence[Socket]) -> tuple[str, str]:
    """Return the advice about a list without healthy devices, and its command.

    A kubelet does not say which socket serves which resource, so the advice names every plugin that
    may serve `resource`.
    """
    asked = [each for each in connected if each.answer is not None]
    if not asked:
        names = some_of(each.path.name for each in connected)
        advice = (
            f"{names} may be connected: if it is the plugin of this resource, its list is empty or "
            "all its devices are unhealthy, and its log says why. The command asks the plugins for "
            "their lists; some plugins lose an update when a second client reads their list"
        )
        return advice, f"kubedevices explain {resource} --ask-plugins"
    idle = [each for each in asked if each.answer and not each.healthy_ids]
    if not idle:
        advice = "every plugin that was asked lists healthy devices, but the kubelet has none of "
        return f"{advice}them for this resource: start the plugin of this resource", ""
    names = some_of(each.path.name for each in idle)
    advice = (
        f"{names} lists no healthy device: if it is the plugin of this resource, its log says why"
    )
    return advice, log_of(idle[0].listener) if len(idle) == 1 else ""


# ---------------------------------------------------------------- devices


def judge_health(
    state: ResourceState,
    source: str,
    *,
    was_asked: bool = False,
    cordoned: Sequence[CordonedDevice] = (),
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> list[Finding]:
    """Say how many devices are healthy, and which are not; `was_asked` says whether plugins were.

    `judge_cordoned` says why the devices in `cordoned` are Unhealthy. `reasons` has the reasons of
    a proxy's rules, by device ID.
    """
    devices = state.devices
    if state.plugin in ("starting", "stopped", "missing"):
        return []  # judge_registration says why
    if not devices:
        if state.capacity is None:
            return []  # judge_registration says why
        return [
            Step.HEALTH.problem(
                source,
                "the plugin lists no device at all",
                "the plugin found no device: run its scan on this host, check that the driver is "
                "loaded and that /dev and /sys are mounted into its container",
                "kubedevices scan --config FILE",
            )
        ]
    healthy = [each for each in devices if each.health == Health.HEALTHY]
    found = f"{len(healthy)} of {len(devices)} devices are healthy"
    if state.capacity is None:
        return _judge_without_unhealthy(state, len(healthy), source, was_asked)
    bad = [each for each in devices if each.health not in (Health.HEALTHY, "Unknown")]
    out_ids = {each.id for each in cordoned}
    whole = out_ids.union(map(device_of, out_ids))  # the plugin may list only the whole device
    unexplained = [
        each
        for each in bad
        if each.device_id not in whole and device_of(each.device_id) not in out_ids
    ]
    if out := len(bad) - len(unexplained):
        found += f"; {out} cordoned"
    if unexplained:
        return [_unhealthy(unexplained, found, reasons)]
    if gone := [each.device_id for each in devices if each.health == "Unknown"]:
        found += f"; {len(gone)} held, but no longer listed by the plugin"
        return [Step.HEALTH.warning(some_of(gone), found, "the log of the plugin says why")]
    return [Step.HEALTH.ok(source, found)]


def _unhealthy(bad: Sequence[DeviceState], found: str, reasons: Mapping[str, str]) -> Finding:
    ids, found = some_of(each.device_id for each in bad), f"{found}; {_health_counts(bad)}"
    by_rules = {reasons.get(each.device_id, "") for each in bad}
    if "" in by_rules:
        advice = (
            "the plugin reports this; its log says why. Only the plugin can report them "
            "Healthy again; containers keep their devices"
        )
        return Step.HEALTH.problem(ids, found, advice)
    advice = (
        "the proxy says so, and not the plugin: they come back when the reason is gone; "
        "containers keep their devices"
    )
    # Of a plugin that is away, `judge_proxy` reports the problem.
    judged = Step.HEALTH.warning if by_rules == {AWAY} else Step.HEALTH.problem
    return judged(ids, f"{found}: {some_of(sorted(by_rules))}", advice)


def judge_cordoned(
    cordoned: Sequence[CordonedDevice], state: ResourceState | None
) -> list[Finding]:
    """Warn of the cordoned devices, but not of Healthy ones: their plugin does not obey the list.

    A kubelet does not list them.
    """
    devices = state.devices if state is not None else ()
    healthy = {each.device_id for each in devices if each.health == Health.HEALTHY}
    whole = healthy.union(map(device_of, healthy))
    return [
        Step.HEALTH.warning(
            (name := f"{each.resource}/{each.id}"),
            f"is cordoned: {each.reason}",
            "uncordon it when the reason is gone",
            shell_line(["kubedevices", "uncordon", name]),
        )
        for each in cordoned
        if each.id not in whole and device_of(each.id) not in healthy
    ]


def _judge_without_unhealthy(
    state: ResourceState, healthy: int, source: str, was_asked: bool
) -> list[Finding]:
    """Judge what a kubelet lists: healthy and held devices, but no unhealthy devices."""
    found = f"{counted(healthy, 'healthy device')}; a kubelet does not list unhealthy devices"
    advice = "their number is capacity minus allocatable of this node; "
    if was_asked:
        advice += "it is not clear which of the plugins that were asked serves this resource"
        command = _CAPACITY
    else:
        advice += "the plugin knows which devices are unhealthy"
        command = f"kubedevices explain {state.name} --ask-plugins"
    gone = [each.device_id for each in state.devices if each.health != Health.HEALTHY]
    if gone:
        found = f"{counted(len(gone), 'device')} held, but not listed as healthy; {found}"
        return [Step.HEALTH.warning(some_of(gone), found, advice, command)]
    return [Step.HEALTH.unknown(source, found, advice, command)]


def _health_counts(devices: Sequence[DeviceState]) -> str:
    """Return how many devices have which health; every word but Healthy counts as unhealthy."""
    counts = Counter(each.health for each in devices)
    return ", ".join(f"{count} {word or 'with empty health'}" for word, count in counts.items())


def judge_held(state: ResourceState, source: str) -> list[Finding]:
    """Say whether a device is free, and which pods hold the devices if not.

    Containers of one pod may hold a device one after the other.
    """
    twice = [
        Step.HELD.problem(
            f"{state.name}/{each.device_id}",
            f"one device is held by {counted(len(pods), 'pod')}: {', '.join(each.held_by)}",
            "end all but one of these pods: two kubelets, or a kubelet without its checkpoint, "
            "gave the device away twice",
        )
        for each in state.devices
        if len(pods := {holder.partition(" (")[0] for holder in each.held_by}) > 1
    ]
    return [*twice, *_judge_free(state, source)]


def _judge_free(state: ResourceState, source: str) -> list[Finding]:
    healthy = [each for each in state.devices if each.health == Health.HEALTHY]
    if not healthy:
        return []
    held = [each for each in healthy if each.held_by]
    found = f"{len(held)} of {len(healthy)} healthy devices are held"
    if len(held) < len(healthy):
        return [Step.HELD.ok(source, found)]
    holders = list(dict.fromkeys(name for each in held for name in each.held_by))
    advice = "no device is free: wait until one of these pods ends, or add devices"
    return [Step.HELD.warning(source, f"{found}, by {some_of(holders)}", advice)]


def judge_numa(state: ResourceState, policy: str | None) -> list[Finding]:
    """Say what the kubelet's topology policy means for devices with these NUMA nodes."""
    healthy = [each for each in state.devices if each.health == Health.HEALTHY]
    if not healthy:
        return []
    without = [each for each in healthy if not each.numa_nodes]
    if policy is None:
        found = f"{len(healthy) - len(without)} of {len(healthy)} devices report a NUMA node"
        return [
            Step.NUMA.unknown(
                "topology policy",
                f"the policy is not known; {found}",
                "it is topologyManagerPolicy in the kubelet's configuration",
                "kubectl get --raw /api/v1/nodes/NODE/proxy/configz",
            )
        ]
    if policy not in _STRICT:
        return [Step.NUMA.ok("topology policy", f"{policy}: no pod is refused because of it")]
    at = f"topology policy {policy}"
    if without:
        return [
            Step.NUMA.warning(
                at,
                f"{len(without)} of {len(healthy)} devices report no NUMA node: they are "
                "allocated as if they were near to every NUMA node",
                "let the plugin report the NUMA node; /sys has its number, where -1 means that the "
                "firmware does not know it",
                "cat /sys/bus/pci/devices/ADDRESS/numa_node",
            )
        ]
    free = Counter(node for each in healthy if not each.held_by for node in each.numa_nodes)
    found = "free devices " + ", ".join(
        f"on NUMA node {node}: {count}" for node, count in sorted(free.items())
    )
    if not free:
        found = "no device is free"
    most = max(free.values(), default=0)
    if policy == "single-numa-node" and most < free.total():
        found += f"; a pod that needs more than {most} in a container ends in TopologyAffinityError"
    return [Step.NUMA.ok(at, found)]
