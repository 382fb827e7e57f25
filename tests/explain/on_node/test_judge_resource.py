"""One resource: its name, registration, list, health, holders and NUMA nodes."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.explain.finding import Finding, Outcome, Step
from kubedevices.explain.on_node.facts import (
    DeviceState,
    PluginAnswer,
    ProcessFacts,
    ResourceFacts,
    ResourceState,
    Socket,
)
from kubedevices.explain.on_node.judge_resource import (
    judge_cordoned,
    judge_health,
    judge_held,
    judge_name,
    judge_numa,
    judge_registration,
)
from kubedevices.values.device import ReportedDevice
from kubedevices.values.proxied_plugin import AWAY, DeviceReason

NAME = "example.com/widget"
W0, W1 = DeviceState("w0", "Healthy"), DeviceState("w1", "Healthy")
STATE = ResourceState(NAME, (W0, W1), 2, 2, "connected", "widget.sock")
NODE = ResourceFacts("node of /run/kd", resources={NAME: STATE})
CHECKPOINT = Path("/run/kd/kubelet_internal_checkpoint")
KUBELET = ResourceFacts("kubelet at /run/pr", is_kubelet=True, checkpoint=CHECKPOINT)
SERVED = Socket(Path("/run/kd/widget.sock"), connections=1)


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def results(findings: list[Finding]) -> list[tuple[Step, Outcome]]:
    return [(each.step, each.result) for each in findings]


# ---------------------------------------------------------------- name, registration


def test_the_name() -> None:
    """The rule that is broken, and a name that is not."""
    assert judge_name(NAME).result is Outcome.OK
    finding = judge_name("Example.COM/widget")
    assert finding.result is Outcome.PROBLEM
    assert "lower-case" in finding.found
    assert "example.com/widget" in finding.advice
    assert "another name" in judge_name("/").advice


def test_an_unknown_resource_gets_a_suggestion() -> None:
    """Which there are, and which of them was probably meant."""
    finding = only(judge_registration("example.com/wigdet", NODE, ()))
    assert finding.result is Outcome.PROBLEM
    assert NAME in finding.found
    assert (finding.command, finding.looked_at) == (f"kubedevices explain {NAME}", NODE.source)
    by_checkpoint = ResourceFacts(checkpoint=CHECKPOINT, registered={NAME: ()})
    finding = only(judge_registration("example.com/wigdet", by_checkpoint, ()))
    assert (finding.result, NAME in finding.found) == (Outcome.UNKNOWN, True)
    other = only(judge_registration("vendor.org/fpga", NODE, ()))
    assert "start its plugin" in other.advice


def test_without_an_answer_a_resource_is_unknown() -> None:
    """Neither that a resource is missing, nor, by an old checkpoint, that it is there."""
    nobody = ResourceFacts(unasked=("no kubelet answers",))
    finding = only(judge_registration(NAME, nobody, ()))
    assert (finding.result, finding.advice) == (Outcome.UNKNOWN, "no kubelet answers")
    before = replace(nobody, checkpoint=CHECKPOINT, registered={NAME: ("w0",)})
    finding = only(judge_registration(NAME, before, ()))
    assert finding.result is Outcome.UNKNOWN
    assert "1 healthy" in finding.found


@pytest.mark.parametrize(
    ("plugin", "expected", "says"),
    [
        (
            "connected",
            [(Step.REGISTRATION, Outcome.OK), (Step.DEVICE_LIST, Outcome.OK)],
            "open",
        ),
        (
            "starting",
            [(Step.REGISTRATION, Outcome.OK), (Step.DEVICE_LIST, Outcome.PROBLEM)],
            "not sent a list",
        ),
        ("stopped", [(Step.REGISTRATION, Outcome.PROBLEM)], "disconnected"),
        ("missing", [(Step.REGISTRATION, Outcome.PROBLEM)], "within the grace period"),
    ],
)
def test_states_of_a_plugin_at_the_node(
    plugin: str, expected: list[tuple[Step, Outcome]], says: str
) -> None:
    """Registered, listing, gone for a while or for good."""
    answers = replace(NODE, resources={NAME: replace(STATE, plugin=plugin)})
    findings = judge_registration(NAME, answers, ())
    assert results(findings) == expected
    assert says in findings[-1].found
    assert {each.looked_at for each in findings} == {"node of /run/kd, widget.sock"}
    nameless = replace(NODE, resources={NAME: replace(STATE, plugin=plugin, socket="")})
    assert judge_registration(NAME, nameless, ())[0].looked_at == "node of /run/kd"


def test_a_resource_that_only_the_checkpoint_knows_is_a_problem() -> None:
    """The checkpoint knows it, the node has never heard of it."""
    answers = replace(NODE, resources={}, registered={NAME: ("w0",)})
    finding = only(judge_registration(NAME, answers, ()))
    assert finding.result is Outcome.PROBLEM
    assert "only a checkpoint knows it" in finding.found


def test_a_kubelet_that_lists_devices() -> None:
    """Its list is proof of a registration and of an open stream."""
    answers = replace(KUBELET, resources={NAME: ResourceState(NAME, (W0,), allocatable=1)})
    assert {each.result for each in judge_registration(NAME, answers, ())} == {Outcome.OK}


@pytest.mark.parametrize(
    ("plugins", "step", "says"),
    [
        ((), Step.REGISTRATION, "for five minutes"),
        ((replace(SERVED, refusal="nobody"),), Step.REGISTRATION, "for five minutes"),
        ((replace(SERVED, connections=0),), Step.REGISTRATION, "no plugin has a connection"),
        ((replace(SERVED, connections=None),), Step.DEVICE_LIST, "widget.sock may be connected"),
        ((SERVED,), Step.DEVICE_LIST, "widget.sock may be connected"),
    ],
)
def test_registered_but_capacity_0(plugins: tuple[Socket, ...], step: Step, says: str) -> None:
    """A kubelet with nothing healthy: gone, not registered again, or an empty list."""
    answers = replace(KUBELET, registered={NAME: ("w0", "w1")})
    finding = only(judge_registration(NAME, answers, plugins))
    assert (finding.step, finding.result) == (step, Outcome.PROBLEM)
    assert "2 were healthy" in finding.found
    assert says in f"{finding.found} {finding.advice}"


def test_plugins_of_other_resources_are_not_suspected() -> None:
    """Where no more are connected than others have healthy devices, this one's is none of them."""
    other = ResourceState("example.com/gpu", (W0,), allocatable=1)
    answers = replace(KUBELET, registered={NAME: ()}, resources={other.name: other})
    finding = only(judge_registration(NAME, answers, [SERVED]))
    assert (finding.step, "its plugin is not connected" in finding.found) == (
        Step.REGISTRATION,
        True,
    )
    for plugins in ([SERVED, SERVED], [replace(SERVED, connections=None)]):
        finding = only(judge_registration(NAME, answers, plugins))
        assert (finding.step, "may be connected" in finding.advice) == (Step.DEVICE_LIST, True)


