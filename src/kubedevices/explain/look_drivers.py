"""Finds the DRA drivers of kubedevices on this host by their files. Blocking file access."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from kubedevices.dra import prepared
from kubedevices.dra.claim_log import FILE_NAME as REFUSED_FILE
from kubedevices.dra.claim_log import read_refusals
from kubedevices.dra.names import cdi_kind
from kubedevices.dra.prepared import PreparedClaim, PreparedClaims
from kubedevices.dra.state_files import SLICES_FILE
from kubedevices.explain.facts import ClaimFacts, DriverFacts, RefusedClaim
from kubedevices.host.boot_id import read_boot_id
from kubedevices.host.cdi_specs import file_name
from kubedevices.host.listing import names


def look_at_drivers(
    kubelet_roots: Iterable[Path], cdi_dirs: Sequence[Path]
) -> tuple[DriverFacts, ...]:
    """Return the drivers below the root directories of kubelets; unreadable ones are left out."""
    found: dict[str, DriverFacts] = {}
    for root in kubelet_roots:
        try:
            directories = [root / "plugins" / name for name in names(root / "plugins")]
        except OSError:
            continue
        for directory in directories:
            driver = _look_at_driver(root, directory, cdi_dirs)
            if driver is not None:
                found.setdefault(driver.name, driver)
    return tuple(found.values())


def _look_at_driver(root: Path, directory: Path, cdi_dirs: Sequence[Path]) -> DriverFacts | None:
    checkpoint, slices = directory / prepared.FILE_NAME, directory / SLICES_FILE
    refused = directory / REFUSED_FILE
    try:
        if not any(each.exists() for each in (checkpoint, slices, refused)):
            return None
        begin, registry = f"{directory.name}-reg", root / "plugins_registry"
        has_socket = registry.is_dir() and bool(
            names(registry, lambda name: name.startswith(begin) and name.endswith(".sock"))
        )
        has_slices = slices.exists()
    except OSError:
        return None
    claims = tuple(
        ClaimFacts(
            str(each.reference),
            tuple(result.device for result in each.results),
            each.is_ready,
            _lacks_file(each, directory.name, cdi_dirs),
        )
        for each in PreparedClaims.read(checkpoint)[0]
    )
    wanted = tuple(
        RefusedClaim(each.claim.namespace, each.claim.name, each.reason)
        for each in read_refusals(refused)
    )
    return DriverFacts(directory.name, has_socket, has_slices, claims, wanted)


def _lacks_file(claim: PreparedClaim, driver: str, cdi_dirs: Sequence[Path]) -> bool:
    if not claim.cdi or claim.boot_id != read_boot_id():  # a reboot removes all CDI files
        return False
    name = file_name(cdi_kind(driver), claim.reference.uid)
    return not any((each / name).exists() for each in cdi_dirs)
