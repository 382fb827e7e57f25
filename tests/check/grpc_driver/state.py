"""The prepared claims, in one file that several instances of the driver share."""

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Claims = dict[str, dict[str, Any]]
"""By UID: `boot`, in which boot of the host it was prepared, and `devices`."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_VERSION = 1


def replace_file(path: Path, text: str) -> None:
    """Write a file so that readers see the old text or the new one, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.chmod(0o644)
    fresh.replace(path)


class State:
    """Claims in `directory`. The file is read for each call: another instance may have written."""

    def __init__(self, directory: Path, log: Callable[[str], None]) -> None:
        self._directory, self._log = directory, log
        self._file = directory / "claims.json"
        self._mutex = threading.Lock()
        self.boot = _BOOT_ID.read_text().strip()

    @contextmanager
    def locked(self) -> Iterator[Claims]:
        """Yield all claims; nobody else changes them meanwhile. `save` keeps changes."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._mutex, (self._directory / "serialize.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.load()

    def load(self) -> Claims:
        """Return the claims of the file; none if it cannot be read, and say so."""
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            return self.lost(str(error))
        try:
            found = json.loads(text)
            claims: Claims = found["claims"]
            if (found["version"], found["checksum"]) != (_VERSION, _checksum(claims)):
                return self.lost("its version or its checksum is wrong")
        except (ValueError, KeyError, TypeError) as error:
            return self.lost(f"{type(error).__name__}: {error}")
        return claims

    def lost(self, reason: str) -> Claims:
        """Begin with an empty state, and keep the file for people."""
        aside = self._file.with_suffix(".bad")
        self._file.replace(aside)
        self._log(f"{self._file} cannot be used ({reason}): all claims are unknown; see {aside}")
        return {}

    def save(self, claims: Claims) -> None:
        """Write the claims; raises OSError."""
        kept = {"version": _VERSION, "checksum": _checksum(claims), "claims": claims}
        replace_file(self._file, json.dumps(kept))


def _checksum(claims: Claims) -> str:
    return hashlib.sha256(json.dumps(claims, sort_keys=True).encode()).hexdigest()
