"""Writes and removes the files of claims: checkpoint, metadata, CDI. Blocking, one call at a time.

The order of the steps lets the next process finish the work after a kill at any time:

1. The checkpoint records the claim as begun.
2. The metadata files are written.
3. The CDI file, which mounts the metadata files, is written.
4. The checkpoint records the claim as ready.

The kubelet repeats a call that got no answer.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubedevices.dra.claim_cdi import CdiEdits, claim_spec
from kubedevices.dra.claims import ClaimHolder, DeviceGroup, Result, check_free
from kubedevices.dra.metadata import RequestMetadata
from kubedevices.dra.metadata_files import DIRECTORY_NAME, MetadataFiles
from kubedevices.dra.names import cdi_kind
from kubedevices.dra.prepared_file import PreparedClaim, PreparedClaims, PreparedDevice
from kubedevices.dra.shared_writes import WriteStep
from kubedevices.dra.slices import TypedDevice
from kubedevices.errors import CdiWriteFailed, ClaimRefused, PreparedUnwritable
from kubedevices.host import cdi_specs
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.values.allocation import ClaimDevice, ClaimReference
from kubedevices.values.device import Mount

LOCK_NAME = "claims.lock"
_UID_LENGTH = 36
_SHARE_ID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")

_log = logging.getLogger(__name__)


class Preparation:
    """The prepared claims of one driver on this node; `boot_id` is the ID of the current boot."""

    def __init__(
        self, driver: str, node_name: str, file: Path, cdi_dir: Path, boot_id: str
    ) -> None:
        self._driver, self._node, self._file = driver, node_name, file
        self._kind, self._cdi_dir, self._boot_id = cdi_kind(driver), cdi_dir, boot_id
        self._claims = PreparedClaims(file)
        self._has_started = False
        self._metadata = MetadataFiles(SharedDirectory.at(file.parent).folder(DIRECTORY_NAME))

    @property
    def lock_file(self) -> Path:
        """The file that an instance of the driver locks while it prepares or unprepares a claim."""
        return self._file.with_name(LOCK_NAME)

    def start(self) -> None:
        """Read the checkpoint, remove CDI files without a claim, and write missing CDI files.

        If the checkpoint cannot be read, the held devices are read from the CDI files.
        """
        self._has_started = True
        self._claims, is_whole = PreparedClaims.read(self._file)
        cdi_specs.remove_leftovers(self._cdi_dir)
        if is_whole:
            # Files of an earlier boot are removed: the numbers of device files may have changed.
            living = {each.reference.uid for each in self._claims if self._is_of_this_boot(each)}
            for path in cdi_specs.remove_transient(self._cdi_dir, self._kind, living):
                _log.info("removed the CDI file %s: its claim is not prepared", path)
            self._metadata.remove_others(living)
        else:
            self._claims.begin_anew(self._claims_of_files())
        self.ensure_files()

    def refresh(self) -> None:
        """Read the checkpoint again if another instance of the driver has changed it.

        Nothing is read before `start`, which keeps a file of a newer version and begins anew.
        Raises `PreparedUnwritable` if the file has an unknown version afterwards: the next write
        would destroy it.
        """
        if self._has_started and not self._claims.is_current and self._file.exists():
            found, is_whole = PreparedClaims.read(self._file)
            if is_whole:
                self._claims = found
            elif found.is_of_other_version:
                problem = "an instance of another version of the driver wrote it"
                raise PreparedUnwritable(str(self._file), problem)

    def together(self, steps: Sequence[WriteStep[Any]]) -> None:
        """Run steps, which call methods of this object, in their order and with one write.

        If the write fails, each step runs again with a write of its own: a claim that frees space
        may still succeed.
        """
        try:
            with self._claims.one_write():
                for each in steps:
                    each.run()
        except PreparedUnwritable as error:
            for each in steps:
                if len(steps) > 1:
                    self.together([each])
                else:
                    each.error = each.error or error

    def ensure_files(self) -> None:
        """Write every file that is missing or was changed; log each file that cannot be written."""
        for claim in self._claims.with_draft:
            if self._is_of_this_boot(claim):
                try:
                    self._ensure_files_of(claim)
                except (CdiWriteFailed, PreparedUnwritable) as error:
                    _log.error("%s", error)

    def known(self, uid: str) -> PreparedClaim | None:
        """Return a claim from the checkpoint, ready or only begun; None if it is not there."""
        return self._claims.get(uid)

    def is_held(self, label: str) -> bool:
        """Whether a claim has the device `label`. Claims of an earlier boot count too."""
        return any(each.device == label for claim in self._claims for each in claim.results)

    @property
    def claims(self) -> tuple[PreparedClaim, ...]:
        """All claims of the checkpoint."""
        return tuple(self._claims)

    def answer_if_ready(
        self, claim: ClaimReference, results: tuple[Result, ...]
    ) -> tuple[ClaimDevice, ...] | None:
        """Return the answer for a claim that is ready with these devices; None for other claims."""
        known = self._claims.get(claim.uid)
        if known and known.is_ready and self._is_of_this_boot(known) and known.results == results:
            # The kubelet asks again after its restart and after a reboot, when /var/run is empty.
            # Without the CDI file the container would hang (kubernetes#141433).
            self._ensure_files_of(known)
            return answer_of(known.devices)
        return None

    def begin(
        self,
        claim: ClaimReference,
        results: tuple[Result, ...],
        offered: Mapping[str, TypedDevice],
        groups: tuple[DeviceGroup, ...] = (),
    ) -> None:
        """Record in the checkpoint that a claim is begun.

        Raises `ClaimRefused` for a device that is not on this node, or that another claim holds.
        """
        for result in results:
            if result.device not in offered or result.pool != self._node:
                device = f"{result.pool}/{result.device}"
                raise ClaimRefused(str(claim), f"there is no device {device} on this node (now)")
        check_free(claim, results, self._holders(claim.uid, self._claims.with_draft))
        devices = tuple(PreparedDevice(each) for each in results)
        self._claims.put(
            PreparedClaim(claim, self._boot_id, is_ready=False, devices=devices, groups=groups)
        )

    def finish(
        self,
        claim: ClaimReference,
        given: Iterable[tuple[Result, CdiEdits]],
        metadata: tuple[RequestMetadata, ...] = (),
        groups: tuple[DeviceGroup, ...] = (),
    ) -> tuple[ClaimDevice, ...]:
        """Write the files of a claim that was begun, record it as ready, and return the answer.

        Raises `InvalidCdiSpec` for edits that no runtime accepts, and `CdiWriteFailed` or
        `PreparedUnwritable` for a file that cannot be written.
        """
        given = tuple(given)
        mounts = {
            each.request: Mount(
                self._metadata.path_of(claim.uid, each.request), each.container_path, read_only=True
            )
            for each in metadata
        }
        spec, names = claim_spec(self._driver, claim.uid, given, mounts)
        path = self._path_of(claim.uid)
        ready = PreparedClaim(
            claim,
            self._boot_id,
            is_ready=True,
            devices=tuple(PreparedDevice(result, names[result]) for result, _ in given),
            cdi=cdi_specs.text_of(spec, str(path)) if spec else "",
            groups=groups,
            metadata=metadata,
        )
        # Remove files that an earlier attempt for the same claim may have left.
        if spec is None:
            cdi_specs.remove_file(path)
        self._ensure_files_of(ready)
        self._metadata.remove(claim.uid, keep=metadata)
        self._claims.put(ready)
        return answer_of(ready.devices)

    def ready_groups(self) -> Mapping[str, tuple[DeviceGroup, ...]]:
        """Return the groups of the claims that are ready in this boot, by the UID of the claim."""
        return {
            each.reference.uid: each.groups
            for each in self._claims
            if each.is_ready and self._is_of_this_boot(each)
        }

    def holders(self, uid: str) -> tuple[ClaimHolder, ...]:
        """Return the claims, other than the claim `uid`, that hold their devices in this boot."""
        return tuple(self._holders(uid, self._claims))

    def _holders(self, uid: str, claims: Iterable[PreparedClaim]) -> Iterator[ClaimHolder]:
        for each in claims:
            if each.reference.uid != uid and self._is_of_this_boot(each):
                yield ClaimHolder(each.reference, each.results)

    def remove(self, uid: str) -> None:
        """Remove a claim and its files; nothing happens for an unknown claim."""
        # The files first: after a kill in between, the checkpoint still has the claim, and the
        # kubelet repeats its call.
        cdi_specs.remove_file(self._path_of(uid))
        self._metadata.remove(uid)
        self._claims.remove(uid)

    def _is_of_this_boot(self, claim: PreparedClaim) -> bool:
        """Whether the claim was prepared in this boot. Containers of an earlier boot have ended."""
        return bool(self._boot_id) and claim.boot_id == self._boot_id

    def _ensure_files_of(self, claim: PreparedClaim) -> None:
        # The metadata before the CDI file: a runtime cannot mount a file that does not exist.
        self._metadata.ensure(claim.reference.uid, claim.metadata)
        path = self._path_of(claim.reference.uid)
        # After a reboot `start` removes the file, so it need not survive a power failure.
        if claim.cdi and cdi_specs.write_text(path, claim.cdi, durable=False):
            _log.info("wrote the CDI file of the claim %s", claim.reference)

    def _path_of(self, uid: str) -> Path:
        return self._cdi_dir / cdi_specs.file_name(self._kind, uid)

    def _claims_of_files(self) -> Iterable[PreparedClaim]:
        """Rebuild claims from their CDI files: UID and devices, enough to know the held devices."""
        for path in cdi_specs.our_files(self._cdi_dir):
            spec = cdi_specs.read_spec_file(path).spec
            if spec is None or spec.kind != self._kind:
                continue
            uid = spec.devices[0].name[:_UID_LENGTH]
            # "-" after the UID: a device. "_" after the UID: the metadata of a request.
            names = [each.name[_UID_LENGTH:] for each in spec.devices]
            found = [_device_of(each[1:]) for each in names if each.startswith("-")]
            labels = [label for label, _ in found]
            devices = tuple(
                PreparedDevice(Result("", self._node, label, share_id)) for label, share_id in found
            )
            _log.warning("claim %s holds %s: its CDI file says so", uid, ", ".join(labels))
            claim = PreparedClaim(ClaimReference("", uid, ""), self._boot_id, False, devices)
            yield replace(claim, cdi=cdi_specs.text_of(spec, str(path)))


def _device_of(name: str) -> tuple[str, str]:
    """Return the label and the share ID from the end of the name of a CDI device."""
    match = _SHARE_ID.search(name)
    return (name, "") if match is None else (name[: match.start()], match[0][1:])


def answer_of(devices: Iterable[PreparedDevice]) -> tuple[ClaimDevice, ...]:
    """Return prepared devices as the kubelet gets them in the answer."""
    return tuple(
        ClaimDevice(
            (each.result.request,),
            each.result.pool,
            each.result.device,
            each.cdi_ids,
            each.result.share_id,
        )
        for each in devices
    )