@pytest.mark.parametrize(
    ("listed", "advice", "command"),
    [
        ((), "widget.sock lists no healthy device", "systemctl status 9"),
        (("Unhealthy",), "widget.sock lists no healthy device", "systemctl status 9"),
        (("Healthy",), "start the plugin of this resource", ""),
    ],
)
def test_an_asked_plugin_is_not_suggested_to_be_asked_again(
    listed: tuple[str, ...], advice: str, command: str
) -> None:
    """What the plugins said decides what to do next."""
    answer = PluginAnswer(tuple(ReportedDevice(f"w{i}", each) for i, each in enumerate(listed)))
    plugin = replace(SERVED, listener=ProcessFacts(9, "widgets"), answer=answer)
    answers = replace(KUBELET, registered={NAME: ()})
    finding = only(judge_registration(NAME, answers, [plugin]))
    assert (finding.result, finding.command) == (Outcome.PROBLEM, command)
    assert advice in finding.advice


def test_a_plugin_that_was_asked_shows_that_only_devices_are_unhealthy() -> None:
    """Its list reached the kubelet, and nothing in it is healthy: that is told by the health."""
    state = ResourceState(NAME, (DeviceState("w0", "Unhealthy"),), 1, 0, None, "widget.sock")
    findings = judge_registration(NAME, replace(KUBELET, registered={NAME: ()}), [SERVED], state)
    assert {each.result for each in findings} == {Outcome.OK}
    assert "widget.sock lists 1 device, none of them healthy" in findings[-1].found


