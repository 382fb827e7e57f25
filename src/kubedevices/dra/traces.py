"""What a driver leaves on disk that tells the next process what it may have offered. Blocking."""

from pathlib import Path

from kubedevices.dra.prepared import FILE_NAME, PreparedClaims
from kubedevices.errors import PreparedUnwritable
from kubedevices.host import untrusted_files

SLICES_FILE = "has-slices"


class StateFiles:
    """The traces in a driver's data directory."""

    def __init__(self, directory: Path) -> None:
        self._slices, self._claims = directory / SLICES_FILE, directory / FILE_NAME

    def note_slices(self) -> None:
        """Note, before the first slice is published, that there may be slices.

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
        """Note that there are none."""
        self._slices.unlink(missing_ok=True)

    def may_have_slices(self) -> bool:
        """Whether slices may be on the API server."""
        return self._slices.exists()

    def are_there(self) -> bool:
        """Whether a driver has to run, even if it is to offer nothing."""
        claims, is_whole = PreparedClaims.read(self._claims)
        return self.may_have_slices() or bool(len(claims)) or not is_whole
