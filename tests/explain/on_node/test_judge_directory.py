"""Where plugins and kubelet meet: each fault is named, and what is right is not."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.explain.finding import Finding, Outcome, Step
from kubedevices.explain.on_node.facts import (
    MISSING,
    NO_PERMISSION,
    NO_SOCKET,
    NOBODY,
    Directory,
    Kubelet,
    LostSocket,
    PluginAnswer,
    ProcessFacts,
    RefusedPlugin,
    RegistrySocket,
    ResourceFacts,
    ResourceState,
    Socket,
)
from kubedevices.explain.on_node.judge_directory import (
    judge_directory,
    judge_kubelet_socket,
    judge_path_length,
    judge_plugin_sockets,
    judge_registry,
)
from kubedevices.values.allocation import PluginInfo
from kubedevices.values.device import ReportedDevice
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, instance_of, instance_socket

PLACE = Path("/run/kd")
KUBELET = Kubelet(ProcessFacts(7, "kubelet"), Path("/data/kubelet"))
SERVED = Socket(PLACE / "kubelet.sock", listener=ProcessFacts(7, "kubelet"))
GOOD = Directory(PLACE, mode=0o750, kubelet=SERVED)


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


@pytest.mark.parametrize(
    ("directory", "result", "says"),
    [
        (GOOD, Outcome.OK, "mode 0750"),
        (replace(GOOD, link_to=Path("/data/kd")), Outcome.OK, "a link to /data/kd"),
        (replace(GOOD, mode=0o777), Outcome.WARNING, "mode 0777"),
        (Directory(PLACE, MISSING), Outcome.PROBLEM, "does not exist"),
        (Directory(PLACE, "it is not a directory"), Outcome.PROBLEM, "it is not a directory"),
        (Directory(PLACE, NO_PERMISSION), Outcome.UNKNOWN, "no permission"),
    ],
)
def test_the_directory(directory: Directory, result: Outcome, says: str) -> None:
    """A directory is there, may be used, and is not everybody's."""
    finding = only(judge_directory(directory, []))
    assert (finding.step, finding.result) == (Step.DIRECTORY, result)
    assert says in finding.found


@pytest.mark.parametrize(
    ("refusal", "result", "says"),
    [
        ("", Outcome.OK, "kubelet (pid 7) accepts"),
        (MISSING, Outcome.PROBLEM, "does not exist"),
        (NO_SOCKET, Outcome.PROBLEM, "not a socket"),
        (NOBODY, Outcome.PROBLEM, "its socket file stays"),
        (NO_PERMISSION, Outcome.UNKNOWN, "no permission"),
        ("AF_UNIX path too long", Outcome.PROBLEM, "too long"),
    ],
)
def test_kubelet_sock(refusal: str, result: Outcome, says: str) -> None:
    """It is there, a socket, and somebody accepts on it."""
    directory = replace(GOOD, kubelet=replace(SERVED, refusal=refusal))
    finding = only(judge_kubelet_socket(directory, [], ResourceFacts()))
    assert (finding.step, finding.result) == (Step.KUBELET_SOCKET, result)
    assert says in finding.found


@pytest.mark.parametrize("refusal", [MISSING, NOBODY])
def test_a_kubelet_elsewhere_is_named(refusal: str) -> None:
    """Whoever looks in the wrong place is told the right one, by its socket or by its process."""
    deserted = replace(GOOD, kubelet=replace(SERVED, refusal=refusal))
    other = Path("/var/lib/k0s/kubelet/device-plugins")
    served = only(judge_kubelet_socket(replace(deserted, elsewhere=(other,)), [], ResourceFacts()))
    assert str(other) in served.advice
    started = only(judge_kubelet_socket(deserted, [KUBELET], ResourceFacts()))
    assert "root directory /data/kubelet" in started.advice
    assert str(DEVICE_PLUGIN_DIR) in started.advice


def test_the_command_starts_what_serves_that_directory() -> None:
    """For the kubelet's own directory it is a kubelet, for any other a node of ours."""
    for place, command in (
        (PLACE, "kubedevices node --socket-dir /run/kd"),
        (DEVICE_PLUGIN_DIR, "systemctl status kubelet"),
        (Path("/host") / DEVICE_PLUGIN_DIR.relative_to("/"), "systemctl status kubelet"),
    ):
        missing = only(judge_directory(Directory(place, MISSING), []))
        assert (missing.command, missing.advice.split()[:2]) == (command, ["a", "kubelet,"])
        for refusal, advice in ((MISSING, "start a kubelet"), (NOBODY, "start the kubelet")):
            socket = replace(SERVED, refusal=refusal)
            deserted = only(
                judge_kubelet_socket(Directory(place, kubelet=socket), [], ResourceFacts())
            )
            assert (deserted.command, deserted.advice.startswith(advice)) == (command, True)


