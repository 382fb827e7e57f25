"""One resource, from its name to who holds its devices: pure judgements over facts."""

from collections.abc import Collection, Mapping, Sequence

from kubedevices.device import Health
from kubedevices.explain.commands import log_of
from kubedevices.explain.facts import DeviceState, ResourceFacts, ResourceState, Socket
from kubedevices.explain.finding import Finding, Step, ok, problem, unknown, warning
from kubedevices.middleware.replicas import device_of
from kubedevices.resource_name import explain_resource_name, suggest_resource_name
from kubedevices.words import closest, counted, some_of

_STRICT = ("restricted", "single-numa-node")
_CAPACITY = "kubectl describe node NODE"
_LOG = "journalctl --unit kubelet --grep device"


def judge_name(resource: str) -> Finding:
    """Say whether a kubelet takes this name."""
    rule = explain_resource_name(resource)
    if not rule:
        return ok(Step.NAME, resource, "a kubelet accepts this name")
    better = suggest_resource_name(resource)
    advice = f"call it {better}, for example" if better else "choose another name"
    return problem(Step.NAME, resource, f"no kubelet accepts this name: {rule}", advice)


def judge_registration(
    resource: str,
    answers: ResourceFacts,
    plugins: Sequence[Socket],
    state: ResourceState | None = None,
) -> list[Finding]:
    """Say whether whoever manages devices here knows the resource, and has an open list of it.

    `state` is what a plugin adds to it that was asked.
    """
    if resource not in answers.known:
        return [_judge_unknown(resource, answers)]
    if not answers.source:
        ids = answers.registered.get(resource, ())
        return [
            unknown(
                Step.REGISTRATION,
                str(answers.checkpoint),
                "registered before the checkpoint was written, with "
                f"{counted(len(ids), 'healthy device')}; there is no newer answer",
                "; ".join(answers.unasked),
            )
        ]
    if answers.is_kubelet:
        return _judge_at_kubelet(resource, state, answers, plugins)
    if resource not in answers.resources:
        found = "only a checkpoint knows it; no plugin has registered since"
        return [problem(Step.REGISTRATION, answers.source, found, "start its plugin")]
    return _judge_at_node(answers.resources[resource], answers.source)


def _judge_unknown(resource: str, answers: ResourceFacts) -> Finding:
    known = answers.known
    if not answers.source:
        found = "neither a node nor a kubelet could be asked"
        if answers.checkpoint is not None:
            found += f"; in the checkpoint there is {some_of(known) or 'no resource'}"
        return unknown(Step.REGISTRATION, resource, found, "; ".join(answers.unasked))
    meant = closest(resource, known)
    found = "no plugin has registered it"
    found += f"; there is {some_of(known)}" if known else ", nor anything else"
    advice = (
        f"did you mean {meant}?"
        if meant
        else "start its plugin; until then a pod that asks for it stays Pending, and a static pod "
        "starts without devices"
    )
    command = f"kubedevices explain {meant}" if meant else ""
    return problem(Step.REGISTRATION, answers.source, found, advice, command)


def _judge_at_node(state: ResourceState, source: str) -> list[Finding]:
    at = f"{source}, {state.socket}" if state.socket else source
    match state.plugin:
        case "connected":
            return [
                ok(Step.REGISTRATION, at, "registered and connected"),
                ok(Step.DEVICE_LIST, at, "the stream of lists is open"),
            ]
        case "starting":
            return [
                ok(Step.REGISTRATION, at, "registered and connected"),
                problem(
                    Step.DEVICE_LIST,
                    at,
                    "the plugin has not sent a list since it registered",
                    "a plugin has to send a list as soon as ListAndWatch is called, also an empty "
                    "list; its log may say why it waits",
                ),
            ]
        case "stopped":
            found = (
                "its plugin went away: all its devices are unhealthy, and the resource vanishes "
                "after the grace period"
            )
        case _:
            found = "its plugin went away and did not come back within the grace period"
    advice = "start the plugin again; pods that run keep their devices"
    return [problem(Step.REGISTRATION, at, found, advice)]


