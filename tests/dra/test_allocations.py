"""Which devices claims have, by lists of the API server that are new enough."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from kubedevices.dra.allocations import Allocations
from kubedevices.values.allocation import ClaimReference
from tests.dra.cluster import NODE, claim_of
from tests.waiting import until

DRIVER = "example.com"


class Lists:
    """An API server that lists its claims on pages of one claim each."""

    def __init__(self) -> None:
        self.claims: dict[str, dict[str, Any]] = {}

    def give(self, name: str, *devices: str) -> None:
        metadata = {"namespace": "default", "uid": f"uid of {name}", "name": name}
        self.claims[name] = claim_of(name, *devices) | {"metadata": metadata}

    async def claim_pages(self) -> AsyncIterator[list[dict[str, Any]]]:
        for each in [*self.claims.values()]:
            yield [each]

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        return self.claims[claim.name]


async def test_the_claims_of_all_pages_count() -> None:
    """A large cluster has many; a device that became free of slices later needs a newer list."""
    lists, looks = Lists(), list[None]()
    lists.give("first", "gpu-0", "gpu-1")
    lists.give("second", "gpu-2")
    found, loop = Allocations(lists, DRIVER, NODE), asyncio.get_running_loop()
    looking = asyncio.create_task(found.run(lambda: looks.append(None)), name="looks")
    try:
        now = loop.time()
        assert found.reason("gpu-3", now) == "it is not known yet whether a claim has it"
        await until(lambda: looks)
        reasons = [found.reason(f"gpu-{number}", now) for number in range(4)]
        assert reasons == ["it is allocated to a claim"] * 3 + [""]
        assert "not known yet" in found.reason("gpu-3", loop.time() + 1)
    finally:
        looking.cancel()
        await asyncio.wait({looking})
