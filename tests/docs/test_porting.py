"""docs/porting.md names existing methods."""

import re

from kubedevices.node.device_manager import DeviceManager
from tests.docs.pages import ROOT

INTERFACE = {
    "Start",
    "Allocate",
    "Stop",
    "GetDeviceRunContainerOptions",
    "GetCapacity",
    "GetWatcherHandler",
    "GetDevices",
    "UpdatePluginResources",
    "UpdateAllocatedDevices",
    "GetTopologyHints",
    "GetPodTopologyHints",
    "GetAllocatableDevices",
    "GetHealthChecker",
    "ShouldResetExtendedResourceCapacity",
    "UpdateAllocatedResourcesStatus",
}


def test_every_method_of_the_kubelets_manager_has_a_counterpart() -> None:
    """The table has the whole interface, and each method on the right exists."""
    page = (ROOT / "docs/porting.md").read_text().partition("## From the kubelet")[2]
    named = dict(re.findall(r"^\| `(\w+)` \| `(\w+)\(", page, re.MULTILINE))
    assert set(named) == INTERFACE
    for method in (*named.values(), "release", "wait_for", "subscribe", "health_updates"):
        assert callable(getattr(DeviceManager, method)), method
        assert f"{method}(" in page
