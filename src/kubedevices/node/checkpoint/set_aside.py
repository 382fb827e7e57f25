"""Puts a file that cannot be trusted out of the way, for somebody to look at. Deletes nothing.

For the ledger and the kubelet's checkpoint, at the start of a node.
"""

import logging
import os
import time
from pathlib import Path

from kubedevices.errors import CannotAsk
from kubedevices.host.untrusted_files import sync_directory
from kubedevices.node.pods.pod_devices_store import Damage

logger = logging.getLogger(__name__)


def set_aside(path: Path, reason: str, *, companions: tuple[str, ...] = ()) -> Damage:
    """Rename `path` to `<path>.corrupt-<time>` and say so; raises `CannotAsk`.

    `companions` are endings of files that belong to it, such as `-wal`, and go with it.
    """
    try:
        kept_as = _free_name(path, companions)
        for ending in ("", *companions):
            # The main file first: if we are killed in between, the log alone is found and counts as
            # damage, while a main file without its log could pass for a whole one.
            file = Path(f"{path}{ending}")
            if os.path.lexists(file):
                file.rename(f"{kept_as}{ending}")
        sync_directory(path.parent)
    except OSError as error:
        raise CannotAsk(
            f"{path} is damaged ({reason}) and cannot be put aside: {error.strerror}"
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