def _judge_at_kubelet(
    resource: str, state: ResourceState | None, answers: ResourceFacts, plugins: Sequence[Socket]
) -> list[Finding]:
    """A kubelet tells only healthy devices and held ones: the rest is put together."""
    at = answers.source
    registered = ok(Step.REGISTRATION, at, "registered")
    told = answers.resources.get(resource)
    if told is not None and told.allocatable:
        healthy = f"{counted(told.allocatable, 'healthy device')} in it"
        return [registered, ok(Step.DEVICE_LIST, at, healthy)]
    if state is not None and state.capacity is not None and not state.allocatable:
        listed = f"{state.socket} lists {counted(state.capacity, 'device')}, none of them healthy"
        return [registered, ok(Step.DEVICE_LIST, at, listed)]
    found = "no healthy device is listed now, so capacity or allocatable is 0"
    before = answers.registered.get(resource, ())
    if before:
        found += f"; {len(before)} were healthy when the checkpoint was written"
    served = [each for each in plugins if not each.refusal]
    if not served:
        advice = "no plugin listens in this directory: start it again; within five minutes the "
        advice += "capacity stays, after that it becomes 0"
        return [problem(Step.REGISTRATION, at, found, advice, _LOG)]
    connected = [each for each in served if each.connections is None or each.connections]
    if not connected:
        advice = (
            "no plugin has a connection, so no plugin is registered: see the plugin sockets above"
        )
        return [problem(Step.REGISTRATION, at, found, advice, _LOG)]
    others = sum(bool(each.allocatable) for each in answers.resources.values())
    if len(connected) <= others and None not in [each.connections for each in connected]:
        advice = (
            "its plugin is not connected: all connected plugins serve other resources with "
            "healthy devices. Start the plugin, or see the plugin sockets above"
        )
        return [problem(Step.REGISTRATION, at, found, advice, _LOG)]
    advice, command = _whose_list(resource, connected)
    return [problem(Step.DEVICE_LIST, at, found, advice, command)]


def _whose_list(resource: str, connected: Sequence[Socket]) -> tuple[str, str]:
    """Return what to do about an empty list, and the command for it, as far as plugins were asked.

    A kubelet does not say which socket is that of which resource.
    """
    asked = [each for each in connected if each.answer is not None]
    if not asked:
        names = some_of(each.path.name for each in connected)
        advice = (
            f"{names} may be connected: if it is the plugin of this resource, its list is empty or "
            "all its devices are unhealthy; its log says why, and it can be asked, although some "
            "plugins lose an update when a second reader comes"
        )
        return advice, f"kubedevices explain {resource} --ask-plugins"
    idle = [each for each in asked if each.answer and not _healthy_ids(each)]
    if not idle:
        advice = "every plugin that was asked has healthy devices, none of them known of this "
        return f"{advice}resource: start the plugin of this resource", ""
    names = some_of(each.path.name for each in idle)
    advice = (
        f"{names} lists no healthy device: if it is the plugin of this resource, its log says why"
    )
    return advice, log_of(idle[0].listener) if len(idle) == 1 else ""


def _healthy_ids(plugin: Socket) -> set[str]:
    listed = (plugin.answer.devices if plugin.answer else None) or ()
    return {each.id for each in listed if each.health == Health.HEALTHY}


# ---------------------------------------------------------------- devices