def test_a_directory_too_deep_for_a_socket() -> None:
    """107 bytes is all that Linux takes; kubelet.sock needs 13 of them with its slash."""
    assert only(judge_path_length(Path("/" + "d" * 93))).result is Outcome.OK
    finding = only(judge_path_length(Path("/" + "d" * 94)))
    assert finding.result is Outcome.PROBLEM
    assert "108 bytes" in finding.found


def test_a_resource_too_long_for_a_socket_of_its_name() -> None:
    """A plugin that calls its socket after the resource cannot listen; short names say nothing."""
    assert judge_path_length(DEVICE_PLUGIN_DIR, "example.com/widget") == []
    finding = only(judge_path_length(DEVICE_PLUGIN_DIR, "example.com/" + "w" * 60))
    assert finding.result is Outcome.WARNING
    assert "bytes, but Linux allows 107" in finding.found


PLUGIN = Socket(PLACE / "widget.sock", "", ProcessFacts(9, "widgets"), connections=1)
THREE = tuple(ReportedDevice(f"w{i}", "Healthy" if i else "Unhealthy") for i in range(3))


@pytest.mark.parametrize(
    ("plugin", "result", "says"),
    [
        (PLUGIN, Outcome.OK, "widgets (pid 9) listens, 1 connection"),
        (replace(PLUGIN, connections=None), Outcome.OK, "widgets (pid 9) listens"),
        (replace(PLUGIN, connections=2), Outcome.OK, "listens, 2 connections"),
        (replace(PLUGIN, connections=0), Outcome.PROBLEM, "the plugin is not registered"),
        (replace(PLUGIN, refusal=NOBODY), Outcome.WARNING, "no process listens"),
        (replace(PLUGIN, refusal=NO_PERMISSION), Outcome.UNKNOWN, "no permission"),
        (replace(PLUGIN, refusal="wrong type"), Outcome.UNKNOWN, "cannot connect: wrong type"),
        (
            replace(PLUGIN, answer=PluginAnswer(THREE)),
            Outcome.OK,
            "lists 3 devices, 2 healthy, 1 connection",
        ),
        (
            replace(PLUGIN, answer=PluginAnswer(problem="does not answer")),
            Outcome.PROBLEM,
            "does not answer",
        ),
    ],
)
def test_a_plugins_socket(plugin: Socket, result: Outcome, says: str) -> None:
    """Who listens, whether somebody is connected, and what it said if it was asked."""
    finding = only(judge_plugin_sockets(replace(GOOD, plugins=(plugin,)), ResourceFacts()))
    assert (finding.step, finding.result) == (Step.PLUGIN_SOCKET, result)
    assert says in finding.found
    assert "kill" not in finding.command


def test_an_older_instance_stands_by() -> None:
    """Nobody is connected to it, which is right as long as the newer one lives."""
    older, newer = (
        replace(
            PLUGIN, path=instance_socket(PLACE, "example.com/gpu", instance_of(n)), connections=n
        )
        for n in (0, 1)
    )
    findings = judge_plugin_sockets(replace(GOOD, plugins=(older, newer)), ResourceFacts())
    assert [each.result for each in findings] == [Outcome.WARNING, Outcome.OK]
    assert "stands by" in findings[0].found
    dead = replace(newer, refusal=NOBODY)
    findings = judge_plugin_sockets(replace(GOOD, plugins=(older, dead)), ResourceFacts())
    assert findings[0].result is Outcome.PROBLEM
    other = replace(newer, path=instance_socket(PLACE, "example.com/nic", instance_of(1)))
    findings = judge_plugin_sockets(replace(GOOD, plugins=(older, other)), ResourceFacts())
    assert findings[0].result is Outcome.PROBLEM


