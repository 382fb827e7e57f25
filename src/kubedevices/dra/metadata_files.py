"""The metadata files of prepared claims on the node, which containers get as mounts. Blocking.

All are in one directory of the driver: `UID_REQUEST.json`. No request has `_` in its name.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kubedevices.dra.metadata import RequestMetadata
from kubedevices.errors import PreparedUnwritable
from kubedevices.host import untrusted_files

DIRECTORY = "metadata"
_ENDING = ".json"


class MetadataFiles:
    """The files in `directory`, which is made when a claim has a file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path_of(self, uid: str, request: str) -> Path:
        """Return where the file of a request is."""
        return self._directory / f"{uid}_{request}{_ENDING}".replace("/", "_")

    def ensure(self, uid: str, files: Iterable[RequestMetadata]) -> None:
        """Write what is missing or was changed; raises `PreparedUnwritable`."""
        for each in files:
            path, data = self.path_of(uid, each.request), each.text.encode()
            try:
                if not _has_content(path, data):
                    self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
                    # Containers read it as any user.
                    untrusted_files.replace(path, data, mode=0o644)
            except OSError as error:
                raise PreparedUnwritable(str(path), error.strerror or str(error)) from error

    def remove(self, uid: str, keep: Iterable[RequestMetadata] = ()) -> None:
        """Remove the files of a claim except those of `keep`; raises `PreparedUnwritable`."""
        kept = {self.path_of(uid, each.request) for each in keep}
        self._remove(each for each in self._all() if _uid_of(each) == uid and each not in kept)

    def remove_others(self, living: Collection[str]) -> None:
        """Remove what dead writers left, and the files of claims whose UID is not in `living`."""
        if self._directory.is_dir():
            untrusted_files.remove_leftovers(self._directory, "")
        # What cannot be removed costs nothing but its place.
        with contextlib.suppress(PreparedUnwritable):
            self._remove(each for each in self._all() if _uid_of(each) not in living)

    def _all(self) -> Iterator[Path]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield from sorted(self._directory.glob(f"*{_ENDING}"))

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise PreparedUnwritable(str(path), error.strerror or str(error)) from error


def _uid_of(path: Path) -> str:
    return path.name.rpartition("_")[0]


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return untrusted_files.read_bytes(path, limit=len(data)) == data
    except OSError:  # whatever it is, it is not ours
        return False
