"""Renames a damaged file at the start of a node, so that an operator can inspect the file.

For the ledger and the checkpoint of a kubelet. No file is deleted.
"""

import logging
import os
import time
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import CannotAsk
from kubedevices.host.untrusted_files import sync_directory

logger = logging.getLogger(__name__)


class Damage(NamedTuple):
    """A damaged file, the reason, and its new name."""

    path: Path
    reason: str
    kept_as: Path

    def as_dict(self) -> dict[str, str]:
        """Return the damage as a JSON object."""
        return {"file": str(self.path), "kept_as": str(self.kept_as), "reason": self.reason}


def set_aside(path: Path, reason: str, *, companions: tuple[str, ...] = ()) -> Damage:
    """Rename `path` to `<path>.corrupt-<time>` and log it; raises `CannotAsk`.

    `companions` are endings of further files that are renamed too, such as `-wal` of SQLite.
    """
    try:
        kept_as = _free_name(path, companions)
        for ending in ("", *companions):
            # The main file first. If the process is killed in between, the next start finds only
            # the log, which counts as damage. A main file without its log could look undamaged.
            file = Path(f"{path}{ending}")
            if os.path.lexists(file):
                file.rename(f"{kept_as}{ending}")
        sync_directory(path.parent)
    except OSError as error:
        raise CannotAsk(
            f"{path} is damaged ({reason}) and cannot be renamed: {error.strerror}"
        ) from error
    logger.error("%s is damaged, kept as %s: %s", path, kept_as.name, reason)
    return Damage(path, reason, kept_as)


def _free_name(path: Path, companions: tuple[str, ...]) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = 0
    while True:
        name = Path(f"{path}.corrupt-{stamp}" + (f"-{number}" if number else ""))
        if not any(os.path.lexists(f"{name}{ending}") for ending in ("", *companions)):
            return name
        number += 1
