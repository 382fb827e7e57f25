"""Files that tell the next process which slices and claims of a driver may exist. Blocking."""

from pathlib import Path

from kubedevices.dra.prepared import FILE_NAME, PreparedClaims
from kubedevices.errors import PreparedUnwritable
from kubedevices.host import untrusted_files

SLICES_FILE = "has-slices"


class StateFiles:
    """The state files in a driver's data directory."""

    def __init__(self, directory: Path) -> None:
        self._slices, self._claims = directory / SLICES_FILE, directory / FILE_NAME

    def note_slices(self) -> None:
        """Record that slices may exist. Call this before the first slice is published.

        Raises `PreparedUnwritable`.
        """
        if self.may_have_slices():
            return
        try:
            self._slices.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            untrusted_files.replace(self._slices, b"")
        except OSError as error:
            raise PreparedUnwritable(str(self._slices), error.strerror or str(error)) from error

    def forget_slices(self) -> None:
        """Record that no slices exist."""
        self._slices.unlink(missing_ok=True)

    def may_have_slices(self) -> bool:
        """Whether the API server may have slices of the driver."""
        return self._slices.exists()

    def need_a_driver(self) -> bool:
        """Whether slices or claims may exist: a driver must run then, even without devices."""
        claims, is_whole = PreparedClaims.read(self._claims)
        return self.may_have_slices() or bool(len(claims)) or not is_whole
