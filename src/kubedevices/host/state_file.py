"""A small file of JSON with state of ours. Blocking.

Each state file of a driver, a plugin or the proxy is a `StateFile`: its size and its depth are
limited, links and other kinds of files are refused or replaced, and damage of any kind is one
error. What a damaged file means is the decision of its owner.
"""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import CannotRead, KubedevicesError
from kubedevices.host.shared_directory import SharedDirectory

T = TypeVar("T")
_log = logging.getLogger(__name__)

_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, KubedevicesError)
"""What a parser may raise for a document of the wrong form."""


class StateFile:
    """The file `name` in `directory`, of at most `limit` bytes."""

    def __init__(
        self, directory: SharedDirectory, name: str, *, limit: int, mode: int = 0o600
    ) -> None:
        self._directory, self._name, self._limit, self._mode = directory, name, limit, mode
        self.path = directory.path / name
        self._is_clean = False

    @classmethod
    def at(cls, path: Path, *, limit: int) -> "StateFile":
        """Return the file at `path`; strangers may replace its directory by a link."""
        return cls(SharedDirectory.at(path.parent), path.name, limit=limit)

    def read(self, parse: Callable[[Any], T]) -> T:
        """Return `parse` of the document.

        Raises `FileNotFoundError`, and `CannotRead` if the file is damaged: it cannot be read, or
        `parse` raises an error of Python for it.
        """
        try:
            return parse(read_json(self.read_bytes(), limit=self._limit))
        except FileNotFoundError:
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
        replaces the file.
        """
        try:
            return self.read(parse)
        except FileNotFoundError:
            return default
        except CannotRead as error:
            _log.log(level, "%s", error)
            return default

    def write(self, document: Any) -> None:
        """Write the document, and the directory if it is missing; raises `OSError`.

        On return it survives a power cut.
        """
        self.store(json.dumps(document).encode())

    def store(self, data: bytes) -> None:
        """Write the document that `data` encodes; equal content is not written again."""
        if not self._directory.has(self._name, data):
            self._directory.create()
            if not self._is_clean:
                self._directory.remove_leftovers(re.compile(re.escape(self._name)))
                self._is_clean = True
            self._directory.replace(self._name, data, mode=self._mode)

    def remove(self) -> bool:
        """Remove the file; return whether it existed. Raises `OSError`."""
        return self._directory.remove(self._name)

    def keep_damaged(self) -> str:
        """Give the file a second name, for people; return this name. Raises `OSError`."""
        return self._directory.set_aside(self._name, is_copied=True)
