"""Writes and removes the metadata files of prepared claims on the node. Blocking.

Containers get the files as mounts. All files are in one directory of the driver and have the name
`UID_REQUEST.json`. The name of a request never has `_`.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kubedevices.dra.metadata import RequestMetadata
from kubedevices.errors import PreparedUnwritable
from kubedevices.host import untrusted_files

DIRECTORY_NAME = "metadata"
_ENDING = ".json"


class MetadataFiles:
    """The files in `directory`. The directory is created for the first file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path_of(self, uid: str, request: str) -> Path:
        """Return the path of the file of a request."""
        return self._directory / f"{uid}_{request}{_ENDING}".replace("/", "_")

    def ensure(self, uid: str, files: Iterable[RequestMetadata]) -> None:
        """Write each file that is missing or was changed; raises `PreparedUnwritable`."""
        for each in files:
            path, data = self.path_of(uid, each.request), each.text.encode()
            try:
                if not _has_content(path, data):
                    self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
                    # World-readable: a container may run as any user. After a reboot the driver
                    # writes the file again.
                    untrusted_files.replace(path, data, mode=0o644, durable=False)
            except OSError as error:
                raise PreparedUnwritable(str(path), error.strerror or str(error)) from error

    def remove(self, uid: str, keep: Iterable[RequestMetadata] = ()) -> None:
        """Remove the files of a claim except the files `keep`; raises `PreparedUnwritable`."""
        kept = {self.path_of(uid, each.request) for each in keep}
        self._remove(each for each in self._all() if _uid_of(each) == uid and each not in kept)

    def remove_others(self, living: Collection[str]) -> None:
        """Remove temporary files of killed processes, and files of claims that are not `living`.

        `living` are UIDs.
        """
        if self._directory.is_dir():
            untrusted_files.remove_leftovers(self._directory, "")
        # A file that cannot be removed does no harm; it only uses space.
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
    except OSError:  # missing, or not a plain file: it will be replaced
        return False
