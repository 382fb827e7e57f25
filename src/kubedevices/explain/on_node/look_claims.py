"""Reads the kubelet's checkpoint of DRA, `dra_manager_state`. Blocking file access.

    {"Data": "{…, \\"ClaimInfoStateList\\": […]}", "Checksum": 1656016162}

`Data` is a JSON text, `Checksum` its CRC-32. Kubelets before 1.32 wrote another form, whose claims
are not read.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import NotJson
from kubedevices.explain.on_node.driver_facts import ClaimedPart, KubeletClaim, KubeletClaims
from kubedevices.explain.on_node.look_processes import PROC_ROOT, read_text
from kubedevices.host.listing import names
from kubedevices.host.untrusted_files import read_bytes
from kubedevices.values.allocation import ClaimReference

STATE_FILE = "dra_manager_state"
_LIMIT = 64 * 2**20
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, NotJson)
_BOOT_TIME = re.compile(r"^btime (\d+)", re.MULTILINE)


def look_at_claims(file: Path, *, proc_root: Path = PROC_ROOT) -> KubeletClaims:
    """Return the claims in the checkpoint `file`.

    Without the file they are not known: the kubelet may have another root directory.
    """
    pods = _pods(file.parent / "pods")
    try:
        data, written = read_bytes(file, limit=_LIMIT), file.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return KubeletClaims(file, pods=pods)
    except OSError as error:
        return KubeletClaims(file, problem=error.strerror or str(error), pods=pods)
    try:
        claims = parse_claims(data)
    except _DAMAGE as error:
        reason = f"it is damaged: {error or type(error).__name__}"
        return KubeletClaims(file, problem=reason, pods=pods)
    return KubeletClaims(file, claims, pods=pods, is_of_this_boot=written >= _booted_at(proc_root))


def parse_claims(data: bytes) -> tuple[KubeletClaim, ...] | None:
    """Return the claims in the content of a checkpoint; None for a form of old kubelets.

    Raises an error of Python, or `NotJson`, for a damaged file.
    """
    document = read_json(data, limit=_LIMIT)
    if "Data" not in document and "version" in document:
        return None
    text = document["Data"].encode()
    if zlib.crc32(text) != document["Checksum"]:
        raise ValueError("its checksum is wrong")
    found = read_json(text, limit=_LIMIT)
    entries = found["Entries"] if "Entries" in found else found["ClaimInfoStateList"]
    return tuple(map(_claim_of, entries or ()))


def _claim_of(entry: Mapping[str, Any]) -> KubeletClaim:
    reference = ClaimReference(entry["Namespace"], entry["ClaimUID"], entry["ClaimName"])
    pods = tuple(map(str, entry.get("PodUIDs") or ()))
    return KubeletClaim(reference, pods, tuple(_parts_of(entry.get("DriverState") or {})))


def _parts_of(drivers: Mapping[str, Any]) -> Iterator[ClaimedPart]:
    for driver, state in drivers.items():
        for each in state.get("Devices") or ():
            cdi_names = tuple(map(str, each.get("CDIDeviceIDs") or ()))
            share = str(each.get("ShareID") or "")
            yield ClaimedPart(driver, each["PoolName"], each["DeviceName"], share, cdi_names)


def _pods(directory: Path) -> frozenset[str] | None:
    """Return the UIDs of the pods that a kubelet has not cleaned up; None if unknown."""
    try:
        return frozenset(names(directory))
    except OSError:
        return None


def _booted_at(proc_root: Path) -> int:
    found = _BOOT_TIME.search(read_text(proc_root / "stat") or "")
    return int(found[1]) if found else 0