def judge_health(
    state: ResourceState,
    source: str,
    *,
    was_asked: bool = False,
    cordoned: Collection[str] = (),
) -> list[Finding]:
    """Say how many devices are well, and which are not; `was_asked` says that plugins were.

    Of devices that are `cordoned` it is known why they are Unhealthy; it is told elsewhere.
    """
    devices = state.devices
    if state.plugin in ("starting", "stopped", "missing"):
        return []  # said by the registration
    if not devices:
        if state.capacity is None:
            return []  # the same
        return [
            problem(
                Step.HEALTH,
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
        return _judge_half(state, len(healthy), source, was_asked)
    bad = [each for each in devices if each.health not in (Health.HEALTHY, "Unknown")]
    unexplained = [
        each
        for each in bad
        if each.device_id not in cordoned and device_of(each.device_id) not in cordoned
    ]
    if out := len(bad) - len(unexplained):
        found += f"; {out} out of service"
    if bad := unexplained:
        return [
            problem(
                Step.HEALTH,
                some_of(each.device_id for each in bad),
                f"{found}; {_words(bad)}",
                "the plugin reports this; its log says why. Only the plugin can report them "
                "Healthy again; containers keep their devices",
            )
        ]
    if gone := [each.device_id for each in devices if each.health == "Unknown"]:
        found += f"; {len(gone)} held, but no longer listed by the plugin"
        return [warning(Step.HEALTH, some_of(gone), found, "the log of the plugin says why")]
    return [ok(Step.HEALTH, source, found)]


def _judge_half(state: ResourceState, healthy: int, source: str, was_asked: bool) -> list[Finding]:
    """A kubelet lists healthy devices and held ones: others may be there, and be unhealthy."""
    found = f"{counted(healthy, 'healthy device')}; a kubelet does not list unhealthy devices"
    advice = "their number is capacity minus allocatable of this node; "
    if was_asked:
        advice += "which of the plugins that were asked is that of this resource is not clear"
        command = _CAPACITY
    else:
        advice += "the plugin knows which they are"
        command = f"kubedevices explain {state.name} --ask-plugins"
    gone = [each.device_id for each in state.devices if each.health != Health.HEALTHY]
    if gone:
        found = f"{counted(len(gone), 'device')} held, but not listed as healthy; {found}"
        return [warning(Step.HEALTH, some_of(gone), found, advice, command)]
    return [unknown(Step.HEALTH, source, found, advice, command)]


def _words(devices: Sequence[DeviceState]) -> str:
    """Return how many are in which state; any word but Healthy counts as unhealthy."""
    counts: dict[str, int] = {}
    for each in devices:
        counts[each.health] = counts.get(each.health, 0) + 1
    return ", ".join(f"{count} {word or 'without a word'}" for word, count in counts.items())


def judge_held(state: ResourceState, source: str) -> list[Finding]:
    """Say whether devices are left, and who has them if not."""
    healthy = [each for each in state.devices if each.health == Health.HEALTHY]
    if not healthy:
        return []
    held = [each for each in healthy if each.held_by]
    found = f"{len(held)} of {len(healthy)} healthy devices are held"
    if len(held) < len(healthy):
        return [ok(Step.HELD, source, found)]
    holders = list(dict.fromkeys(name for each in held for name in each.held_by))
    advice = "no device is free: wait until one of these pods ends, or add devices"
    return [warning(Step.HELD, source, f"{found}, by {some_of(holders)}", advice)]


def judge_numa(state: ResourceState, policy: str | None) -> list[Finding]:
    """Say what the topology policy makes of the devices' NUMA nodes."""
    healthy = [each for each in state.devices if each.health == Health.HEALTHY]
    if not healthy:
        return []
    without = [each for each in healthy if not each.numa_nodes]
    if policy is None:
        found = f"{len(healthy) - len(without)} of {len(healthy)} devices report a NUMA node"
        return [
            unknown(
                Step.NUMA,
                "topology policy",
                f"the policy is not known; {found}",
                "the kubelet's configuration says it, as topologyManagerPolicy",
                "kubectl get --raw /api/v1/nodes/NODE/proxy/configz",
            )
        ]
    if policy not in _STRICT:
        return [ok(Step.NUMA, "topology policy", f"{policy}: no pod is refused because of it")]
    at = f"topology policy {policy}"
    if without:
        return [
            warning(
                Step.NUMA,
                at,
                f"{len(without)} of {len(healthy)} devices report no NUMA node: they are "
                "allocated as if they were near to every node",
                "let the plugin report the node; /sys says which it is, -1 means that the firmware "
                "does not know",
                "cat /sys/bus/pci/devices/ADDRESS/numa_node",
            )
        ]
    free = _free_per_node([each for each in healthy if not each.held_by])
    found = "free devices " + ", ".join(f"on node {node}: {count}" for node, count in free.items())
    if not free:
        found = "no device is free"
    most = max(free.values(), default=0)
    if policy == "single-numa-node" and most < sum(free.values()):
        found += f"; a container that asks for more than {most} ends in TopologyAffinityError"
    return [ok(Step.NUMA, at, found)]


def _free_per_node(devices: Sequence[DeviceState]) -> Mapping[int, int]:
    counts: dict[int, int] = {}
    for each in devices:
        for node in each.numa_nodes:
            counts[node] = counts.get(node, 0) + 1
    return dict(sorted(counts.items()))
