"""What a look at the host finds: device files, and the further files of a device. Pure.

`Host` is the only input; `host` is the real one.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from kubedevices.config.placeholders import fill
from kubedevices.expose.config import Companion, ResourceRule
from kubedevices.expose.match_keys import Match
from kubedevices.expose.path_patterns import WILDCARD, PathPattern
from kubedevices.values.device import DeviceSpec, natural_key


class HostFile(NamedTuple):
    """A device file: equal `identity` means the same device; `real_path` follows links.

    `identity` begins with the type of the file, as `stat.S_IFMT` gives it.
    """

    identity: Hashable
    real_path: str


class Found(NamedTuple):
    """A device of the host: its main file, found at `path`, and the `others` that belong to it.

    `captures` are the texts that the wildcards of a path matched. `address` is the PCI address or
    the USB port. `stable` is a stable name that the match itself gives. `problem` says why the
    device cannot be used now; empty if it can.
    """

    path: str
    file: HostFile
    captures: tuple[str, ...] = ()
    address: str = ""
    others: tuple[str, ...] = ()
    stable: str = ""
    problem: str = ""

    @property
    def placeholders(self) -> dict[str, str]:
        """The values of the placeholders that depend on this device only."""
        numbered = {str(i): text for i, text in enumerate(self.captures, start=1)}
        return {
            "path": self.path,
            "name": self.path.rpartition("/")[2],
            "n": "".join(self.captures[:1]),
            "address": self.address,
            **numbered,
        }


class Host(Protocol):
    """The questions about a host."""

    def find(self, match: Match) -> Iterable[Found]:
        """Return every device that matches, in natural order."""

    def identify(self, path: str) -> HostFile | None:
        """Return the device file at `path`; None if `path` is missing or no device file."""

    def paths(self, pattern: PathPattern) -> Iterable[str]:
        """Return every path that matches."""

    def stable_names(self, found: Found) -> tuple[str, ...]:
        """Return all names that identify the device over re-plugs, the best name first."""

    def port_name(self, found: Found) -> str:
        """Return the name of the USB port; it is in `stable_names` without a serial number."""


class Excluded:
    """The files that `exclude` leaves out: those that match, and what an excluded link leads to."""

    def __init__(self, patterns: Sequence[PathPattern], host: Host) -> None:
        self._patterns = patterns
        paths = (path for pattern in patterns for path in host.paths(pattern))
        files = (file for path in paths if (file := host.identify(path)) is not None)
        self._identities = frozenset(file.identity for file in files)

    def has(self, path: str, file: HostFile | None) -> bool:
        """Whether the file at `path` is left out."""
        if file is not None and file.identity in self._identities:
            return True
        paths = {path, file.real_path} if file is not None else {path}
        return any(pattern.match(each) is not None for pattern in self._patterns for each in paths)


def companions_of(rule: ResourceRule, host: Host, found: Found) -> tuple[DeviceSpec, ...] | None:
    """Return the device's other files and those of `with`; None if a needed file is missing."""
    permissions = rule.container.permissions
    specs = [DeviceSpec(path, path, permissions) for path in found.others]
    for each in rule.companions:
        files = [*_companion_files(each, host, found)]
        if not files and not (rule.optional if each.optional is None else each.optional):
            return None
        specs += [DeviceSpec(real, path, each.permissions or permissions) for real, path in files]
    return tuple(specs)


def _companion_files(companion: Companion, host: Host, found: Found) -> Iterator[tuple[str, str]]:
    """Yield the path on the host and the path in the container of each file that exists."""
    inside = fill(companion.container, found.placeholders)
    if not WILDCARD.search(companion.path):
        path = fill(companion.path, found.placeholders)
        if (file := host.identify(path)) is not None:
            yield file.real_path, inside or path
        return
    # The name of a file on the host may contain what is a wildcard in a glob.
    values = {name: WILDCARD.sub(r"[\g<0>]", text) for name, text in found.placeholders.items()}
    pattern = PathPattern(fill(companion.path, values))
    main = found.file.identity
    for path in sorted(host.paths(pattern), key=natural_key):
        file = host.identify(path)
        if file is not None and file.identity != main:
            name = path.rpartition("/")[2]
            yield file.real_path, f"{inside.rstrip('/')}/{name}" if inside else path
