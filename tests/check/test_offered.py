"""What a plugin finds on the node of the check: the registry directory, the podresources socket."""

import sys
from dataclasses import replace

import pytest

from kubedevices.check.checks import find
from kubedevices.check.harness_setup import open_harness
from kubedevices.check.runner import run_all
from kubedevices.kubelet_api.pod_resources import DeviceEntry, PodResourcesClient
from kubedevices.testing.kubelet.mounts import HIDDEN
from kubedevices.values.socket_paths import PLUGIN_REGISTRY_DIR
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.check.rig import FAST, GOOD_PLUGIN, HERE, target, widgets
from tests.host_needs import needs

ONLY = [find("registration.registers"), find("allocate.answers")]


@pytest.mark.parametrize("registry", [True, False])
async def test_without_a_registry_its_directory_does_not_exist(registry: bool) -> None:
    """A plugin that chooses by the existence of the directory registers at kubelet.sock."""
    with widgets() as directory:
        plugin = target(HERE / "unusual_plugin.py", directory, ("--habit", "ChoosesByDirectory"))
        results = (await run_all(replace(plugin, registry=registry), ONLY, FAST)).results
        async with open_harness(replace(plugin, registry=registry), FAST) as harness:
            assert harness.directories.registry.exists() is registry
            hidden = [each.inside for each in harness.directories.binds() if each.host == HIDDEN]
    assert [each.status.value for each in results] == ["pass", "pass"]
    assert hidden == ([] if registry else [str(PLUGIN_REGISTRY_DIR)])


async def test_a_podresources_socket_has_no_pods_and_the_devices() -> None:
    """`{pod_resources}` is its path; it lives and dies with the kubelet."""
    with widgets() as directory:
        plugin = target(GOOD_PLUGIN, directory)
        async with open_harness(plugin, FAST) as harness:
            await harness.start_first()
            await harness.until(lambda: harness.probe.plugins["example.com/widget"].latest, 10)
            socket = harness.directories.pod_resources
            assert harness.directories.placeholders()["{pod_resources}"] == str(socket)
            async with await GrpcChannel.dial(socket, timeout=5) as channel:
                client = PodResourcesClient(channel)
                assert await client.list_pods(timeout=5) == ()
                found = await client.get_allocatable(timeout=5)
            assert DeviceEntry("example.com/widget", ("w0::0",), (0,)) in found
            await harness.probe.stop()
            assert not socket.exists()


@needs("mount")
async def test_a_plugin_finds_the_podresources_socket_at_the_fixed_path() -> None:
    """A plugin that does not start without it, and has the path built in, can be judged."""
    script = "test -S /var/lib/kubelet/pod-resources/kubelet.sock || exit 3"
    with widgets() as directory:
        plugin = target(GOOD_PLUGIN, directory)
        words = ("sh", "-c", f'{script}; exec "$@"', "sh", *plugin.command)
        assert words[4] == sys.executable
        results = (await run_all(replace(plugin, command=words), ONLY, FAST)).results
    assert [each.status.value for each in results] == ["pass", "pass"]
