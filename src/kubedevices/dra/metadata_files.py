"""Writes and removes the metadata files of prepared claims on the node. Blocking.

Containers get the files as mounts. All files are in one directory of the driver and have the name
`UID_REQUEST.json`. The name of a request never has `_`.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from kubedevices.dra.metadata import RequestMetadata
from kubedevices.errors import PreparedUnwritable, os_errors_as
from kubedevices.host.shared_directory import SharedDirectory

DIRECTORY_NAME = "metadata"
_OURS = re.compile(r"(?P<uid>.+)_[a-z0-9]([-a-z0-9]*[a-z0-9])?\.json")  # a request is a DNS label


class MetadataFiles:
    """The files in `directory`. The directory is created for the first file."""

    def __init__(self, directory: SharedDirectory) -> None:
        self._directory = directory

    def path_of(self, uid: str, request: str) -> Path:
        """Return the path of the file of a request."""
        return self._directory.path / _name_of(uid, request)

    def ensure(self, uid: str, files: Iterable[RequestMetadata]) -> None:
        """Write each file that is missing or was changed; raises `PreparedUnwritable`."""
        for each in files:
            name, data = _name_of(uid, each.request), each.text.encode()
            with os_errors_as(PreparedUnwritable, self.path_of(uid, each.request)):
                if not self._directory.has(name, data):
                    self._directory.create()
                    # World-readable: a container may run as any user. After a reboot the driver
                    # writes the file again.
                    self._directory.replace(name, data, mode=0o644, durable=False)

    def remove(self, uid: str, keep: Iterable[RequestMetadata] = ()) -> None:
        """Remove the files of a claim except the files `keep`; raises `PreparedUnwritable`."""
        kept = {_name_of(uid, each.request) for each in keep}
        self._remove(lambda name: _uid_of(name) == uid and name not in kept)

    def remove_others(self, living: Collection[str]) -> None:
        """Remove temporary files of killed processes, and files of claims that are not `living`.

        `living` are UIDs.
        """
        # A file that cannot be removed does no harm; it only uses space.
        with contextlib.suppress(OSError, PreparedUnwritable):
            self._directory.remove_leftovers(_OURS)
            self._remove(lambda name: _uid_of(name) not in living)

    def _remove(self, is_old: Callable[[str], bool]) -> None:
        try:
            for name in filter(is_old, self._directory.names(_OURS)):
                self._directory.remove(name)
        except NotADirectoryError:
            pass  # a link or another file is in the place of our directory: no file of ours exists
        except OSError as error:
            path = str(self._directory.path)
            raise PreparedUnwritable(path, error.strerror or str(error)) from error


def _name_of(uid: str, request: str) -> str:
    return f"{uid}_{request}.json".replace("/", "_")


def _uid_of(name: str) -> str:
    return name.rpartition("_")[0]
