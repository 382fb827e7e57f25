"""A small file of JSON with state of ours. Blocking.

Each state file of a driver, a plugin or the proxy is a `StateFile`: its size and its depth are
limited, links and other kinds of files are refused or replaced, and damage of any kind is one
error. What a damaged file means is the decision of its owner.

Each file says its version. A program reads its own version and all before; a file without a version
is older than versions. A file of a newer version is another error, `OtherVersion`, and a program
that writes its own form in the place of the file keeps the file under a second name: whoever
upgrades again can have it back.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import CannotRead, KubedevicesError, OtherVersion
from kubedevices.host.shared_directory import SharedDirectory

T = TypeVar("T")
_log = logging.getLogger(__name__)

_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, KubedevicesError)
"""What a parser may raise for a document of the wrong form."""


class StateFile:
    """The file `name` in `directory`, of at most `limit` bytes.

    `version` is the newest version that the owner can read; versions are 1 and more.
    """

    def __init__(
        self, directory: SharedDirectory, name: str, *, limit: int, version: int, mode: int = 0o600
    ) -> None:
        self._directory, self._name, self._limit, self._mode = directory, name, limit, mode
        self._version = version
        self.path = directory.path / name
        # Whether leftovers are removed, and whether a file of a newer version is kept.
        self._is_clean = self._is_kept = False

    @classmethod
    def at(cls, path: Path, *, limit: int, version: int) -> "StateFile":
        """Return the file at `path`; strangers may replace its directory by a link."""
        return cls(SharedDirectory.at(path.parent), path.name, limit=limit, version=version)

    def read(self, parse: Callable[[Any], T]) -> T:
        """Return `parse` of the document, which may have an older version or none.

        Raises `FileNotFoundError`, `OtherVersion` for a newer version, and `CannotRead` if the file
        is damaged: it cannot be read, or `parse` raises an error of Python for it.
        """
        try:
            document = read_json(self.read_bytes(), limit=self._limit)
            version = _version_of(document)
            if version > self._version:
                raise OtherVersion(str(self.path), version, self._version)
            return parse(document)
        except (FileNotFoundError, OtherVersion):
            raise
        except OSError as error:
            raise CannotRead(str(self.path), error.strerror or str(error)) from error
        except _DAMAGE as error:
            reason = str(error) or type(error).__name__
            raise CannotRead(str(self.path), f"it is damaged: {reason}") from error

    def read_bytes(self) -> bytes:
        """Return the content, whatever it is; raises `OSError`."""
        return self._directory.read(self._name, limit=self._limit)

    def read_or(self, parse: Callable[[Any], T], default: T, *, level: int = logging.WARNING) -> T:
        """Return `parse` of the document; `default` if there is no file.

        If the file is damaged, logs this with `level` and returns `default`; the next `write`
        replaces the file. A newer version is always a warning: someone has to decide.
        """
        try:
            return self.read(parse)
        except FileNotFoundError:
            return default
        except OtherVersion as error:
            _log.warning("%s", error)
            return default
        except CannotRead as error:
            _log.log(level, "%s", error)
            return default

    def write(self, document: Mapping[str, Any]) -> None:
        """Write the document, and the directory if it is missing; raises `OSError`.

        The document gets the version of this program if it has none of its own. On return it
        survives a power cut.
        """
        self.store(json.dumps({"version": self._version} | dict(document)).encode())

    def store(self, data: bytes) -> None:
        """Write the document that `data` encodes; equal content is not written again."""
        if not self._directory.has(self._name, data):
            self._directory.create()
            if not self._is_clean:
                self._directory.remove_leftovers(re.compile(re.escape(self._name)))
                self._is_clean = True
            self._keep_newer()
            self._directory.replace(self._name, data, mode=self._mode)

    def remove(self) -> bool:
        """Remove the file; return whether it existed. Raises `OSError`."""
        return self._directory.remove(self._name)

    def keep_damaged(self) -> str:
        """Give the file a second name, for people; return this name. Raises `OSError`."""
        self._is_kept = True
        return self._directory.set_aside(self._name, is_copied=True)

    def _keep_newer(self) -> None:
        """Give a file of a newer version a second name, before the first write of this process."""
        if self._is_kept:
            return
        try:
            self.read(lambda document: document)
        except OtherVersion as error:
            reason = f"version-{error.version}"
            kept_as = self._directory.set_aside(self._name, is_copied=True, reason=reason)
            _log.warning("%s; it is kept as %s", error, kept_as)
        except (FileNotFoundError, CannotRead):
            pass  # nothing to keep
        self._is_kept = True


def _version_of(document: Any) -> int:
    """Return the version of a document, 0 for the forms before versions; raises ValueError."""
    if not isinstance(document, dict) or "version" not in document:
        return 0
    version = document["version"]
    if type(version) is not int or version < 1:
        raise ValueError("its version is not a number of 1 or more")
    return version
