"""The base class of scanners: `Scanner` finds devices in the author's own loop.

A scanner reports its devices to a `Notifier`. `polled_scanner` has a loop of our own.
"""

from abc import ABC, abstractmethod

from kubedevices.plugin.notifier import Notifier


class Scanner(ABC):
    """Finds devices in its own loop."""

    @abstractmethod
    async def scan(self, notifier: Notifier) -> None:
        """Call `notifier.notify(tree)` after every change; called once per plugin process.

        The plugin ends when this method returns. If no change can come any more, `await
        notifier.wait_stopped()`. If this method raises, the plugin ends with `ScanFailed`.
        """

    @property
    def scanner_name(self) -> str:
        """The name for messages: the class that finds the devices."""
        return type(self).__name__

    def abilities_of(self, device_type: str) -> object:
        """Return the object with the abilities of `device_type`; called when the type appears.

        By default this is the scanner itself. A scanner of several types may return an object per
        type.
        """
        del device_type
        return self
