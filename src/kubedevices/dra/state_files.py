"""Files that tell the next process which slices and claims of a driver may exist. Blocking."""

import logging
import os
from collections.abc import Collection
from pathlib import Path

from kubedevices.dra.prepared_file import FILE_NAME, PreparedClaims
from kubedevices.errors import CannotRead, OtherVersion, PreparedUnwritable, os_errors_as
from kubedevices.host.state_file import StateFile
from kubedevices.wire.unix_socket import FileIdentity

SLICES_FILE = "has-slices"
_MOST_DEVICES = 20_000
"""With more devices the file does not name them."""

_SIZE_LIMIT = 2**24
_VERSION = 1
_log = logging.getLogger(__name__)


class StateFiles:
    """The state files in a driver's data directory."""

    def __init__(self, directory: Path) -> None:
        self._claims = directory / FILE_NAME
        self._slices = StateFile.at(directory / SLICES_FILE, limit=_SIZE_LIMIT, version=_VERSION)
        # The content of the file with this identity.
        self._known: tuple[FileIdentity | None, frozenset[str]] | None = None
        self._is_told = False

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
        self._slices.remove()
        self._known = None

    def published(self) -> frozenset[str] | None:
        """Return the devices that slices may have, by name; None if any device may be in a slice.

        An empty file, from an older version, a damaged file and a file of a newer version mean
        any device.
        """
        try:
            identity = FileIdentity.of(self._slices.path)
            if self._known is None or identity is None or self._known[0] != identity:
                found = self._slices.read(lambda found: frozenset(map(str, found["devices"])))
                self._known = identity, found
        except FileNotFoundError:
            return frozenset()
        except CannotRead as error:
            if isinstance(error, OtherVersion) and not self._is_told:
                self._is_told = True
                _log.warning("%s; any device may be in a slice", error)
            return None
        return self._known[1]

    def _write(self, labels: Collection[str]) -> None:
        with os_errors_as(PreparedUnwritable, self._slices.path):
            if len(labels) <= _MOST_DEVICES:
                self._slices.write({"devices": sorted(labels)})
            else:
                self._slices.store(b"")

    def may_have_slices(self) -> bool:
        """Whether the API server may have slices of the driver."""
        return os.path.lexists(self._slices.path)

    def need_a_driver(self) -> bool:
        """Whether slices or claims may exist: a driver must run then, even without devices."""
        claims, is_whole = PreparedClaims.read(self._claims)
        return self.may_have_slices() or bool(len(claims)) or not is_whole
