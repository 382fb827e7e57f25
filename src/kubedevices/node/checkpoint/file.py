"""The file kubelet_internal_checkpoint: read to move in from a kubelet, replaced atomically.

For the ledger's first start and for `writer`. `text` says what its text means.
"""

import errno
import logging
from collections.abc import Iterable
from pathlib import Path

from kubedevices.errors import CannotRead, NodeError
from kubedevices.host import untrusted_files
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.damaged_file import set_aside
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod, StoredState

_LIMIT = 256 * 2**20
"""Bytes; the lists of five million devices."""

logger = logging.getLogger(__name__)


def read_bytes(path: Path) -> bytes | None:
    """Return what a checkpoint file holds, None when there is none.

    Raises `CannotRead`, also for what is not a regular file.
    """
    try:
        return untrusted_files.read_bytes(path, limit=_LIMIT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotRead(str(path), error.strerror or str(error)) from error


def move_in(path: Path, boot_id: str) -> StoredState:
    """Return what a kubelet left in `path`; a file that cannot be trusted is put aside.

    Raises `CannotRead`: a start without this knowledge could give devices away twice.
    """
    try:
        data = untrusted_files.read_bytes(path, limit=_LIMIT)
    except FileNotFoundError:
        return StoredState()
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            raise CannotRead(str(path), error.strerror or str(error)) from error
        # No kubelet wrote that: strangers must not keep us from starting.
        return StoredState(damage=[set_aside(path, error.strerror or str(error))])
    # Loaded only now: most nodes start without a kubelet's file.
    from kubedevices.node.checkpoint.text import (  # noqa: PLC0415
        BadCheckpoint,
        parse_checkpoint,
        restore,
    )

    checkpoint = parse_checkpoint(data)
    if isinstance(checkpoint, BadCheckpoint):
        return StoredState(damage=[set_aside(path, checkpoint.reason)])
    restored = restore(checkpoint, CONTAINER_RESPONSE.from_wire)
    for entry in restored.skipped:
        logger.error(
            "%s: what container %s of pod %s got with its %s cannot be read; they count as free",
            path,
            entry.container,
            entry.pod_uid,
            entry.resource,
        )
    is_of_this_boot = bool(boot_id) and checkpoint.boot_id == boot_id
    pods = [AdmittedPod(*each, is_of_this_boot) for each in pods_of(restored.holdings)]
    logger.info("moved in from %s: %d pods", path, len(pods))
    return StoredState(pods, restored.resources)


def pods_of(holdings: Iterable[Holding]) -> list[tuple[Pod, list[Holding]]]:
    """Return the pods of a checkpoint, which knows no more of them than uid and what they hold.

    Until they are admitted again all their containers count as app containers.
    """
    by_pod: dict[str, list[Holding]] = {}
    for holding in holdings:
        by_pod.setdefault(holding.pod_uid, []).append(holding)
    pods = []
    for pod_uid, mine in by_pod.items():
        limits: dict[str, dict[str, int]] = {}
        for _, container, resource, held in mine:
            limits.setdefault(container, {})[resource] = len(held.device_ids)
        containers = tuple(Container(name, wanted) for name, wanted in limits.items())
        pod = Pod("", "", pod_uid, containers=containers)
        pods.append((pod, [each._replace(pod_uid=pod.uid) for each in mine]))
    return pods


def replace(path: Path, data: bytes) -> None:
    """Let `path` hold `data`, the old content or the new one at any moment; raises `NodeError`.

    Blocks until it would survive a power cut.
    """
    try:
        untrusted_files.replace(path, data)
    except OSError as error:
        raise NodeError(
            f'failed to write checkpoint file "{path.name}": {error.strerror or error}'
        ) from error