# ---------------------------------------------------------------- devices


@pytest.mark.parametrize(("was_asked", "word"), [(False, "--ask-plugins"), (True, "kubectl")])
def test_a_kubelet_lists_only_healthy_devices(was_asked: bool, word: str) -> None:
    """So it is unknown how many are not, until the plugin said so."""
    told = ResourceState(NAME, (W0,), allocatable=1)
    finding = only(judge_health(told, "kubelet", was_asked=was_asked))
    assert finding.result is Outcome.UNKNOWN
    assert finding.found == "1 healthy device; a kubelet does not list unhealthy devices"
    assert word in finding.command
    held = replace(told, devices=(W0, DeviceState("w1", "Unknown", (), ("default/p (c)",))))
    finding = only(judge_health(held, "kubelet", was_asked=was_asked))
    assert (finding.result, finding.looked_at) == (Outcome.WARNING, "w1")


@pytest.mark.parametrize(
    ("devices", "result", "says"),
    [
        ((W0, W1), Outcome.OK, "2 of 2"),
        ((W0, DeviceState("w1", "Unhealthy")), Outcome.PROBLEM, "1 of 2 devices are healthy; 1 Un"),
        ((DeviceState("w0", "healthy"),), Outcome.PROBLEM, "1 healthy"),
        ((DeviceState("w0", ""),), Outcome.PROBLEM, "1 with empty health"),
        ((W0, DeviceState("w1", "Unknown")), Outcome.WARNING, "1 held, but no longer listed"),
        ((), Outcome.PROBLEM, "lists no device at all"),
    ],
)
def test_health(devices: tuple[DeviceState, ...], result: Outcome, says: str) -> None:
    """How many are well; any other word than Healthy is not."""
    finding = only(judge_health(replace(STATE, devices=devices), "node"))
    assert (finding.step, finding.result) == (Step.HEALTH, result)
    assert says in finding.found


def test_a_device_out_of_service_is_not_a_problem_of_the_plugin() -> None:
    """Nor is a replica of such a device; others are."""
    devices = (W0, DeviceState("w1::0", "Unhealthy"), DeviceState("w2", "Unhealthy"))
    state = replace(STATE, devices=devices)
    cordoned = [DeviceReason(STATE.name, each, "fan") for each in ("w1", "w2::1")]
    finding = only(judge_health(state, "node", cordoned=cordoned))
    assert finding.result is Outcome.OK
    assert finding.found == "1 of 3 devices are healthy; 2 cordoned"
    finding = only(judge_health(state, "node", cordoned=cordoned[:1]))
    assert (finding.result, finding.looked_at) == (Outcome.PROBLEM, "w2")


@pytest.mark.parametrize(
    ("reason", "result"), [(AWAY, Outcome.WARNING), ("its check failed", Outcome.PROBLEM)]
)
def test_the_plugin_is_not_blamed_for_what_a_rule_of_the_proxy_says(
    reason: str, result: Outcome
) -> None:
    """A plugin that is away is one problem: the proxy's line has it."""
    state = replace(STATE, devices=(W0, DeviceState("w1", "Unhealthy")))
    finding = only(judge_health(state, "node", reasons={"w1": reason}))
    assert (finding.result, finding.looked_at) == (result, "w1")
    assert finding.found == f"1 of 2 devices are healthy; 1 Unhealthy: {reason}"
    assert "not the plugin" in finding.advice
    finding = only(judge_health(state, "node", reasons={"w2": reason}))
    assert "the plugin reports this" in finding.advice


