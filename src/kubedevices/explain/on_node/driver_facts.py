"""Facts about DRA drivers and their claims on a host, as values. Pure.

`look_drivers` reads the files of our drivers, `look_claims` what the kubelet has written, and
`join_claims` puts this together with the answers of sockets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kubedevices.explain.on_node.facts import RegistrySocket
from kubedevices.values.allocation import ClaimReference


class ClaimedPart(NamedTuple):
    """A device that a driver has given to a claim, and its CDI names.

    Several claims may have a device with different `share_id`, or with `is_admin` access.
    """

    driver: str
    pool: str
    device: str
    share_id: str = ""
    cdi_names: tuple[str, ...] = ()
    is_admin: bool = False


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """A claim of one driver; `name` is NAMESPACE/NAME.

    `is_ours` says that our driver has prepared it, or began to (not `is_ready`); then `lacks_file`
    says that its CDI file is missing, and `files` are the device files that its containers get.
    Other sources tell the rest. `held_by` lists containers as `namespace/pod (container)`.
    `unused` says why nobody will use the claim any more, and `is_certain` that the kubelet says so
    too; `is_forgotten` that its checkpoint does not have the claim. `unresolved` are CDI names that
    no file has, with the reason.
    """

    name: str
    parts: tuple[ClaimedPart, ...] = ()
    uid: str = ""
    is_ours: bool = False
    is_ready: bool = True
    lacks_file: bool = False
    held_by: tuple[str, ...] = ()
    unused: str = ""
    is_certain: bool = False
    is_forgotten: bool = False
    unresolved: tuple[tuple[str, str], ...] = ()
    files: frozenset[str] = frozenset()

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of its devices."""
        return tuple(dict.fromkeys(each.device for each in self.parts))


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The files of one of our drivers.

    `has_slices` says whether it may have published ResourceSlices, `devices` which devices; None
    if that is not known. `claims` are those of its checkpoint, `problem` says why that cannot be
    read. `refused` are the claims, as NAMESPACE/NAME, that it did not prepare when the kubelet
    asked last, with the reasons.
    """

    name: str
    directory: Path
    has_slices: bool = False
    claims: tuple[ClaimFacts, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KubeletClaim:
    """A claim in the kubelet's checkpoint of DRA; `pods` are UIDs."""

    reference: ClaimReference
    pods: tuple[str, ...]
    parts: tuple[ClaimedPart, ...]


@dataclass(frozen=True, slots=True)
class KubeletClaims:
    """The kubelet's checkpoint of DRA: its claims, None if they are not known.

    `problem` says why the file cannot be read. `pods` are the UIDs of pods that have a directory
    at the kubelet, None if that is not known. `is_of_this_boot` is False if no claim can have been
    prepared since the start of the host.
    """

    path: Path
    claims: tuple[KubeletClaim, ...] | None = None
    problem: str = ""
    pods: frozenset[str] | None = None
    is_of_this_boot: bool = True


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """A DRA driver of any vendor: its instances by their registration sockets, and its claims.

    `files` is None for a driver of another vendor. `dead` are registration sockets of the driver
    on which nobody listens. `is_seen` is False if the plugin registry could not be read.
    """

    name: str
    instances: tuple[RegistrySocket, ...] = ()
    dead: tuple[RegistrySocket, ...] = ()
    claims: tuple[ClaimFacts, ...] = ()
    files: DriverFiles | None = None
    is_seen: bool = True

    @property
    def runs(self) -> bool:
        """Whether an instance answers."""
        return bool(self.instances)

    def serves(self, resource: str) -> bool:
        """Whether devices of a resource with this name may be those of the driver."""
        domain = resource.partition("/")[0]
        return "/" in resource and (domain == self.name or self.name.endswith(f".{domain}"))


@dataclass(frozen=True, slots=True)
class ClaimFile:
    """A CDI file of a claim that one of our drivers wrote; `driver` comes from its content."""

    path: Path
    driver: str


@dataclass(frozen=True, slots=True)
class DraFacts:
    """All about DRA on a host.

    `leftover` are CDI files of claims that are gone, `astray` drivers with a registration socket
    where the kubelet does not look: it looks in `registry`.
    """

    drivers: tuple[DriverFacts, ...] = ()
    kubelet: KubeletClaims = field(default_factory=lambda: KubeletClaims(Path()))
    leftover: tuple[ClaimFile, ...] = ()
    astray: tuple[RegistrySocket, ...] = ()
    registry: Path = Path()

    @property
    def by_name(self) -> Mapping[str, DriverFacts]:
        """The drivers by name."""
        return {each.name: each for each in self.drivers}
