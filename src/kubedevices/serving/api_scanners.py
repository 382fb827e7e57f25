"""The scanner of each of the two APIs: it reports only the devices of this API. asyncio.

`ApiScanner` is for the DRA driver, `PluginApiScanner` for the device plugin.
"""

import asyncio

from kubedevices.errors import AllocationRefused, StatusCode
from kubedevices.plugin.capabilities import AllocateAnswer, Allocator
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.rules.middleware import OwnedRelay
from kubedevices.serving.handover import Handover
from kubedevices.values.allocation import AllocateRequest
from kubedevices.values.device_tree import DeviceTree


class ApiScanner(Scanner):
    """Reports the trees that `report` gets; has the abilities of `whole`, the author's scanner."""

    def __init__(self, whole: Scanner) -> None:
        self._whole = whole
        self._tree: DeviceTree | None = None
        self._notifier: Notifier | None = None

    def report(self, tree: DeviceTree) -> None:
        """Report `tree`, at once or when `scan` begins."""
        self._tree = tree
        if self._notifier is not None:
            self._notifier.notify(tree)

    async def scan(self, notifier: Notifier) -> None:
        """Report trees until the device plugin or the driver ends."""
        self._notifier = notifier
        if self._tree is not None:
            notifier.notify(self._tree)
        await notifier.wait_stopped()

    @property
    def scanner_name(self) -> str:
        """The name of the author's scanner."""
        return self._whole.scanner_name

    def abilities_of(self, device_type: str) -> object:
        """Return the abilities of the author's scanner."""
        return self._whole.abilities_of(device_type)


class PluginApiScanner(ApiScanner):
    """Refuses Allocate for devices that `handover` does not offer."""

    def __init__(self, whole: Scanner, handover: Handover) -> None:
        super().__init__(whole)
        self._handover = handover

    def abilities_of(self, device_type: str) -> object:
        """Return the abilities of the author's scanner, with a check before Allocate."""
        inner = Hooks(super().abilities_of(device_type))
        return _HandoverRelay(self._handover, inner, device_type, device_type)


class _HandoverRelay(OwnedRelay[Handover]):
    """Checks Allocate: the kubelet may have chosen a device that was just withdrawn."""

    adds = frozenset({Allocator})

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Refuse the call, or pass it to the author's scanner. Raises `AllocationRefused`."""
        ids = [device_id for each in request.containers for device_id in each.device_ids]
        keys = [(self.device_type, each) for each in ids]
        for key in keys:
            if key not in self.owner.offered:
                raise AllocationRefused(key[1], StatusCode.FAILED_PRECONDITION)
        # No await between the check and this line: otherwise `handover` could give an offered
        # device to DRA before the call is recorded.
        self.owner.allocation_begins(keys)
        try:
            return await super().allocate(request)
        finally:
            self.owner.allocation_ends(keys, asyncio.get_running_loop().time())
