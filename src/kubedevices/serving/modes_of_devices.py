"""The mode of a node, and the device API in which the administrator wants a device. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from kubedevices.dra.names import DeviceKey
from kubedevices.errors import UsageError
from kubedevices.values.wildcards import fits

Mode: TypeAlias = Literal["device-plugin", "dra", "split"]


def parse_mode(text: str, where: str) -> Mode:
    """Return `text` as a mode; raises `UsageError` with a text that begins with `where`."""
    for mode in get_args(Mode):
        if text == mode:
            return mode  # type: ignore[no-any-return]
    allowed = ", ".join(map(repr, get_args(Mode)))
    raise UsageError(f"{where} must be one of {allowed}, not {text!r}")


@dataclass(frozen=True)
class DraSelector:
    """Selects the devices for DRA in mode `split`: `TYPE/ID` matches one of the globs."""

    globs: tuple[str, ...] = ()

    @classmethod
    def of(cls, globs: Collection[str]) -> "DraSelector":
        """Return a selector; a glob without `/` matches device types. Raises `UsageError`."""
        if isinstance(globs, str) or not all(globs):
            raise UsageError(f"dra_devices must be a list of globs such as gpu/GPU-1*: {globs!r}")
        return cls(tuple(each if "/" in each else f"{each}/*" for each in globs))

    def wants_dra(self, key: DeviceKey, mode: Mode) -> bool:
        """Whether a device is wanted in DRA while the node has this mode."""
        if mode == "split":
            return fits("/".join(key), self.globs)
        return mode == "dra"
