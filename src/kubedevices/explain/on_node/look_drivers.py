"""Finds the DRA drivers of kubedevices on this host by their files. Blocking file access."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from kubedevices.dra import prepared_file
from kubedevices.dra.claim_log import FILE_NAME as REFUSED_FILE
from kubedevices.dra.claim_log import read_refusals
from kubedevices.dra.names import cdi_kind
from kubedevices.dra.prepared_file import PreparedClaim, PreparedClaims
from kubedevices.dra.state_files import SLICES_FILE, StateFiles
from kubedevices.errors import InvalidCdiSpec
from kubedevices.explain.on_node.driver_facts import (
    ClaimedPart,
    ClaimFacts,
    ClaimFile,
    DriverFiles,
)
from kubedevices.host.boot_id import read_boot_id
from kubedevices.host.cdi_specs import file_name, kind_of_our_file, our_files
from kubedevices.host.listing import names
from kubedevices.values.cdi import from_json

_PAUSE = 0.2
"""Seconds before a claim without its CDI file is looked at again."""

_CLAIM_KIND = cdi_kind("")


def look_at_drivers(
    kubelet_roots: Iterable[Path], cdi_dirs: Sequence[Path]
) -> tuple[DriverFiles, ...]:
    """Return the drivers below the root directories of kubelets; unreadable ones are left out."""
    found: dict[str, DriverFiles] = {}
    for root in kubelet_roots:
        try:
            directories = [root / "plugins" / name for name in names(root / "plugins")]
        except OSError:
            continue
        for directory in directories:
            driver = _look_at_driver(directory, cdi_dirs)
            if driver is not None and any(each.lacks_file for each in driver.claims):
                # A driver that unprepares a claim removes its CDI file first.
                time.sleep(_PAUSE)
                driver = _look_at_driver(directory, cdi_dirs)
            if driver is not None:
                found.setdefault(driver.name, driver)
    return tuple(found.values())


def _look_at_driver(directory: Path, cdi_dirs: Sequence[Path]) -> DriverFiles | None:
    checkpoint, slices = directory / prepared_file.FILE_NAME, directory / SLICES_FILE
    refused = directory / REFUSED_FILE
    try:
        if not any(each.exists() for each in (checkpoint, slices, refused)):
            return None
        has_slices = slices.exists()
    except OSError:
        return None
    found, is_whole = PreparedClaims.read(checkpoint)
    published = StateFiles(directory).published()
    return DriverFiles(
        directory.name,
        directory,
        has_slices,
        tuple(_facts(each, directory.name, cdi_dirs) for each in found),
        {str(each.claim): each.reason for each in read_refusals(refused)},
        None if published is None else tuple(sorted(published)),
        "" if is_whole else f"{checkpoint} cannot be read, so its prepared claims are not known",
    )


def _facts(claim: PreparedClaim, driver: str, cdi_dirs: Sequence[Path]) -> ClaimFacts:
    parts = tuple(
        ClaimedPart(
            driver,
            each.result.pool,
            each.result.device,
            each.result.share_id,
            each.cdi_ids,
            each.result.admin_access,
        )
        for each in claim.devices
    )
    return ClaimFacts(
        str(claim.reference),
        parts,
        claim.reference.uid,
        is_ours=True,
        is_ready=claim.is_ready,
        lacks_file=_lacks_file(claim, driver, cdi_dirs),
        files=_device_files(claim),
    )


def _device_files(claim: PreparedClaim) -> frozenset[str]:
    """Return the device files in the text of a CDI file; none if it has another form."""
    try:
        devices = from_json(claim.cdi).devices if claim.cdi else ()
    except InvalidCdiSpec:
        return frozenset()
    nodes = (node for each in devices for node in each.container_edits.device_nodes)
    return frozenset(node.host_path or node.path for node in nodes)


def _lacks_file(claim: PreparedClaim, driver: str, cdi_dirs: Sequence[Path]) -> bool:
    if not claim.cdi or claim.boot_id != read_boot_id():  # a reboot removes all CDI files
        return False
    name = file_name(cdi_kind(driver), claim.reference.uid)
    return not any((each / name).exists() for each in cdi_dirs)


def claim_files(cdi_dirs: Iterable[Path]) -> tuple[ClaimFile, ...]:
    """Return the CDI files that our drivers wrote for claims; the content names the driver."""
    files = (path for directory in cdi_dirs for path in our_files(directory))
    kinds = ((path, kind_of_our_file(path)) for path in files)
    return tuple(
        ClaimFile(path, kind.removesuffix(_CLAIM_KIND))
        for path, kind in kinds
        if kind.endswith(_CLAIM_KIND)
    )


def claim_file_name(driver: str, uid: str) -> str:
    """Return the name of the CDI file of a claim."""
    return file_name(cdi_kind(driver), uid)