@pytest.mark.parametrize(("since", "is_older"), [(90.0, True), (110.0, False), (0.0, False)])
def test_a_plugin_from_before_the_restart_is_reported(since: float, is_older: bool) -> None:
    """It did not register with the kubelet that is there now."""
    plugin = replace(PLUGIN, connections=0, since=since)
    restarted = replace(GOOD, kubelet=replace(SERVED, since=100.0), plugins=(plugin,))
    finding = only(judge_plugin_sockets(restarted, ResourceFacts()))
    assert ("since kubelet.sock was created again" in finding.found) == is_older


def test_a_listener_without_a_visible_process_is_reported() -> None:
    """A process of another user, or in another container, has no name for us."""
    nameless = replace(GOOD, kubelet=replace(SERVED, listener=None))
    assert (
        "a process that cannot be seen accepts"
        in only(judge_kubelet_socket(nameless, [], ResourceFacts())).found
    )
    plugin = replace(PLUGIN, listener=None, connections=0)
    finding = only(judge_plugin_sockets(replace(GOOD, plugins=(plugin,)), ResourceFacts()))
    assert (finding.result, finding.command) == (Outcome.PROBLEM, "")
    lost = replace(GOOD, lost=(LostSocket(PLACE / "w.sock"),))
    finding = only(judge_plugin_sockets(lost, ResourceFacts()))
    assert (finding.result, finding.command) == (Outcome.UNKNOWN, "")
    assert "as root" in finding.advice


@pytest.mark.parametrize(
    ("listener", "log", "restart"),
    [
        (ProcessFacts(9, "widgets"), "systemctl status 9", "systemctl status 9"),
        (
            ProcessFacts(9, "widgets", "kube-system/w-x1", "plugin"),
            "kubectl logs --namespace kube-system w-x1 --container plugin",
            "kubectl delete pod --namespace kube-system w-x1",
        ),
        (ProcessFacts(9, "widgets", "1b2c"), "", ""),  # a pod whose name could not be seen
    ],
)
def test_an_unregistered_plugin_gets_log_and_restart_commands(
    listener: ProcessFacts, log: str, restart: str
) -> None:
    """First its log, which has the refusal; a restart only where the kubelet's was missed."""
    plugin = replace(PLUGIN, listener=listener, connections=0, since=110)
    served = replace(GOOD, kubelet=replace(SERVED, since=100.0))
    never = only(judge_plugin_sockets(replace(served, plugins=(plugin,)), ResourceFacts()))
    assert (never.command, "the log of the plugin" in never.advice) == (log, True)
    old = replace(plugin, since=90)
    missed = only(judge_plugin_sockets(replace(served, plugins=(old,)), ResourceFacts()))
    assert (missed.command, "restart the plugin" in missed.advice) == (restart, True)


@pytest.mark.parametrize("state", ["T", "t", "S", "D"])
def test_a_process_that_is_stopped_answers_nothing(state: str) -> None:
    """It seems to accept, by the kernel: a kubelet waits for it, or plugins for a kubelet."""
    stopped = ProcessFacts(9, "widgets", state=state)
    directory = replace(
        GOOD,
        kubelet=replace(SERVED, listener=stopped),
        plugins=(replace(PLUGIN, listener=stopped),),
    )
    for finding in (
        only(judge_kubelet_socket(directory, [], ResourceFacts())),
        only(judge_plugin_sockets(directory, ResourceFacts())),
    ):
        assert (finding.result is Outcome.PROBLEM) == (state in "Tt")
        assert finding.command == ("kill -CONT 9" if state in "Tt" else "")


def test_a_kubelet_that_does_not_answer_is_a_problem() -> None:
    """Nobody gets devices from it, although it accepts connections."""
    silent = ResourceFacts(is_kubelet=True, is_silent=True, waited=5)
    finding = only(judge_kubelet_socket(GOOD, [], silent))
    assert finding.result is Outcome.PROBLEM
    assert "kubelet (pid 7) accepts connections, but did not answer within 5 s" in finding.found


def test_a_missing_connection_is_right_without_a_kubelet() -> None:
    """Without a kubelet a plugin waits, which is right."""
    deserted = replace(GOOD, kubelet=replace(SERVED, refusal=NOBODY))
    waiting = replace(deserted, plugins=(replace(PLUGIN, connections=0),))
    assert only(judge_plugin_sockets(waiting, ResourceFacts())).result is Outcome.OK


