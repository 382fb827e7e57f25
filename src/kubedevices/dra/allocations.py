"""Finds claims to which devices of a node are still allocated, prepared or not. asyncio.

A scheduler may have allocated a device just before its slice was deleted, and the pod may not have
started yet. When no slice has the device any more, no further claim gets it. So all claims are
listed once, and then only the claims that were found are read again.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, NoReturn, Protocol

from kubedevices.dra.abandoned_verdict import is_deleted
from kubedevices.dra.claims import ClaimSource
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.plugin.timing import back_off
from kubedevices.values.allocation import ClaimReference

_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0
"""Seconds between two looks while a device waits; the pause doubles from the first to the last."""

_log = logging.getLogger(__name__)


class ClaimLists(ClaimSource, Protocol):
    """The API server; each call raises `ApiRefused` or `ApiUnreachable`."""

    def claim_pages(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield all ResourceClaims of the cluster, some at a time."""


class Allocations:
    """The claims with devices of `driver` in the pool `pool`."""

    def __init__(self, api: ClaimLists, driver: str, pool: str) -> None:
        self._api, self._driver, self._pool = api, driver, pool
        # The time, of the loop's clock, at which the last complete list began.
        self._listed_at: float | None = None
        self._found: dict[ClaimReference, frozenset[str]] = {}
        # A list must have begun at this time or later.
        self._wanted_since: float | None = None
        self._wanted = asyncio.Event()
        self._problem = ""

    def reason(self, label: str, since: float) -> str:
        """Return why a device, in no slice since the time `since`, is still in DRA; else empty.

        While the answer is not empty, `run` looks for claims.
        """
        why = ""
        if self._listed_at is None or self._listed_at < since:
            self._wanted_since = max(since, self._wanted_since or since)
            why = "it is not known yet whether a claim has it"
        elif any(label in each for each in self._found.values()):
            why = "it is allocated to a claim"
        if why:
            self._wanted.set()
        return why

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Look while a device waits; call `changed` after each look."""
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._look()
                self._problem = ""
            except (ApiRefused, ApiUnreachable) as error:
                if str(error) != self._problem:
                    _log.error("%s: devices stay in DRA: %s", self._driver, error)
                self._problem = str(error)
            changed()
            failures = failures + 1 if self._wanted.is_set() else 0
            is_waiting = self._found or self._problem
            pause = back_off(_FIRST_PAUSE, _LAST_PAUSE, failures) if is_waiting else 0
            # Random, so that the nodes of a cluster do not ask at the same time.
            await asyncio.sleep(pause * random.uniform(0.5, 1))

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._listed_at is None or self._listed_at < (self._wanted_since or 0):
            found: dict[ClaimReference, frozenset[str]] = {}
            async for page in self._api.claim_pages():
                found |= allocated(page, self._driver, self._pool)
            self._found, self._listed_at = found, now
            return
        for claim in [*self._found]:
            try:
                answer = await self._api.get_claim(claim)
            except ApiRefused as error:
                if not is_deleted(claim, error):
                    raise
                del self._found[claim]
            else:
                left = allocated([answer], self._driver, self._pool).get(claim)
                if left is None:
                    del self._found[claim]
                else:
                    self._found[claim] = left


def allocated(
    claims: Iterable[Mapping[str, Any]], driver: str, pool: str
) -> dict[ClaimReference, frozenset[str]]:
    """Return the devices of a driver and a pool that are allocated to each claim, if any.

    Raises `ApiRefused` for an object that is no ResourceClaim.
    """
    found = {}
    try:
        for each in claims:
            metadata = each["metadata"]
            reference = ClaimReference(metadata["namespace"], metadata["uid"], metadata["name"])
            devices = ((each.get("status") or {}).get("allocation") or {}).get("devices") or {}
            names = frozenset(
                str(result["device"])
                for result in devices.get("results") or ()
                if (result["driver"], result["pool"]) == (driver, pool)
            )
            if names:
                found[reference] = names
    except (KeyError, TypeError, AttributeError) as error:
        raise ApiRefused("list resourceclaims", 0, "", f"no ResourceClaim: {error!r}") from error
    return found
