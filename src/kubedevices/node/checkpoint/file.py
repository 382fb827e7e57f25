"""The file kubelet_internal_checkpoint: reads the pods of a kubelet, and replaces the file.

The first start of a ledger reads the file; `writer` replaces it. `text` has the format.
"""

import errno
import logging
from collections.abc import Iterable
from pathlib import Path

from kubedevices.errors import CannotRead, NodeError
from kubedevices.host import untrusted_files
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.damaged_file import set_aside
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod, StoredState

_LIMIT = 256 * 2**20
"""Bytes. A file of five million devices has this size."""

logger = logging.getLogger(__name__)


def read_bytes(path: Path) -> bytes | None:
    """Return the content of a checkpoint file, None if there is no file.

    Raises `CannotRead`, also for a file that is not a regular file.
    """
    try:
        return untrusted_files.read_bytes(path, limit=_LIMIT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotRead(str(path), error.strerror or str(error)) from error


def move_in(path: Path, boot_id: str) -> StoredState:
    """Return the pods and resources in the checkpoint `path`; rename a damaged checkpoint.

    Raises `CannotRead`: a start without these pods could give a device to a second pod.
    """
    try:
        data = untrusted_files.read_bytes(path, limit=_LIMIT)
    except FileNotFoundError:
        return StoredState()
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            raise CannotRead(str(path), error.strerror or str(error)) from error
        # A directory, a pipe or a huge file is not from a kubelet. It must not prevent the start.
        return StoredState(damage=[set_aside(path, error.strerror or str(error))])
    # Imported here, because most nodes start without the file of a kubelet.
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
            "%s: the Allocate answer for container %s of pod %s cannot be read; its devices of %s "
            "count as free",
            path,
            entry.container,
            entry.pod_uid,
            entry.resource,
        )
    is_of_this_boot = bool(boot_id) and checkpoint.boot_id == boot_id
    pods = [AdmittedPod(*each, is_of_this_boot) for each in pods_of(restored.holdings)]
    logger.info("read %d pods from %s", len(pods), path)
    return StoredState(pods, restored.resources)


def pods_of(holdings: Iterable[Holding]) -> list[tuple[Pod, list[Holding]]]:
    """Return the pods of a checkpoint. It has only their uids and the devices of their containers.

    Until such a pod is admitted again, all its containers count as app containers.
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
    """Replace the content of `path` by `data` atomically; raises `NodeError`.

    Returns when the new content survives a power cut.
    """
    try:
        SharedDirectory(path.parent).replace(path.name, data)
    except OSError as error:
        raise NodeError(
            f'failed to write checkpoint file "{path.name}": {error.strerror or error}'
        ) from error
