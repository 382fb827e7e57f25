"""Which plugin is that of which resource, and who offers one that another offers too."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.explain.finding import Outcome
from kubedevices.explain.on_node.facts import (
    Allocation,
    DeviceState,
    PluginAnswer,
    ResourceFacts,
    ResourceState,
    Socket,
)
from kubedevices.explain.on_node.judge_rivals import completed, held_now, judge_rivals
from kubedevices.values.allocation import ContainerAllocateResponse
from kubedevices.values.device import ReportedDevice

GPU, NIC = "example.com/gpu", "example.com/nic"


def plugin(name: str, healthy: str = "", unhealthy: str = "") -> Socket:
    """Return a connected plugin that was asked; a letter is a device."""
    listed = [ReportedDevice(each, "Healthy", (1,)) for each in healthy]
    listed += [ReportedDevice(each, "Unhealthy") for each in unhealthy]
    return Socket(Path(f"/p/{name}.sock"), connections=1, answer=PluginAnswer(tuple(listed)))


def kubelet(**resources: str) -> ResourceFacts:
    """Return what a kubelet says of its healthy devices; a letter is a device."""
    states = {
        f"example.com/{name}": ResourceState(
            f"example.com/{name}",
            tuple(DeviceState(each, "Healthy") for each in devices),
            allocatable=len(devices),
        )
        for name, devices in resources.items()
    }
    return ResourceFacts("kubelet", is_kubelet=True, resources=states)


def silent(socket: Socket) -> Socket:
    return replace(socket, answer=None)


def test_a_plugin_that_was_asked_completes_what_a_kubelet_says() -> None:
    """It has the same healthy devices, and adds the others; holders are the kubelet's."""
    answers = kubelet(gpu="a", nic="x")
    held = DeviceState("b", "Unknown", (), ("pod",))
    gone = DeviceState("z", "Unknown", (), ("other",))
    state = answers.resources[GPU]
    devices = (*state.devices, held, gone)
    answers = replace(
        answers, resources={**answers.resources, GPU: replace(state, devices=devices)}
    )
    found = completed(GPU, [plugin("g", "a", "bc"), plugin("n", "x", "y")], answers)
    assert found is not None
    assert (found.capacity, found.allocatable, found.socket) == (3, 1, "g.sock")
    assert found.devices == (
        DeviceState("a", "Healthy", (1,)),
        DeviceState("b", "Unhealthy", (), ("pod",)),
        DeviceState("c", "Unhealthy"),
        gone,
    )


def test_device_ids_alone_do_not_identify_a_plugin() -> None:
    """They are unique within a resource: many plugins count from 0."""
    answers = kubelet(gpu="01", nic="01")
    two = [plugin("g", "01", "2"), plugin("n", "01")]
    assert completed(GPU, two, answers) is answers.resources[GPU]
    alone = kubelet(gpu="01")
    assert completed(GPU, two, alone) is alone.resources[GPU]
    assert completed(NIC, two, alone) is None


def test_the_state_of_a_kubedevices_node_is_complete() -> None:
    """It tells unhealthy devices itself."""
    answers = replace(kubelet(gpu="a"), is_kubelet=False)
    assert completed(GPU, [plugin("g", "a", "b")], answers) is answers.resources[GPU]


def test_a_resource_without_healthy_devices_matches_the_only_plugin_without() -> None:
    """Where there is only one of each."""
    answers = replace(kubelet(nic="x"), registered={GPU: ()})
    found = completed(GPU, [plugin("g", "", "ab"), plugin("n", "x")], answers)
    assert found is not None
    assert (found.capacity, found.allocatable) == (2, 0)


RIVALS = (plugin("g", "a"), plugin("g2", "b"), plugin("n", "x"))


@pytest.mark.parametrize(
    ("plugins", "named", "why"),
    [
        (RIVALS, "g2.sock, a process that cannot be seen", "this plugin lists devices that no"),
        (
            (plugin("g", "a"), plugin("g2", "a"), plugin("n", "x")),
            "g.sock, a process that cannot be seen, g2.sock",
            "this plugin lists devices that no",
        ),
        (tuple(map(silent, RIVALS)), "g.sock, g2.sock, n.sock", "two plugins serve the same"),
    ],
)
def test_two_plugins_of_one_resource(plugins: tuple[Socket, ...], named: str, why: str) -> None:
    """A kubelet has more connections than resources; lists tell which of them is too many."""
    (finding,) = judge_rivals(plugins, kubelet(gpu="a", nic="x"))
    assert finding.result is Outcome.WARNING
    assert finding.looked_at.startswith(named)
    assert f"3 plugins are connected to serve 2 resources: {why}" in finding.found
    asked = any(each.answer for each in plugins)
    assert ("--ask-plugins" in finding.command) == (not asked)


def test_as_many_plugins_as_resources_are_fine() -> None:
    """Nor those that are not connected, nor where nobody said which resources there are."""
    answers = kubelet(gpu="a", nic="x")
    assert judge_rivals([RIVALS[0], RIVALS[2]], answers) == []
    assert judge_rivals([replace(RIVALS[1], connections=0), *RIVALS[::2]], answers) == []
    assert judge_rivals([replace(RIVALS[1], connections=None), *RIVALS[::2]], answers) == []
    assert judge_rivals(RIVALS, ResourceFacts(is_kubelet=True, is_silent=True)) == []


def test_a_kubedevices_node_names_the_plugin_of_a_resource() -> None:
    """So nobody has to be asked."""
    answers = kubelet(gpu="a", nic="x")
    served = {
        name: replace(state, socket=f"{name[12]}.sock") for name, state in answers.resources.items()
    }
    node = replace(answers, is_kubelet=False, resources=served)
    (finding,) = judge_rivals(map(silent, RIVALS), node)
    assert (finding.looked_at, finding.command) == ("g2.sock, a process that cannot be seen", "")
    assert finding.found.endswith(": this plugin serves no resource")


def test_a_pod_that_ended_holds_nothing() -> None:
    """The checkpoint has it until the next admission; what it was given matters no more."""
    allocations = tuple(
        Allocation(uid, "main", GPU, ("a",), ContainerAllocateResponse()) for uid in "123"
    )
    answers = kubelet(gpu="ab")
    device = replace(answers.resources[GPU].devices[0], held_by=("ns/lives (main)",))
    held = replace(answers.resources[GPU], devices=(device,))
    answers = replace(answers, resources={GPU: held}, allocations=allocations)
    names = {"1": "ns/lives", "2": "ns/ended"}  # of the third nobody knows it
    assert [each.pod_uid for each in held_now(GPU, answers, names)] == ["1", "3"]
    nameless = replace(device, held_by=("2 (main)",))  # taken over from a checkpoint
    held = replace(held, devices=(device, nameless))
    assert len(held_now(GPU, replace(answers, resources={GPU: held}), names)) == 3
    assert held_now(NIC, answers, names) == []
    for unsure in (
        replace(answers, source=""),
        replace(answers, is_kubelet=False),
        replace(answers, resources={}),
    ):
        assert len(held_now(GPU, unsure, names)) == 3
