"""Files that tell the next process which slices and claims of a driver may exist. Blocking."""

import json
from collections.abc import Collection
from pathlib import Path

from kubedevices.dra.prepared import FILE_NAME, PreparedClaims
from kubedevices.errors import PreparedUnwritable
from kubedevices.host import untrusted_files
from kubedevices.wire.unix_socket import FileIdentity

SLICES_FILE = "has-slices"
_MOST_DEVICES = 20_000
"""With more devices the file does not name them."""

_SIZE_LIMIT = 2**24


class StateFiles:
    """The state files in a driver's data directory."""

    def __init__(self, directory: Path) -> None:
        self._slices, self._claims = directory / SLICES_FILE, directory / FILE_NAME
        # The content of the file with this identity.
        self._known: tuple[FileIdentity | None, frozenset[str]] | None = None

    def note_slices(self, labels: Collection[str]) -> None:
        """Record that slices may have these devices. Call this before they are published.

        Raises `PreparedUnwritable`.
        """
        known = self.published()
        if known is not None and not (known >= {*labels} and self.may_have_slices()):
            self._write(known | {*labels})

    def forget_devices(self, labels: Collection[str]) -> None:
        """Record that no slice has these devices any more. Raises `PreparedUnwritable`."""
        known = self.published()
        if known and known & {*labels}:
            self._write(known - {*labels})

    def forget_slices(self) -> None:
        """Record that no slices exist."""
        self._slices.unlink(missing_ok=True)
        self._known = None

    def published(self) -> frozenset[str] | None:
        """Return the devices that slices may have, by name; None if any device may be in a slice.

        An empty file, from an older version, and a damaged file mean any device.
        """
        try:
            identity = FileIdentity.of(self._slices)
            if self._known is None or identity is None or self._known[0] != identity:
                data = untrusted_files.read_bytes(self._slices, limit=_SIZE_LIMIT)
                self._known = identity, frozenset(map(str, json.loads(data)["devices"]))
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return self._known[1]

    def _write(self, labels: Collection[str]) -> None:
        content = {"devices": sorted(labels)[:_MOST_DEVICES]}
        data = json.dumps(content).encode() if len(labels) <= _MOST_DEVICES else b""
        try:
            self._slices.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            untrusted_files.replace(self._slices, data)
        except OSError as error:
            raise PreparedUnwritable(str(self._slices), error.strerror or str(error)) from error

    def may_have_slices(self) -> bool:
        """Whether the API server may have slices of the driver."""
        return self._slices.exists()

    def need_a_driver(self) -> bool:
        """Whether slices or claims may exist: a driver must run then, even without devices."""
        claims, is_whole = PreparedClaims.read(self._claims)
        return self.may_have_slices() or bool(len(claims)) or not is_whole
