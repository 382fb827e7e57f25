"""The schema of `match` in expose's YAML file: devices by path, directory, USB or PCI."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kubedevices.config.checks import some_text
from kubedevices.config.keys import key
from kubedevices.expose import checks
from kubedevices.expose.path_patterns import PathPattern

_HEX: Mapping[str, Any] = {"default": None, "check": checks.hex_pattern}


@dataclass(frozen=True, kw_only=True)
class UsbMatch:
    """USB devices by their descriptors; all given values must match."""

    HINT: ClassVar[str] = """write 'usb: {vendor: "0403", product: "6001"}'"""
    ANY_OF: ClassVar[tuple[str, ...]] = ("vendor", "product", "serial", "class")

    vendor: str | None = key("vendor ID in hexadecimal, in quotes; wildcards allowed", **_HEX)
    product: str | None = key("product ID in hexadecimal, in quotes; wildcards allowed", **_HEX)
    serial: str | None = key("serial number; wildcards allowed", default=None, check=some_text)
    class_: str | None = key(
        "class of the device or of an interface, or its beginning: 0e is every camera",
        name="class",
        **_HEX,
    )


@dataclass(frozen=True, kw_only=True)
class PciMatch:
    """PCI functions by their attributes in sysfs; all given values must match."""

    HINT: ClassVar[str] = """write 'pci: {vendor: "8086", driver: vfio-pci}'"""
    ANY_OF: ClassVar[tuple[str, ...]] = ("vendor", "device", "class", "driver")

    vendor: str | None = key("vendor ID in hexadecimal, in quotes; wildcards allowed", **_HEX)
    device: str | None = key("device ID in hexadecimal, in quotes; wildcards allowed", **_HEX)
    class_: str | None = key(
        "class or its beginning: 03 is every display controller", name="class", **_HEX
    )
    driver: str | None = key(
        "the driver it is bound to; wildcards allowed. Without it, functions of vfio-pci "
        "are left out",
        default=None,
        check=some_text,
    )
    vfio: Literal["group", "cdev", "both"] = key(
        "which files a function of vfio-pci has: group, cdev (iommufd), or both, as far as "
        "the host has them",
        default="both",
    )


@dataclass(frozen=True, kw_only=True)
class Match:
    """Devices by path, or by their bus."""

    HINT: ClassVar[str] = "write '- path: /dev/...'"
    ONE_OF: ClassVar[tuple[str, ...]] = ("path", "directory", "usb", "pci")

    path: PathPattern | None = key(
        "glob of device files: *, ? and [...] within one directory level",
        default=None,
        parse=PathPattern,
    )
    directory: PathPattern | None = key(
        "glob of directories; all device files below a directory are one device",
        default=None,
        parse=PathPattern,
    )
    usb: UsbMatch | None = key("USB devices that match all given values", default=None)
    pci: PciMatch | None = key("PCI functions that match all given values", default=None)

    @property
    def wildcards(self) -> int:
        """How many wildcard texts a match has."""
        pattern = self.path or self.directory
        return pattern.wildcards if pattern else 0

    @property
    def text(self) -> str:
        """The match as text, for messages."""
        if pattern := self.path or self.directory:
            return pattern.text
        return "a match by usb" if self.usb else "a match by pci"