@pytest.mark.parametrize(
    ("cordoned", "listed", "is_out"),
    [
        ("w1", "w1", True),
        ("w1", "w1::0", True),
        ("w1::0", "w1", True),
        ("w1::0", "w1::1", False),  # only a replica is out
    ],
)
def test_a_cordoned_device_is_reported_with_the_command_to_uncordon(
    cordoned: str, listed: str, is_out: bool
) -> None:
    """A kubelet does not list it. One that is Healthy has a plugin that does not obey the list."""
    out = [DeviceReason(STATE.name, cordoned, "fan")]
    for state in (None, replace(STATE, devices=(W0, DeviceState(listed, "Unhealthy")))):
        finding = only(judge_cordoned(out, state))
        assert (finding.step, finding.result) == (Step.HEALTH, Outcome.WARNING)
        assert (finding.looked_at, finding.found) == (
            f"{STATE.name}/{cordoned}",
            "is cordoned: fan",
        )
        assert finding.command == f"kubedevices uncordon {STATE.name}/{cordoned}"
    healthy = replace(STATE, devices=(DeviceState(listed, "Healthy"),))
    assert len(judge_cordoned(out, healthy)) == (not is_out)


@pytest.mark.parametrize("plugin", ["starting", "stopped", "missing"])
def test_health_has_no_finding_if_the_registration_has(plugin: str) -> None:
    """All devices of a plugin that went away are unhealthy: one fault is told once."""
    gone = replace(STATE, plugin=plugin, devices=(DeviceState("w0", "Unhealthy"),))
    assert judge_health(gone, "node") == []


def test_held_devices_are_not_missing() -> None:
    """Nothing is wrong, nothing is left; whoever has them is named."""
    held = replace(W0, held_by=("default/train (main)",))
    assert only(judge_held(replace(STATE, devices=(held, W1)), "node")).result is Outcome.OK
    finding = only(judge_held(replace(STATE, devices=(held,)), "node"))
    assert finding.result is Outcome.WARNING
    assert "1 of 1 healthy devices are held, by default/train (main)" in finding.found
    sick = replace(STATE, devices=(replace(held, health="Unhealthy"),))
    assert judge_held(sick, "node") == []


def test_a_device_with_two_holders_is_a_problem() -> None:
    """Whatever its health; two containers of one pod are one holder."""
    one = ("lab/a (main)", "lab/a (init)")
    twice = DeviceState("w0", "Unhealthy", held_by=(*one, "lab/b (main)"))
    finding = only(judge_held(replace(STATE, devices=(twice,)), "node"))
    assert (finding.result, finding.looked_at) == (Outcome.PROBLEM, f"{NAME}/w0")
    assert "held by 2 pods: lab/a (main), lab/a (init), lab/b (main)" in finding.found
    assert judge_held(replace(STATE, devices=(replace(twice, held_by=one),)), "node") == []


def on(node: int, device: DeviceState, *held_by: str) -> DeviceState:
    return replace(device, numa_nodes=(node,), held_by=held_by)


@pytest.mark.parametrize(
    ("policy", "devices", "result", "says"),
    [
        ("none", (W0,), Outcome.OK, "no pod is refused"),
        ("best-effort", (W0,), Outcome.OK, "no pod is refused"),
        (None, (on(0, W0), W1), Outcome.UNKNOWN, "1 of 2 devices report a NUMA node"),
        ("restricted", (on(0, W0), W1), Outcome.WARNING, "1 of 2 devices report no NUMA node"),
        ("restricted", (on(0, W0), on(1, W1)), Outcome.OK, "on NUMA node 0: 1, on NUMA node 1: 1"),
        ("single-numa-node", (on(0, W0), on(0, W1)), Outcome.OK, "on NUMA node 0: 2"),
        (
            "single-numa-node",
            (on(0, W0), on(1, W1)),
            Outcome.OK,
            "more than 1 in a container ends in",
        ),
        ("single-numa-node", (on(0, W0, "pod"), on(1, W1)), Outcome.OK, "on NUMA node 1: 1"),
        ("single-numa-node", (on(0, W0, "pod"),), Outcome.OK, "no device is free"),
    ],
)
def test_numa(
    policy: str | None, devices: tuple[DeviceState, ...], result: Outcome, says: str
) -> None:
    """What a policy makes of the nodes that devices tell, or do not."""
    finding = only(judge_numa(replace(STATE, devices=devices), policy))
    assert (finding.step, finding.result) == (Step.NUMA, result)
    assert says in finding.found
