"""Frees the devices of a prepared claim by hand: calls the driver as a kubelet does. asyncio.

For a claim that no kubelet will ever unprepare, while the driver cannot find this out, for example
without the API server.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kubedevices.dra.prepared_file import FILE_NAME, PreparedClaim, PreparedClaims
from kubedevices.errors import CannotAsk, ClaimNotReleased, DialError, RpcError, WireError
from kubedevices.errors.words import did_you_mean
from kubedevices.host import listing
from kubedevices.kubelet_api.dra_client import DraClient
from kubedevices.kubelet_api.kubelet_devices import ask_claims
from kubedevices.wire.unix_grpc import GrpcChannel

_SOCKET = re.compile(r"dra\..*\.sock")
_DEADLINE = 45.0
"""Seconds, as for a call of the kubelet."""


class ReleasedClaim(NamedTuple):
    """A claim that a driver unprepared, and the names of its devices."""

    driver: str
    claim: str
    devices: tuple[str, ...]


async def release_claim(
    name: str, kubelet_roots: Iterable[Path], pod_resources: Path
) -> tuple[ReleasedClaim, ...]:
    """Let each driver below `kubelet_roots` unprepare the claim `name`: NAMESPACE/NAME, or a UID.

    Raises `ClaimNotReleased` if no driver has the claim, a container has it, or a driver refuses,
    and `CannotAsk` if the kubelet or a driver does not answer.
    """
    found = list(_claims(kubelet_roots))
    wanted = [each for each in found if name in (str(each[1].reference), each[1].reference.uid)]
    if not wanted:
        known = [str(each.reference) for _, each in found]
        problem = f"no driver on this host has prepared it{did_you_mean(name, known)}"
        raise ClaimNotReleased(name, problem)
    used = await ask_claims(pod_resources)
    released = []
    for directory, claim in wanted:
        reference = claim.reference
        if (reference.namespace, reference.name) in used:
            raise ClaimNotReleased(name, "a container on this node has it: delete its pod instead")
        await _unprepare(directory, claim)
        devices = tuple(each.device for each in claim.results)
        released.append(ReleasedClaim(directory.name, str(reference), devices))
    return tuple(released)


def _claims(kubelet_roots: Iterable[Path]) -> Iterator[tuple[Path, PreparedClaim]]:
    """Yield each prepared claim with the directory of its driver."""
    seen = set()
    for root in kubelet_roots:
        plugins = root / "plugins"
        for file in (plugins / name / FILE_NAME for name in _names_in(plugins)):
            if file.exists() and (real := file.resolve()) not in seen:
                seen.add(real)
                for claim in PreparedClaims.read(file)[0]:
                    yield file.parent, claim


def _names_in(directory: Path) -> list[str]:
    try:
        return listing.names(directory)
    except OSError:
        return []


async def _unprepare(directory: Path, claim: PreparedClaim) -> None:
    # The first is the newest instance. Sockets of killed instances refuse the connection.
    for name in filter(_SOCKET.fullmatch, reversed(_names_in(directory))):
        try:
            async with await GrpcChannel.dial(directory / name, timeout=_DEADLINE) as channel:
                answers = await DraClient(channel, "v1.DRAPlugin").unprepare(
                    [claim.reference], timeout=_DEADLINE
                )
        except DialError:
            continue
        except RpcError as error:
            problem = f"the driver {directory.name} failed: {error}"
            raise ClaimNotReleased(str(claim.reference), problem) from error
        except WireError as error:
            raise CannotAsk(f"the driver {directory.name} did not answer: {error}") from error
        if problem := answers.get(claim.reference.uid, ""):
            raise ClaimNotReleased(
                str(claim.reference), f"the driver {directory.name} answered: {problem}"
            )
        return
    raise CannotAsk(
        f"the driver {directory.name} does not run: start it, and release the claim then"
    )
