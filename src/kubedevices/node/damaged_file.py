"""Renames a damaged file at the start of a node, so that an operator can inspect the file.

For the ledger and the checkpoint of a kubelet. No file is deleted.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import CannotAsk
from kubedevices.host.shared_directory import SharedDirectory, free_name
from kubedevices.host.untrusted_files import sync

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
        with SharedDirectory(path.parent).opened() as place:
            endings = ("", *companions)
            kept_as = path.with_name(free_name(path.name, place, endings))
            for ending in endings:
                # The main file first. If the process is killed in between, the next start finds
                # only the log, which counts as damage. A main file without its log could look
                # undamaged.
                old, new = f"{path.name}{ending}", f"{kept_as.name}{ending}"
                with contextlib.suppress(FileNotFoundError):
                    os.rename(old, new, src_dir_fd=place, dst_dir_fd=place)
            sync(place)
    except OSError as error:
        raise CannotAsk(
            f"{path} is damaged ({reason}) and cannot be renamed: {error.strerror}"
        ) from error
    logger.error("%s is damaged, kept as %s: %s", path, kept_as.name, reason)
    return Damage(path, reason, kept_as)
