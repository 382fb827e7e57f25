"""The text of a kubelet's device checkpoint, read and written byte for byte. Pure.

For the import from a kubelet, for tools that read the file (Multus and others), and for
`kubedevices checkpoint`. The state of our node is in the ledger. The answers of plugins stay bytes,
unless the caller gives a function that reads them.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kubedevices.errors import KubedevicesError
from kubedevices.node.checkpoint.checksum import checksum, entry_text
from kubedevices.node.checkpoint.reader import CheckpointEntry, Content, ReadError, read
from kubedevices.node.pods.pod_devices import HeldDevices, Holding
from kubedevices.values.allocation import ContainerAllocateResponse

__all__ = [
    "BadCheckpoint",
    "Checkpoint",
    "CheckpointEntry",
    "Content",
    "Restored",
    "checkpoint_of",
    "format_checkpoint",
    "parse_checkpoint",
    "restore",
]

CORRUPTED = "checkpoint is corrupted"

# Characters that the kubelet's writer escapes in addition to JSON. They only occur in texts.
_ESCAPED = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of an undamaged file. None stands for null, which differs from an empty value.

    `is_v1`: the file has the format before Kubernetes 1.20, without NUMA nodes. `boot_id` is a
    field of newer kubelets, which the checksum does not cover.
    """

    entries: tuple[CheckpointEntry, ...] | None = None
    registered: Mapping[str, tuple[str, ...] | None] | None = None
    boot_id: str | None = None
    is_v1: bool = False


class BadCheckpoint(KubedevicesError):
    """A damaged file. `parse_checkpoint` returns this error and does not raise it.

    `content` is the content of the file if only the checksum is wrong.
    """

    def __init__(self, reason: str, content: Content | None = None, computed: int = 0) -> None:
        self.reason, self.content, self.computed = reason, content, computed
        super().__init__(reason)


def parse_checkpoint(data: bytes) -> Checkpoint | BadCheckpoint:
    """Return the checkpoint, also from before Kubernetes 1.20, or the error; raises nothing."""
    try:
        content = read(data)
    except ReadError as error:
        return BadCheckpoint(str(error))
    computed = _checksum(content.entries, content.registered, is_v1=content.is_v1)
    if computed == content.checksum:
        return Checkpoint(content.entries, content.registered, content.boot_id, content.is_v1)
    # Without device IDs a file looks the same in both formats. Only the checksum differs.
    without_ids = all(entry.device_ids is None for entry in content.entries or ())
    if without_ids and content.checksum == _checksum(
        content.entries, content.registered, is_v1=True
    ):
        return Checkpoint(content.entries, content.registered, content.boot_id, is_v1=True)
    return BadCheckpoint(CORRUPTED, content, computed)


def format_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the file that a kubelet writes for `checkpoint`, in the current format."""
    entries, registered = checkpoint.entries, checkpoint.registered
    document: dict[str, object] = {
        "Data": {
            "PodDeviceEntries": None if entries is None else [_entry(each) for each in entries],
            "RegisteredDevices": (
                None
                if registered is None
                else {name: registered[name] for name in sorted(registered)}
            ),
        },
        "Checksum": _checksum(entries, registered),
    }
    if checkpoint.boot_id is not None:
        document["BootID"] = checkpoint.boot_id
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED).encode(errors="replace")


def _entry(entry: CheckpointEntry) -> dict[str, object]:
    ids, response = entry.device_ids, entry.response
    return {
        "PodUID": entry.pod_uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": None
        if ids is None
        else {str(node): ids[node] for node in sorted(ids, key=str)},
        "AllocResp": None if response is None else base64.b64encode(response).decode(),
    }


def _checksum(
    entries: Sequence[CheckpointEntry] | None,
    registered: Mapping[str, Sequence[str] | None] | None,
    *,
    is_v1: bool = False,
) -> int:
    if entries is None:
        return checksum(None, registered)
    return checksum((entry_text(*entry, is_v1=is_v1) for entry in entries), registered)


# ---------------------------------------------------------------- holdings


class Restored(NamedTuple):
    """The holdings and resources of a checkpoint, and the entries with an unreadable response."""

    holdings: tuple[Holding, ...]
    resources: tuple[str, ...]
    skipped: tuple[CheckpointEntry, ...] = ()


def restore(
    checkpoint: Checkpoint, decode: Callable[[bytes], ContainerAllocateResponse]
) -> Restored:
    """Return the holdings and the registered resources of a checkpoint.

    If a container has two entries for a resource, the later entry counts. `decode` reads a
    response; an entry for which it raises a `KubedevicesError` is skipped.
    """
    found: dict[tuple[str, str, str], Holding] = {}
    skipped = []
    for entry in checkpoint.entries or ():
        try:
            response = decode(entry.response or b"")
        except KubedevicesError:
            skipped.append(entry)
            continue
        per_numa = {node: list(ids or ()) for node, ids in (entry.device_ids or {}).items()}
        key = (entry.pod_uid, entry.container, entry.resource)
        found[key] = Holding(*key, HeldDevices(per_numa, response))
    return Restored(tuple(found.values()), tuple(checkpoint.registered or ()), tuple(skipped))


def checkpoint_of(
    holdings: Iterable[Holding],
    registered: Mapping[str, Iterable[str]],
    encode: Callable[[ContainerAllocateResponse], bytes],
    *,
    boot_id: str | None = None,
) -> Checkpoint:
    """Return the checkpoint of a node: the holdings of its pods, and its healthy devices."""
    entries = tuple(
        CheckpointEntry(
            holding.pod_uid,
            holding.container,
            holding.resource,
            {node: tuple(ids) for node, ids in holding.held.devices_per_numa.items()},
            encode(holding.held.response),
        )
        for holding in holdings
    )
    by_resource = {resource: tuple(ids) for resource, ids in registered.items()}
    return Checkpoint(entries or None, by_resource, boot_id)
