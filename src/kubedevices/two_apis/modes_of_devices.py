"""Which device API an administrator wants a device to be in. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, get_args

from kubedevices.dra.names import DeviceKey
from kubedevices.errors import UsageError

Mode: TypeAlias = Literal["device-plugin", "dra", "split"]


def mode_named(text: str, where: str) -> Mode:
    """Return the mode that `text` names; raises `UsageError`, which begins with `where`."""
    for mode in get_args(Mode):
        if text == mode:
            return mode  # type: ignore[no-any-return]
    allowed = ", ".join(map(repr, get_args(Mode)))
    raise UsageError(f"{where} must be one of {allowed}, not {text!r}")


@dataclass(frozen=True)
class Selector:
    """The devices that mode `split` gives to DRA: those whose `TYPE/ID` fits one of the globs."""

    globs: tuple[str, ...] = ()

    @classmethod
    def of(cls, globs: Collection[str]) -> "Selector":
        """Return a selector; a glob without `/` is for device types. Raises `UsageError`."""
        if isinstance(globs, str) or not all(globs):
            raise UsageError(f"dra_devices must be a list of globs such as gpu/GPU-1*: {globs!r}")
        return cls(tuple(each if "/" in each else f"{each}/*" for each in globs))

    def wants_dra(self, key: DeviceKey, mode: Mode) -> bool:
        """Whether a device is to be in DRA while the node has this mode."""
        if mode == "split":
            return any(fnmatchcase("/".join(key), glob) for glob in self.globs)
        return mode == "dra"
