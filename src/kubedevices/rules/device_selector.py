"""Which devices a rule means: by ID, NUMA node, or properties of the PCI function. Pure.

For `filter`, `split` and `share`. The PCI function of a device is known if the ID contains its PCI
address, or if a device file belongs to it; the caller looks it up (`device_facts`).
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from kubedevices.config.keys import Declared, key
from kubedevices.values.device import Device
from kubedevices.values.wildcards import fits, fits_hex

if TYPE_CHECKING:
    from kubedevices.host.pci import PciDevice


FindPci: TypeAlias = Callable[[Device], "PciDevice | None"]


@dataclass(frozen=True, kw_only=True)
class PciRule(Declared):
    """A PCI function; all given values must match.

    IDs are hexadecimal, with or without 0x, as `lspci -n` shows them. `driver: ""` means no driver.
    """

    HINT: ClassVar[str] = """write 'pci: {vendor: "10de", device: "20*"}'"""
    ANY_OF: ClassVar[tuple[str, ...]] = ("vendor", "device", "class", "driver", "address")

    vendor: str | None = key("vendor ID in hexadecimal, a glob", default=None)
    device: str | None = key("device ID in hexadecimal, a glob", default=None)
    device_class: str | None = key(
        "class or its beginning: 03 is every display controller", name="class", default=None
    )
    driver: str | None = key("the driver it is bound to, a glob", default=None)
    address: str | None = key("such as 0000:3b:00.0, a glob", default=None)

    def fits(self, function: "PciDevice | None") -> bool:
        """Whether `function` fits; False for None."""
        return function is not None and (
            fits_hex(function.vendor, self.vendor)
            and fits_hex(function.device, self.device)
            and fits_hex(function.device_class, self.device_class, prefix=True)
            and fits(function.driver or "", self.driver)
            and fits(function.address, self.address)
        )


_REPORT_AFTER = 60.0


class UnusedGlobs:
    """Finds globs that have fitted no device for `_REPORT_AFTER` seconds: most are misspelt."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}
        self._done: set[tuple[str, str]] = set()

    def look(
        self, device_type: str, globs: Iterable[str], ids: Collection[str], now: float
    ) -> tuple[list[str], float | None]:
        """Return the globs to report now, each once, and when to look again (None: never)."""
        late, pending = list[str](), list[float]()
        for glob in dict.fromkeys(globs):
            key = device_type, glob
            # Reported already, or it fitted once: then it is not misspelt.
            if key in self._done:
                continue
            is_used = any(fits(each, glob) for each in ids)
            report_at = self._since.setdefault(key, now) + _REPORT_AFTER
            if is_used or now >= report_at:
                self._done.add(key)
                late += [] if is_used else [glob]
            else:
                pending.append(report_at)
        return late, min(pending, default=None)


def is_on_nodes(device: Device, nodes: Iterable[int]) -> bool:
    """Whether `device` has NUMA nodes and all of them are among `nodes`."""
    return bool(device.numa_nodes) and set(device.numa_nodes or ()) <= set(nodes)


def selector_text(ids: Iterable[str], numa: Iterable[int], pci: PciRule | None = None) -> str:
    """Return the conditions in words: `a*, b*, NUMA node 0`."""
    words = [*ids, *(f"NUMA node {node}" for node in numa)]
    if pci is not None:
        words += [f"{name} {value}" for name, value in pci.given.items()]
    return ", ".join(words)
