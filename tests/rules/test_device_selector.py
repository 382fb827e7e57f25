"""Which devices a rule means."""

from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import UsageError
from kubedevices.host.pci import PciDevice
from kubedevices.rules.device_selector import (
    PciRule,
    UnusedGlobs,
    selector_text,
)
from kubedevices.rules.split import SplitPart

GPU = PciDevice("0000:3b:00.0", Path("/"), "10de", "20b0", "030200", driver="nvidia")


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ({"ids": ("GPU-?", "GPU-1*")}, True),
        ({"ids": ("gpu-*",)}, False),
        ({"numa": (0, 1)}, True),
        ({"numa": (1,)}, False),
        ({"ids": ("GPU-*",), "numa": (0,)}, False),
        ({"pci": PciRule(vendor="0x10DE", device_class="03", driver="nv*")}, True),
        ({"pci": PciRule(vendor="10de", driver="")}, False),
        ({"pci": PciRule(address="0000:3b:*")}, True),
        ({"pci": PciRule(device="20b?")}, True),
    ],
)
def test_everything_that_is_given_must_fit(selector: dict[str, Any], fits: bool) -> None:
    """A device with two NUMA nodes is on neither of them alone."""
    device = kd.Device("GPU-12", numa_nodes=[0, 1])
    assert SplitPart(to="x", **selector).fits(device, lambda _: GPU) is fits


def test_an_unknown_property_matches_no_rule() -> None:
    """A device without NUMA nodes, one that no PCI function is known of."""
    device = kd.Device("a", numa_nodes=())
    assert not SplitPart(to="x", numa=(0,)).fits(device, lambda _: GPU)
    assert not SplitPart(to="x", pci=PciRule(vendor="*")).fits(device, lambda _: None)


def test_the_pci_function_is_looked_up_only_if_it_matters() -> None:
    """It may mean to read files."""
    selector = SplitPart(to="x", ids=("b",), pci=PciRule(vendor="*"))
    assert not selector.fits(kd.Device("a"), lambda _: pytest.fail("not needed"))


def test_a_text_is_no_list() -> None:
    """Its letters would be taken for globs."""
    with pytest.raises(UsageError, match="ids: must be a list, not 'a"):
        SplitPart(to="x", ids="a*")  # type: ignore[arg-type]


def test_a_selector_in_words() -> None:
    """For the lines of the start."""
    pci = PciRule(vendor="10de")
    assert selector_text(("a*", "b"), (0,), pci) == "a*, b, NUMA node 0, vendor 10de"


def test_a_glob_that_fits_nothing_is_logged_once() -> None:
    """After a minute, for each type; not if it fits something meanwhile."""
    unused = UnusedGlobs()
    assert unused.look("gpu", ["a*", "b*"], ["a1"], 0.0) == ([], 60.0)
    assert unused.look("nic", ["b*"], [], 10.0) == ([], 70.0)
    assert unused.look("gpu", ["a*", "b*", "c*"], [], 59.0) == ([], 60.0)
    assert unused.look("gpu", ["a*", "b*", "c*"], ["c"], 60.0) == (["b*"], None)
    assert unused.look("gpu", ["a*", "b*", "c*"], [], 600.0) == ([], None)
    assert unused.look("nic", ["b*"], ["b"], 600.0) == ([], None)
