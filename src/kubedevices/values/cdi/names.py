"""CDI names: parse, format, validate; and a CDI device name for any device ID.

The rules are those of CDI's reference library. `strict` adds the limits of the CDI specification,
for names that we create.
"""

import hashlib
import re
from typing import NamedTuple, Self

from kubedevices.errors import InvalidCdiName

_OWNER = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NOT_IN_DEVICE = re.compile(r"[^A-Za-z0-9_.:-]")
_VENDOR_LIMIT = 253
_CLASS_LIMIT = 63


class CdiName(NamedTuple):
    """A valid qualified name, `vendor/class=device`; created by `parse` or `of`."""

    vendor: str
    device_class: str
    device: str

    def __str__(self) -> str:
        """The form in plugin responses, in the CRI and in `--device` options."""
        return f"{self.vendor}/{self.device_class}={self.device}"

    @property
    def kind(self) -> str:
        """`vendor/class`."""
        return f"{self.vendor}/{self.device_class}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split and check a qualified name; raises `InvalidCdiName`."""
        if problem := explain_name(text):
            raise InvalidCdiName(text, problem)
        kind, _, device = text.partition("=")
        vendor, _, device_class = kind.partition("/")
        return cls(vendor, device_class, device)

    @classmethod
    def of(cls, kind: str, device: str) -> Self:
        """Join a kind and a device name; raises `InvalidCdiName`."""
        return cls.parse(f"{kind}={device}")


def explain_name(text: str) -> str:
    """Return the rule that the qualified name `text` breaks, or an empty string."""
    if not text:
        return "it is empty"
    if text.startswith("/"):
        return "it is a path, not vendor/class=name"
    kind, equals, device = text.partition("=")
    if not equals or not kind or not device:
        return "it must read vendor/class=name"
    return explain_kind(kind) or explain_device_name(device)


def explain_kind(kind: str, *, strict: bool = False) -> str:
    """Return the rule that `vendor/class` breaks, or an empty string."""
    vendor, _, device_class = kind.partition("/")
    if not vendor or not device_class:
        return f"the kind {kind!r} must read vendor/class"
    for what, part in (("vendor", vendor), ("class", device_class)):
        if not _OWNER.fullmatch(part):
            return (
                f"the {what} {part!r} must be letters, digits, '_', '-' or '.', "
                "starting with a letter and ending with a letter or digit"
            )
    return _explain_strictly(vendor, device_class) if strict else ""


def _explain_strictly(vendor: str, device_class: str) -> str:
    if len(vendor) > _VENDOR_LIMIT or not SUBDOMAIN.fullmatch(vendor):
        return (
            f"the vendor {vendor!r} must be a DNS subdomain in lower case "
            f"of at most {_VENDOR_LIMIT} characters"
        )
    if len(device_class) > _CLASS_LIMIT:
        return f"the class has {len(device_class)} characters, at most {_CLASS_LIMIT} are allowed"
    return ""


def explain_device_name(name: str) -> str:
    """Return the rule that a device name breaks, or an empty string."""
    if _DEVICE.fullmatch(name):
        return ""
    return (
        f"the device name {name!r} must be letters, digits, '_', '-', '.' or ':', "
        "with a letter or digit at both ends"
    )


def device_name_of(device_id: str) -> str:
    """Return the CDI device name for a device ID, the same name for the same ID.

    A valid name, such as a PCI address or a UUID, stays unchanged. In any other ID, forbidden
    characters are replaced and a part of its hash is added, so that `a b` and `a_b` differ.
    """
    if _DEVICE.fullmatch(device_id):
        return device_id
    tail = hashlib.sha256(device_id.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    clean = _NOT_IN_DEVICE.sub("_", device_id).strip("_.:-")
    return f"{clean}-{tail}" if clean else tail
