"""The scanner as each of the two APIs sees it: `HalfScanner`; `PluginHalf` for device plugins."""

import asyncio

from kubedevices.allocation import AllocateRequest
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import AllocationRefused, StatusCode
from kubedevices.middleware.middleware import Relay
from kubedevices.plugin.capabilities import AllocateAnswer, Allocator
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.two_apis.custody import Custody


class HalfScanner(Scanner):
    """Reports the trees that it is given; the abilities are those of `whole`."""

    def __init__(self, whole: Scanner) -> None:
        self._whole = whole
        self._tree: DeviceTree | None = None
        self._notifier: Notifier | None = None

    def give(self, tree: DeviceTree) -> None:
        """Report `tree` from now on."""
        self._tree = tree
        if self._notifier is not None:
            self._notifier.notify(tree)

    async def scan(self, notifier: Notifier) -> None:
        """Report until the plugin or driver ends."""
        self._notifier = notifier
        if self._tree is not None:
            notifier.notify(self._tree)
        await notifier.wait_stopped()

    @property
    def scanner_name(self) -> str:
        """That of the scanner that finds the devices."""
        return self._whole.scanner_name

    def abilities_of(self, device_type: str) -> object:
        """Return those of the scanner that finds the devices."""
        return self._whole.abilities_of(device_type)


class PluginHalf(HalfScanner):
    """Refuses to allocate what `custody` does not offer."""

    def __init__(self, whole: Scanner, custody: Custody) -> None:
        super().__init__(whole)
        self._custody = custody

    def abilities_of(self, device_type: str) -> object:
        """Return the abilities of the type, behind the refusal."""
        return _CustodyRelay(Hooks(super().abilities_of(device_type)), device_type, self._custody)


class _CustodyRelay(Relay):
    """A kubelet may have chosen a device a moment ago."""

    adds = frozenset({Allocator})

    def __init__(self, inner: Hooks, device_type: str, custody: Custody) -> None:
        super().__init__(inner, device_type, device_type)
        self._custody = custody

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Refuse, or ask the inner type. Raises `AllocationRefused`."""
        ids = [device_id for each in request.containers for device_id in each.device_ids]
        keys = [(self.device_type, each) for each in ids]
        for key in keys:
            if key not in self._custody.offered:
                raise AllocationRefused(key[1], StatusCode.FAILED_PRECONDITION)
        # From the check to here there is no await: a device that is offered is counted as being
        # allocated before custody can move it.
        self._custody.allocation_begins(keys)
        try:
            return await super().allocate(request)
        finally:
            self._custody.allocation_ends(keys, asyncio.get_running_loop().time())