@pytest.mark.parametrize(
    ("connections", "result"), [(0, Outcome.PROBLEM), (None, Outcome.PROBLEM), (1, Outcome.WARNING)]
)
def test_a_plugin_whose_socket_was_deleted(connections: int | None, result: Outcome) -> None:
    """What is left of a plugin that missed a kubelet restart; connected, it is registered yet."""
    lost = LostSocket(PLACE / "widget.sock", ProcessFacts(9, "widgets"), connections)
    finding = only(judge_plugin_sockets(replace(GOOD, lost=(lost,)), ResourceFacts()))
    assert finding.result is result
    assert "widgets (pid 9) listens on it, but the file was deleted" in finding.found
    assert ("serves its devices" in finding.advice) == bool(connections)
    assert "kill" not in finding.command


@pytest.mark.parametrize(("pod", "result"), [("ns/w", Outcome.PROBLEM), ("", Outcome.WARNING)])
def test_a_plugin_with_a_directory_of_its_own(pod: str, result: Outcome) -> None:
    """A restart does not help it: its container lacks the host's directory."""
    lost = LostSocket(DEVICE_PLUGIN_DIR / "w.sock", ProcessFacts(9, "w", pod), 0, is_apart=True)
    finding = only(judge_plugin_sockets(replace(GOOD, lost=(lost,)), ResourceFacts()))
    assert (finding.result, finding.command) == (result, "")
    assert "in a directory of its container" in finding.found
    assert "hostPath" in finding.advice


def test_a_refused_plugin_counts_until_it_is_connected() -> None:
    """The node's words are told, once; a plugin that came in later is no problem any more."""
    refusal = RefusedPlugin("example.com/w", "w.sock", "the name is invalid")
    directory = replace(GOOD, plugins=(PLUGIN,))
    refused = judge_plugin_sockets(directory, ResourceFacts(refusals=(refusal, refusal)))
    assert [each.found for each in refused if each.result is Outcome.PROBLEM] == [
        "the node refused it: the name is invalid"
    ]
    state = ResourceState("example.com/w", plugin="connected")
    answers = ResourceFacts(refusals=(refusal,), resources={"example.com/w": state})
    assert only(judge_plugin_sockets(directory, answers)).result is Outcome.OK


def test_an_empty_directory_is_no_fault() -> None:
    """A node without devices is healthy."""
    finding = only(judge_plugin_sockets(GOOD, ResourceFacts()))
    assert finding.result is Outcome.OK
    assert "no plugin has a socket here" in finding.found


OFFER = PluginInfo("DevicePlugin", "example.com/widget", "", ("v1beta1",))


@pytest.mark.parametrize(
    ("watched", "result", "says"),
    [
        (RegistrySocket(PLACE, OFFER), Outcome.OK, "offers example.com/widget"),
        (
            RegistrySocket(PLACE, OFFER._replace(name="widget")),
            Outcome.PROBLEM,
            "no kubelet accepts",
        ),
        (
            RegistrySocket(PLACE, OFFER._replace(supported_versions=("v1",))),
            Outcome.PROBLEM,
            "in v1, but a",
        ),
        (
            RegistrySocket(PLACE, OFFER._replace(supported_versions=())),
            Outcome.PROBLEM,
            "no version",
        ),
        (RegistrySocket(PLACE, problem="no plugin answers"), Outcome.WARNING, "no plugin answers"),
        (
            RegistrySocket(PLACE, socket=Socket(PLACE, NO_PERMISSION)),
            Outcome.UNKNOWN,
            "no permission to connect",
        ),
        (
            RegistrySocket(PLACE, socket=Socket(PLACE, NOBODY)),
            Outcome.PROBLEM,
            "no process listens on it",
        ),
        (
            RegistrySocket(PLACE, problem="no answer", socket=Socket(PLACE)),
            Outcome.PROBLEM,
            "listens, but does not answer",
        ),
        (
            RegistrySocket(PLACE, socket=Socket(PLACE, listener=ProcessFacts(7, "x", state="T"))),
            Outcome.PROBLEM,
            "is stopped",
        ),
    ],
)
def test_the_plugin_registry(watched: RegistrySocket, result: Outcome, says: str) -> None:
    """What waits there to be found, and whether a kubelet would take it."""
    finding = only(judge_registry([watched]))
    assert (finding.result, says in finding.found) == (result, True)


def test_other_kinds_of_plugins_are_ignored() -> None:
    """Storage drivers and DRA drivers have their sockets in the registry too."""
    assert judge_registry([RegistrySocket(PLACE, OFFER._replace(type="CSIPlugin"))]) == []
