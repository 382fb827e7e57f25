"""Puts together what files and sockets say about DRA drivers and their claims. Pure.

A claim of our driver is in up to three places: the checkpoint of the driver, the checkpoint of the
kubelet, and the kubelet's list of containers. Of another vendor's driver only the last two are
known.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from kubedevices.explain.on_node.driver_facts import (
    ClaimedPart,
    ClaimFacts,
    DriverFacts,
    DriverFiles,
    KubeletClaim,
    KubeletClaims,
)
from kubedevices.explain.on_node.facts import NO_PERMISSION, NOBODY, HeldClaim, RegistrySocket
from kubedevices.values.socket_paths import InstanceSocket, is_socket_of

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_USUAL_NAME = re.compile(rf"(.+?)(-{_UUID})?-reg\.sock")

Resolve = Callable[[str], str]
"""Returns why no file defines a CDI name; empty if one does."""


@dataclass(frozen=True, slots=True)
class ClaimSources:
    """Where claims are known from.

    `sockets` are None if the plugin registry cannot be read, `held` is None if the kubelet did not
    answer. `before` has the UIDs that the kubelet's checkpoint had before the files of drivers were
    read: a claim that is unprepared meanwhile is not forgotten.
    """

    files: Sequence[DriverFiles]
    sockets: Sequence[RegistrySocket] | None
    kubelet: KubeletClaims
    held: Sequence[HeldClaim] | None
    resolve: Resolve
    before: frozenset[str] = frozenset()


def drivers_of(sources: ClaimSources, wanted: str = "") -> tuple[DriverFacts, ...]:
    """Return every driver that any source names, sorted; a dead socket alone names only `wanted`.

    The socket of a driver for storage has a name of the same form.
    """
    files = {each.name: each for each in sources.files}
    sockets = sources.sockets or ()
    instances = [(each.info.name, each) for each in sockets if each.info and each.is_driver]
    dead = [(driver_of_socket(each.path.name), each) for each in sockets if is_dead(each)]
    states = sources.kubelet.claims or ()
    names = {*files, *(name for name, _ in instances)}
    names |= {each.driver for each in sources.held or ()}
    names |= {part.driver for state in states for part in state.parts}
    names |= {name for name, each in dead if name == wanted or is_ours(each)}
    return tuple(
        DriverFacts(
            name,
            tuple(each for its_name, each in instances if its_name == name),
            tuple(each for its_name, each in dead if its_name == name),
            tuple(_claims_of(name, files.get(name), sources)),
            files.get(name),
            is_seen=sources.sockets is not None and not any(map(_is_closed, sockets)),
        )
        for name in sorted(names)
    )


def _is_closed(socket: RegistrySocket) -> bool:
    return socket.socket is not None and socket.socket.refusal == NO_PERMISSION


def is_dead(socket: RegistrySocket) -> bool:
    """Whether nobody listens on a registration socket."""
    return socket.socket is not None and socket.socket.refusal == NOBODY


def is_ours(socket: RegistrySocket) -> bool:
    """Whether a registration socket has the name that a driver of kubedevices gives it."""
    name = socket.path.name
    return is_socket_of(name, driver_of_socket(name))


def driver_of_socket(name: str) -> str:
    """Return the driver in the name of a registration socket; empty if the name has none."""
    if found := InstanceSocket.parse(name):
        return found.stem.removesuffix("-reg") if found.stem.endswith("-reg") else ""
    usual = _USUAL_NAME.fullmatch(name)
    return usual[1] if usual else ""


def _claims_of(
    driver: str, files: DriverFiles | None, sources: ClaimSources
) -> Iterator[ClaimFacts]:
    held = {each.name: each for each in sources.held or () if each.driver == driver}
    states = {each.reference.uid: each for each in sources.kubelet.claims or ()}
    for each in files.claims if files else ():
        yield _joined(each, states.pop(each.uid, None), held.pop(each.name, None), sources)
    for state in states.values():
        parts = tuple(part for part in state.parts if part.driver == driver)
        if not parts:
            continue
        name = str(state.reference)
        claim = ClaimFacts(name, parts, state.reference.uid)
        claim = _joined(claim, state, held.pop(name, None), sources)
        # Our driver has unprepared it, so the kubelet forgets it within a minute.
        if not (claim.unused and files and not files.problem):
            yield claim
    for name, holder in held.items():
        parts = tuple(ClaimedPart(driver, *part) for part in holder.parts)
        yield ClaimFacts(name, parts, held_by=holder.held_by)


def _joined(
    claim: ClaimFacts, state: KubeletClaim | None, holder: HeldClaim | None, sources: ClaimSources
) -> ClaimFacts:
    """Return a claim of a driver's checkpoint or of the kubelet's, with what other sources say."""
    # Of any driver: one claim may have devices of several.
    in_use = {each.name for each in sources.held or ()}
    unused, is_certain = "", False
    is_ending = state is None and claim.uid in sources.before
    if sources.held is not None and claim.name not in in_use and not is_ending:
        unused, is_certain = _why_unused(state, sources.kubelet)
    needed = state and claim.is_ready and not claim.lacks_file and not unused
    names = [name for part in claim.parts for name in part.cdi_names] if needed else []
    return replace(
        claim,
        held_by=holder.held_by if holder else (),
        unused=unused,
        is_certain=is_certain,
        is_forgotten=is_certain and state is None,
        unresolved=_unresolved(names, sources),
    )


def _why_unused(state: KubeletClaim | None, kubelet: KubeletClaims) -> tuple[str, bool]:
    """Return why no pod uses a claim that no container has, and whether that is certain."""
    if kubelet.claims is None:
        return "the kubelet has no container with this claim", False
    if state is None:
        return "the kubelet does not know this claim, so it will never unprepare it", True
    if kubelet.pods is not None and not kubelet.pods & {*state.pods}:
        return "the pod that it was prepared for does not exist any more", True
    return "", False  # its pod starts, or ends


def _unresolved(names: Iterable[str], sources: ClaimSources) -> tuple[tuple[str, str], ...]:
    """Return the names that no file has; after a reboot a driver writes its files again first."""
    if not sources.kubelet.is_of_this_boot:
        return ()
    reasons = ((name, sources.resolve(name)) for name in dict.fromkeys(names))
    return tuple((name, why) for name, why in reasons if why)


def held_twice(drivers: Iterable[DriverFacts]) -> Iterator[tuple[str, list[ClaimFacts]]]:
    """Yield each device that two claims have, as DRIVER/POOL/DEVICE, with the claims.

    Claims may share a device, each with its own share; a claim with admin access holds nothing.
    """
    taken = [
        ((part.driver, part.pool, part.device, part.share_id), claim)
        for driver in drivers
        for claim in driver.claims
        for part in claim.parts
        if not part.is_admin and not claim.unused
    ]
    taken.sort(key=lambda each: (each[0], each[1].name))
    for (driver, pool, device, _), found in groupby(taken, key=lambda each: each[0]):
        claims = [claim for _, claim in found]
        if len({claim.uid or claim.name for claim in claims}) > 1:
            yield f"{driver}/{pool}/{device}", claims
