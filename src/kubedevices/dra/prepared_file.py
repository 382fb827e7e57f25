"""The checkpoint of a driver: the file that lists the prepared claims. Blocking file access.

Each claim has the ID of the boot in which it was prepared. After a reboot device files may have
other numbers, so the claim must be prepared again; its allocation is still valid. Within one boot a
lost CDI file of a claim is written again from its text in the checkpoint.
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubedevices.dra.claims import DeviceGroup, Result
from kubedevices.dra.metadata import RequestMetadata
from kubedevices.errors import CannotRead, OtherVersion, PreparedUnwritable, os_errors_as
from kubedevices.host.state_file import StateFile
from kubedevices.values.allocation import ClaimReference
from kubedevices.wire.unix_socket import FileIdentity

VERSION = 1
_WITH_METADATA = 2  # version of a file with metadata: an older program must not overwrite the file
_WITH_SHARES = 3  # version of a file with devices that several claims have, perhaps with metadata
FILE_NAME = "prepared.json"
_SIZE_LIMIT = 64 * 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedDevice:
    """A device of a claim, and the CDI devices that a container gets for it."""

    result: Result
    cdi_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreparedClaim:
    """A claim that holds devices in the boot `boot_id`.

    `is_ready` is True when all files of the claim are written, so the kubelet may have got an
    answer. `cdi` is the text of the CDI file, empty if no device needs one. `groups` are the groups
    of devices that the author's hooks prepared. `metadata` are the metadata files for containers.
    """

    reference: ClaimReference
    boot_id: str
    is_ready: bool
    devices: tuple[PreparedDevice, ...]
    cdi: str = ""
    groups: tuple[DeviceGroup, ...] = ()
    metadata: tuple[RequestMetadata, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """The devices that the scheduler allocated to the claim."""
        return tuple(each.result for each in self.devices)


class PreparedClaims:
    """The claims in the file at `path`, by UID. `put` and `remove` write the file."""

    def __init__(self, path: Path, claims: Iterable[PreparedClaim] = ()) -> None:
        self.path = path
        self._stored = StateFile.at(path, limit=_SIZE_LIMIT, version=_WITH_SHARES)
        self._file: FileIdentity | None = None
        self.is_of_other_version = False
        """Whether `read` found a file with a version that this program does not know."""

        self._claims = {each.reference.uid: each for each in claims}
        # The claims as the next write will have them; None outside of `one_write`.
        self._draft: dict[str, PreparedClaim] | None = None

    @classmethod
    def read(cls, path: Path) -> "tuple[PreparedClaims, bool]":
        """Return the claims of the file, and whether it could be read. No file means no claims.

        An unreadable file is logged; the result is empty then. The kubelet prepares the claims of
        starting pods again.
        """
        # Take the identity before the content: a file that is replaced in between counts as
        # changed.
        found, file = cls(path), FileIdentity.of(path)
        try:
            found = cls(path, found._stored.read(_claims_of))
        except FileNotFoundError:
            return found, True
        except CannotRead as error:
            found.is_of_other_version = isinstance(error, OtherVersion)
            _log.error("%s; so the prepared claims are unknown", error)
            return found, False
        found._file = file
        return found, True

    @property
    def is_current(self) -> bool:
        """Whether the file on disk is still the file that this object last read or wrote."""
        return self._file is not None and FileIdentity.of(self.path) == self._file

    def __iter__(self) -> Iterator[PreparedClaim]:
        return iter(tuple(self._claims.values()))

    def __len__(self) -> int:
        return len(self._claims)

    def get(self, uid: str) -> PreparedClaim | None:
        """Return the claim with this UID."""
        return self._claims.get(uid)

    @property
    def with_draft(self) -> tuple[PreparedClaim, ...]:
        """The claims, with the changes that `one_write` has collected. Only for its thread."""
        return tuple((self._claims if self._draft is None else self._draft).values())

    def put(self, claim: PreparedClaim) -> None:
        """Add or replace a claim. If it raises `PreparedUnwritable`, nothing has changed."""
        with self.one_write() as draft:
            draft[claim.reference.uid] = claim

    def begin_anew(self, claims: Iterable[PreparedClaim]) -> None:
        """Store `claims` in the place of a file that cannot be read; the file is kept for people.

        Raises `PreparedUnwritable`.
        """
        if not self.is_of_other_version:  # the write keeps a file of a newer version
            with os_errors_as(PreparedUnwritable, self.path):
                kept_as = self._stored.keep_damaged()
            _log.warning("%s is kept as %s", self.path, kept_as)
        self._write({each.reference.uid: each for each in claims})

    def remove(self, uid: str) -> None:
        """Remove a claim. If it raises `PreparedUnwritable`, nothing has changed."""
        with self.one_write() as draft:
            draft.pop(uid, None)

    @contextlib.contextmanager
    def one_write(self) -> "Iterator[dict[str, PreparedClaim]]":
        """Collect the changes of the body and write them at its end, if there are any.

        Raises `PreparedUnwritable`; nothing has changed then.
        """
        if self._draft is not None:  # a part of a larger write
            yield self._draft
            return
        self._draft = dict(self._claims)
        try:
            yield self._draft
            if self._draft != self._claims:
                self._write(self._draft)
        finally:
            self._draft = None

    def _write(self, claims: Mapping[str, PreparedClaim]) -> None:
        with os_errors_as(PreparedUnwritable, self.path):
            self._stored.write(_document_of(claims.values()))
        # Only after the write: an answer to the kubelet must survive a kill of the driver.
        self._claims, self._file = dict(claims), FileIdentity.of(self.path)


def _document_of(claims: Iterable[PreparedClaim]) -> Mapping[str, Any]:
    content = [
        {name: getattr(each, name) for name in ("boot_id", "is_ready", "cdi")}
        | {
            "reference": each.reference._asdict(),
            "devices": [
                {"result": device.result._asdict(), "cdi_ids": device.cdi_ids}
                for device in each.devices
            ],
            "groups": [_group_document(group) for group in each.groups],
        }
        | ({"metadata": [file._asdict() for file in each.metadata]} if each.metadata else {})
        for each in claims
    ]
    version = VERSION
    if any("metadata" in each for each in content):
        version = _WITH_METADATA
    if any("label" in group for each in content for group in each["groups"]):
        version = _WITH_SHARES
    return {"version": version, "checksum": _checksum(content), "claims": content}


def _group_document(group: DeviceGroup) -> dict[str, Any]:
    content = group._asdict() | {
        "configuration": dict(group.configuration),
        "first": group.first and group.first._asdict(),
    }
    shared = ("label", "first", "answer", "edits")
    return {name: each for name, each in content.items() if group.label or name not in shared}


def _group_of(content: dict[str, Any]) -> DeviceGroup:
    first = content.get("first")
    parts = {
        "device_ids": tuple(content["device_ids"]),
        "first": None if first is None else ClaimReference(**first),
    }
    return DeviceGroup(**content | parts)


def _claims_of(document: Any) -> list[PreparedClaim]:
    if _checksum(document["claims"]) != document["checksum"]:
        raise ValueError("its checksum is wrong")
    return [_claim_of(each) for each in document["claims"]]


def _claim_of(content: dict[str, Any]) -> PreparedClaim:
    devices = tuple(
        PreparedDevice(Result(**each["result"]), tuple(each["cdi_ids"]))
        for each in content["devices"]
    )
    reference = ClaimReference(**content["reference"])
    groups = tuple(map(_group_of, content["groups"]))
    metadata = tuple(RequestMetadata(**each) for each in content.get("metadata", ()))
    parts = {"reference": reference, "devices": devices, "groups": groups, "metadata": metadata}
    return PreparedClaim(**content | parts)


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
