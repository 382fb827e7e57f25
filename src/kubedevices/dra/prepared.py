"""Which claims are prepared: a file that outlives the driver. Blocking file access.

Each claim carries the ID of the boot in which it was prepared. After a reboot device files have
other numbers, so nothing of an earlier boot is used as it is; what the scheduler gave to the claim
is still true. Within one boot the CDI file of a claim is written again from here.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubedevices.allocation import ClaimReference
from kubedevices.dra.claims import Group, Result
from kubedevices.dra.metadata import RequestMetadata
from kubedevices.errors import PreparedUnwritable
from kubedevices.host import untrusted_files
from kubedevices.wire.unix_socket import FileIdentity

VERSION = 1
_WITH_METADATA = 2  # the version of a file with metadata, so that an older program lets it be
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

    `is_ready` says whether a kubelet may have been told so. `cdi` is the text of its CDI file,
    empty if no device needs one. `groups` is what the author's code made ready for it. `metadata`
    is what its containers may read about its devices.
    """

    reference: ClaimReference
    boot_id: str
    is_ready: bool
    devices: tuple[PreparedDevice, ...]
    cdi: str = ""
    groups: tuple[Group, ...] = ()
    metadata: tuple[RequestMetadata, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """What the scheduler gave to the claim."""
        return tuple(each.result for each in self.devices)


class PreparedClaims:
    """The claims in the file at `path`, by UID. `put` and `remove` return when they are on disk."""

    def __init__(self, path: Path, claims: Iterable[PreparedClaim] = ()) -> None:
        self.path = path
        self._file: FileIdentity | None = None
        self.is_of_other_version = False
        """Whether `read` found a file of another version of this program."""

        self._claims = {each.reference.uid: each for each in claims}

    @classmethod
    def read(cls, path: Path) -> "tuple[PreparedClaims, bool]":
        """Return what the file says, and whether it could be read; a missing file is no claims.

        What is lost that way is logged: a kubelet prepares again the claims of pods that start.
        """
        # The identity before the content: a file that is replaced in between counts as changed.
        found, file = cls(path), FileIdentity.of(path)
        try:
            data = untrusted_files.read_bytes(path, limit=_SIZE_LIMIT)
        except FileNotFoundError:
            return found, True
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            try:
                found = cls(path, _claims_of(data))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                problem = str(error) or type(error).__name__
                found.is_of_other_version = isinstance(error, _OtherVersion)
            else:
                found._file = file
                return found, True
        _log.error(
            "%s cannot be read, so it is not known which claims were prepared: %s", path, problem
        )
        return found, False

    @property
    def is_current(self) -> bool:
        """Whether the file is still the file that was read or written last."""
        return self._file is not None and FileIdentity.of(self.path) == self._file

    def __iter__(self) -> Iterator[PreparedClaim]:
        return iter(tuple(self._claims.values()))

    def __len__(self) -> int:
        return len(self._claims)

    def get(self, uid: str) -> PreparedClaim | None:
        """Return the claim with this UID."""
        return self._claims.get(uid)

    def put(self, claim: PreparedClaim) -> None:
        """Add or replace a claim. Raises `PreparedUnwritable`; then nothing has changed."""
        self._write({**self._claims, claim.reference.uid: claim})

    def remove(self, uid: str) -> None:
        """Forget a claim. Raises `PreparedUnwritable`; then nothing has changed."""
        if uid in self._claims:
            self._write({name: each for name, each in self._claims.items() if name != uid})

    def _write(self, claims: Mapping[str, PreparedClaim]) -> None:
        try:
            self.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            untrusted_files.replace(self.path, _text_of(claims.values()).encode())
        except OSError as error:
            raise PreparedUnwritable(str(self.path), error.strerror or str(error)) from error
        # Only when it is on disk: what a kubelet is told must survive a kill.
        self._claims, self._file = dict(claims), FileIdentity.of(self.path)


class _OtherVersion(ValueError):
    """A file of another version of this program, which is intact nevertheless."""


def _text_of(claims: Iterable[PreparedClaim]) -> str:
    content = [
        {name: getattr(each, name) for name in ("boot_id", "is_ready", "cdi")}
        | {
            "reference": each.reference._asdict(),
            "devices": [
                {"result": device.result._asdict(), "cdi_ids": device.cdi_ids}
                for device in each.devices
            ],
            "groups": [
                group._asdict() | {"configuration": dict(group.configuration)}
                for group in each.groups
            ],
        }
        | ({"metadata": [file._asdict() for file in each.metadata]} if each.metadata else {})
        for each in claims
    ]
    version = _WITH_METADATA if any("metadata" in each for each in content) else VERSION
    return json.dumps({"version": version, "checksum": _checksum(content), "claims": content})


def _claims_of(data: bytes) -> list[PreparedClaim]:
    """Raises `ValueError` and its like for what is not such a file."""
    document = json.loads(data)
    if document["version"] not in (VERSION, _WITH_METADATA):
        known = f"{VERSION} and {_WITH_METADATA}"
        raise _OtherVersion(f"it has version {document['version']}, this program reads {known}")
    if _checksum(document["claims"]) != document["checksum"]:
        raise ValueError("its checksum is wrong")
    return [_claim_of(each) for each in document["claims"]]


def _claim_of(content: dict[str, Any]) -> PreparedClaim:
    devices = tuple(
        PreparedDevice(Result(**each["result"]), tuple(each["cdi_ids"]))
        for each in content["devices"]
    )
    reference = ClaimReference(**content["reference"])
    groups = tuple(
        Group(**each | {"device_ids": tuple(each["device_ids"])}) for each in content["groups"]
    )
    metadata = tuple(RequestMetadata(**each) for each in content.get("metadata", ()))
    parts = {"reference": reference, "devices": devices, "groups": groups, "metadata": metadata}
    return PreparedClaim(**content | parts)


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
