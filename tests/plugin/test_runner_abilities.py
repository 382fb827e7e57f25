"""One scanner whose device types answer differently."""

from pathlib import Path

import kubedevices as kd
from tests.fake_kubelet import FakeKubelet
from tests.widgets import DOMAIN, QUICK, Widgets, healthy, widgets


class Picky(kd.PreferredAllocator):
    def get_preferred_allocation(
        self, request: kd.PreferredAllocationRequest
    ) -> kd.PreferredAllocationResponse:
        return kd.PreferredAllocationResponse()


class PickyGadgets(Widgets):
    def abilities_of(self, device_type: str) -> object:
        return Picky() if device_type == "gadget" else self


async def test_a_device_type_may_have_an_object_for_its_abilities(short_dir: Path) -> None:
    """The others have those of the scanner."""
    scanner = PickyGadgets(widget=widgets("w1"), gadget=widgets("g1"))
    async with (
        FakeKubelet(short_dir) as kubelet,
        kd.serve(scanner, domain=DOMAIN, socket_dir=short_dir, timing=QUICK),
    ):
        gadget = await kubelet.wait_for("example.com/gadget", healthy("g1"))
        widget = await kubelet.wait_for("example.com/widget", healthy("w1"))
        assert gadget.options.get_preferred_allocation_available
        assert not widget.options.get_preferred_allocation_available
