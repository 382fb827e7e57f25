"""Pods that a damaged log of the ledger hides from SQLite: who knows them. Blocking.

Two witnesses: the frames of the log behind the damaged frame, and the kubelet's checkpoint, which
the node writes after each change. Their devices are held until somebody releases the pod: no device
is given twice. A pod that was released after the damaged frame may be held again, too.
"""

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import KubedevicesError
from kubedevices.host import untrusted_files
from kubedevices.host.shared_directory import free_name
from kubedevices.node.checkpoint.file import pods_of
from kubedevices.node.damaged_file import Damage
from kubedevices.node.ledger.ledger_file import COMPANIONS, checksum_of, connect, held_devices
from kubedevices.node.ledger.log_frames import problem_of, with_new_sums
from kubedevices.node.pods.pod_devices import Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod

_LIMIT = 2**30
_HOLDINGS = """
SELECT holding.*, pod.boot_id FROM holding LEFT JOIN pod ON pod.uid = holding.pod_uid
"""

logger = logging.getLogger(__name__)


class LostRest(NamedTuple):
    """A damaged log: the damage, and the pods that the rest of the log has."""

    damage: Damage
    pods: Sequence[AdmittedPod]


def look_at_log(path: Path, boot_id: str) -> LostRest | None:
    """Look at the log of the ledger `path` before SQLite opens it; None if it is undamaged.

    Keeps copies of a damaged log and its ledger. Raises `OSError`.
    """
    log = Path(f"{path}-wal")
    try:
        with os.fdopen(untrusted_files.open_regular(path), "rb") as file:
            page_size = int.from_bytes(file.read(18)[16:], "big")
        data = untrusted_files.read_bytes(log, limit=_LIMIT)
    except OSError:
        return None  # the ledger is missing or is no file: its own check says so
    page_size = 65536 if page_size == 1 else page_size
    if page_size < 512 or not (reason := problem_of(data, page_size)):
        return None
    kept_as = Path(free_name(str(path)))
    try:
        for ending in ("", "-wal"):
            _copy(f"{path}{ending}", f"{kept_as}{ending}")
    except OSError as error:
        logger.warning("%s cannot be copied: %s", path, error.strerror)
        kept_as = path
    logger.error("%s: %s; kept as %s", path, reason, kept_as.name)
    return LostRest(Damage(log, reason, kept_as), _pods_in(path, data, page_size, boot_id))


def _pods_in(path: Path, log: bytes, page_size: int, boot_id: str) -> list[AdmittedPod]:
    """Return the pods of a copy of the ledger whose log has new checksums; none if unreadable."""
    copy = path.with_name(f"{path.name}.rest")
    found: list[tuple[Holding, bool]] = []
    try:
        _copy(path, copy)
        Path(f"{copy}-wal").write_bytes(with_new_sums(log, page_size))
        with contextlib.closing(connect(copy)) as connection:
            for *parts, checksum, stored_boot in connection.execute(_HOLDINGS):
                with contextlib.suppress(ValueError, TypeError, AttributeError, KubedevicesError):
                    if checksum_of(parts) == checksum:
                        is_of_this_boot = bool(boot_id) and stored_boot == boot_id
                        uid, container, resource, *held = parts
                        holding = Holding(uid, container, resource, held_devices(*held))
                        found.append((holding, is_of_this_boot))
    except (sqlite3.Error, OSError) as error:
        logger.warning("the rest of the log of %s cannot be read: %s", path, error)
    finally:
        for ending in ("", *COMPANIONS):
            with contextlib.suppress(OSError):
                Path(f"{copy}{ending}").unlink(missing_ok=True)
    now = {holding.pod_uid for holding, is_of_this_boot in found if is_of_this_boot}
    pods = pods_of(holding for holding, _ in found)
    return [AdmittedPod(pod, holdings, pod.uid in now) for pod, holdings in pods]


def _copy(source: Path | str, target: Path | str) -> None:
    from shutil import copyfile  # noqa: PLC0415 - large, and an undamaged ledger does not need it

    copyfile(source, target)


def missing_in(known: Iterable[AdmittedPod], *others: Iterable[AdmittedPod]) -> list[AdmittedPod]:
    """Return the pods of `others` with the holdings that `known` has not; a known pod as known."""
    pods = {each.pod.uid: each for each in known}
    held = {each[:3] for admitted in pods.values() for each in admitted.holdings}
    missing = []
    for other in others:
        for each in other:
            new = [holding for holding in each.holdings if holding[:3] not in held]
            if new:
                held.update(holding[:3] for holding in new)
                pod = pods.setdefault(each.pod.uid, each).pod
                missing.append(each._replace(pod=pod, holdings=new))
    return missing
