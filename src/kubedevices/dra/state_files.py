"""Files that tell the next process which slices and claims of a driver may exist. Blocking."""

import os
from pathlib import Path

from kubedevices.dra.prepared import FILE_NAME, PreparedClaims
from kubedevices.errors import PreparedUnwritable
from kubedevices.host.state_file import StateFile

SLICES_FILE = "has-slices"


class StateFiles:
    """The state files in a driver's data directory."""

    def __init__(self, directory: Path) -> None:
        self._claims = directory / FILE_NAME
        self._slices = StateFile.at(directory / SLICES_FILE, limit=0)

    def note_slices(self) -> None:
        """Record that slices may exist. Call this before the first slice is published.

        Raises `PreparedUnwritable`.
        """
        if self.may_have_slices():
            return
        try:
            self._slices.store(b"")
        except OSError as error:
            path = str(self._slices.path)
            raise PreparedUnwritable(path, error.strerror or str(error)) from error

    def forget_slices(self) -> None:
        """Record that no slices exist."""
        self._slices.remove()

    def may_have_slices(self) -> bool:
        """Whether the API server may have slices of the driver."""
        return os.path.lexists(self._slices.path)

    def need_a_driver(self) -> bool:
        """Whether slices or claims may exist: a driver must run then, even without devices."""
        claims, is_whole = PreparedClaims.read(self._claims)
        return self.may_have_slices() or bool(len(claims)) or not is_whole
