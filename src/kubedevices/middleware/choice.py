"""Which devices a rule means: by ID, NUMA node, or what is known of a PCI function. Pure.

For `filter` and `split`. A PCI function is known where the ID of a device contains its address, or
where a device file of the device belongs to it; the caller looks that up.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias

from kubedevices.device import Device
from kubedevices.errors import UsageError


class PciFunction(Protocol):
    """What `host.pci.PciDevice` knows of a function."""

    @property
    def address(self) -> str:
        """Such as 0000:3b:00.0."""

    @property
    def vendor(self) -> str:
        """Four hexadecimal digits in lower case."""

    @property
    def device(self) -> str:
        """Four hexadecimal digits in lower case."""

    @property
    def device_class(self) -> str:
        """Six hexadecimal digits in lower case."""

    @property
    def driver(self) -> str | None:
        """The name of its driver."""


FindPci: TypeAlias = Callable[[Device], PciFunction | None]


@dataclass(frozen=True, kw_only=True)
class PciRule:
    """Globs, all of which a PCI function must fit; None fits every function.

    IDs are hexadecimal, with or without 0x, as `lspci -n` shows them. `device_class` may be the
    beginning of a class: `03` is every display controller. `driver: ""` is a function without one.
    """

    vendor: str | None = None
    device: str | None = None
    device_class: str | None = None
    driver: str | None = None
    address: str | None = None

    def fits(self, function: PciFunction | None) -> bool:
        """Whether `function` is meant; never where none is known."""
        return function is not None and (
            _fits_hex(function.vendor, self.vendor)
            and _fits_hex(function.device, self.device)
            and _fits_hex(function.device_class, self.device_class, more="*")
            and _fits(function.driver or "", self.driver)
            and _fits(function.address, self.address)
        )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The devices that fit one of the globs `ids`, and are on `numa` nodes, and fit `pci`.

    What is not given fits every device. A device is on these nodes if it has nodes and all of them
    are among `numa`.
    """

    ids: tuple[str, ...] = ()
    numa: tuple[int, ...] = ()
    pci: PciRule | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a text where a list of texts is needed."""
        ids: object = self.ids
        if isinstance(ids, str):
            raise UsageError(f"ids is a list of globs: ({ids!r},)")

    def fits(self, device: Device, find_pci: FindPci) -> bool:
        """Whether `device` is meant; `find_pci` is asked only if the answer depends on it."""
        return (
            (not self.ids or fits_one(device.id, self.ids))
            and (not self.numa or is_on(device, self.numa))
            and (self.pci is None or self.pci.fits(find_pci(device)))
        )


class UnusedGlobs:
    """Finds globs that have fitted no device for a while: most likely they are misspelt."""

    def __init__(self, report_after: float = 60.0) -> None:
        self._report_after = report_after
        self._since: dict[tuple[str, str], float] = {}
        self._done: set[tuple[str, str]] = set()

    def look(
        self, device_type: str, globs: Iterable[str], ids: Collection[str], now: float
    ) -> tuple[list[str], float | None]:
        """Return the globs to be told of now, each once, and when to look again."""
        late, pending = list[str](), list[float]()
        for glob in dict.fromkeys(globs):
            key = device_type, glob
            # Told once, or in use: a glob that fitted once is not misspelt.
            if key in self._done:
                continue
            is_used = any(fnmatchcase(each, glob) for each in ids)
            tell_at = self._since.setdefault(key, now) + self._report_after
            if is_used or now >= tell_at:
                self._done.add(key)
                late += [] if is_used else [glob]
            else:
                pending.append(tell_at)
        return late, min(pending, default=None)


def fits_one(device_id: str, globs: Iterable[str]) -> bool:
    """Whether an ID fits one of `globs`, upper and lower case apart."""
    return any(fnmatchcase(device_id, glob) for glob in globs)


def is_on(device: Device, nodes: Iterable[int]) -> bool:
    """Whether `device` has NUMA nodes and all of them are among `nodes`."""
    return bool(device.numa_nodes) and set(device.numa_nodes or ()) <= set(nodes)


def said(ids: Iterable[str], numa: Iterable[int], pci: PciRule | None = None) -> str:
    """Return a choice in words: `a*, b*, NUMA node 0`."""
    words = [*ids, *(f"NUMA node {node}" for node in numa)]
    if pci is not None:
        words += [f"{name} {value}" for name, value in vars(pci).items() if value is not None]
    return ", ".join(words)


def _fits(text: str, glob: str | None) -> bool:
    return glob is None or fnmatchcase(text, glob)


def _fits_hex(text: str, glob: str | None, *, more: str = "") -> bool:
    return glob is None or fnmatchcase(text, glob.lower().removeprefix("0x") + more)
