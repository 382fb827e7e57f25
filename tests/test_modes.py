"""One scanner in several modes."""

import pytest

import kubedevices as kd
from kubedevices.modes import make_runner
from kubedevices.plugin.runner import PluginRunner


class Nothing(kd.PolledScanner):
    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree()


def test_a_device_plugin_is_the_usual_mode() -> None:
    """The other mode has tests of its own."""
    assert isinstance(make_runner(Nothing(), "example.com", "device-plugin", {}), PluginRunner)


def test_an_unknown_mode_names_the_known() -> None:
    """A misspelt mode serves nothing."""
    with pytest.raises(kd.KubedevicesError, match="'device-plugin', 'dra', not 'DRA'"):
        make_runner(Nothing(), "example.com", "DRA", {})
