"""A real plugin that is broken on purpose: what the kubelet gets of it."""

from pathlib import Path

import pytest

from kubedevices.errors import ConfigError, RpcError
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxy_config import load_proxy_config
from kubedevices.rules.step_control import tell
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from tests.fake_plugin import RESOURCE, healthy
from tests.proxy_rig import proxied
from tests.waiting import until

FAULTS = """
resources:
  example.com/widget:
    faults:
      failAllocateEvery: 2
      refuse: [b]
      preStart: {failEvery: 1}
      timeline: [{at: 0s, id: b, health: Unhealthy}]
      control: CONTROL
"""


def ask(device_id: str) -> AllocateRequest:
    return AllocateRequest((ContainerAllocateRequest((device_id,)),))


async def test_the_kubelet_gets_the_faults(short_dir: Path) -> None:
    """Of calls, options and health; the socket sets health as that of a simulator does."""
    file, socket = short_dir / "proxy.yaml", short_dir / "c.sock"
    file.write_text(FAULTS.replace("CONTROL", str(socket)))
    async with proxied(short_dir, rules=LiveRules.from_file(file)) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        served = await rig.kubelet.wait_for(RESOURCE, {"a": "Healthy", "b": "Unhealthy"})
        assert served.options.pre_start_required
        assert (await served.client.allocate(ask("a"), timeout=60)).containers
        with pytest.raises(RpcError, match="simulated failure of call 2"):
            await served.client.allocate(ask("a"), timeout=60)
        with pytest.raises(RpcError, match="simulated refusal of b"):
            await served.client.allocate(ask("b"), timeout=60)
        assert plugin.allocations == [("a",), ("a",)]
        await until(socket.exists)
        assert await tell(socket, {"set": {"health": "Unhealthy"}}) == 2
        await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy", "b": "Unhealthy"})


async def test_streams_are_dropped(short_dir: Path) -> None:
    """The kubelet gets a new registration each time."""
    file = short_dir / "proxy.yaml"
    file.write_text("resources:\n  example.com/*: {faults: {dropStreamEvery: 100ms}}\n")
    async with proxied(short_dir, rules=LiveRules.from_file(file)) as rig:
        await rig.plugin(*healthy("a"))
        await until(lambda: len(rig.kubelet.requests) >= 3, timeout=60)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("faults: {failAllocateEvery: 0}", "failAllocateEvery: must be 1 or more"),
        ("faults: {timeline: [{at: 1s, health: Sick}]}", "must be Healthy or Unhealthy"),
        (
            "health: {checks: [{file: '/x/{name}'}]}",
            "unknown placeholder {name}, known: {id},",
        ),
        ("health: {checks: [{command: ['{']}]}", "a single '{'"),
        ("health: {checks: [{sysfs: ../../x}]}", "write a name below /sys/bus/pci/devices"),
        ("health: {checks: [{sysfs: enable, file: /x}]}", "use only one of"),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, rule: str, problem: str) -> None:
    """As those of other keys."""
    file = tmp_path / "proxy.yaml"
    file.write_text(f"resources:\n  a.com/b:\n    {rule}\n")
    with pytest.raises(ConfigError) as caught:
        load_proxy_config(file)
    assert problem in str(caught.value)
    assert f"{file}:3:" in str(caught.value)


def test_a_check_in_sysfs_is_a_file_of_the_pci_function(tmp_path: Path) -> None:
    """Of the device that is checked."""
    file = tmp_path / "proxy.yaml"
    file.write_text(
        "resources: {a.com/b: {health: {checks: [{sysfs: enable, equals: '1', okAfter: 2}]}}}\n"
    )
    health = load_proxy_config(file)[0].resources["a.com/b"].health
    assert health is not None
    check = health.checks[0]
    assert check.path == "/sys/bus/pci/devices/{address}/enable"
    assert (check.equals, check.ok_after) == ("1", 2)
