"""What a driver publishes, done wrong."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from kubedevices.dra import publisher
from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.publisher import Publisher, Slices
from kubedevices.dra.reconcile import plan_writes
from kubedevices.dra.service import ClaimService
from kubedevices.errors import ApiUnreachable
from tests.check.defects import UNPREPARE, Claims, defect, patch, variant


@defect("slices.quiet")
def _rewrites() -> None:
    async def impatient(self: Publisher, _version: str, _timeout: float | None) -> bool:
        await asyncio.sleep(0.5)
        for each in (await self._api.list_slices(self._driver, self._node))[0]:
            await self._api.update_slice(each)
        return False

    patch(Publisher, _wait_for_change=impatient)


@variant("makes-slices-anew")
def _makes_slices_anew() -> None:
    sync = Publisher._sync

    async def anew(self: Publisher) -> str:
        for each in (await self._api.list_slices(self._driver, self._node))[0]:
            await self._delete(each)
        return await sync(self)

    patch(Publisher, _sync=anew)


@defect("slices.dropped")
def _compares_with_what_it_sent() -> None:
    patch(Publisher, _record=lambda *_words: None)


@defect("slices.refused")
def _gives_up_after_422() -> None:
    async def gives_up(*_words: object) -> None:
        await asyncio.Event().wait()

    patch(Publisher, _wait_after_refusal=gives_up)


@defect("slices.conflict")
def _floods() -> None:
    async def impatient(*_words: object) -> None:
        await asyncio.sleep(0.01)

    patch(Publisher, _pause=impatient)


@defect("slices.api-away")
def _needs_the_object_to_unprepare() -> None:
    async def unprepare(self: ClaimService, claims: Claims) -> Mapping[str, str]:
        for each in claims:
            try:
                await self._source.get_claim(each)
            except ApiUnreachable as error:
                return {one.uid: str(error) for one in claims}
        return await UNPREPARE(self, claims)

    patch(ClaimService, unprepare=unprepare)


@defect("slices.node-recreated")
def _remembers_the_node() -> None:
    get_node = ApiClient.get_node
    known: list[Any] = []

    async def first(self: ApiClient, name: str) -> Any:
        known[:] = known or [await get_node(self, name)]
        return known[0]

    patch(ApiClient, get_node=first)


@defect("slices.empty")
def _ends_without_devices() -> None:
    publish = Publisher.publish

    def demanding(self: Publisher, slices: Slices) -> None:
        if self._wanted is None and not any(slices):
            os._exit(1)
        publish(self, slices)

    patch(Publisher, publish=demanding)


@defect("slices.generation")
def _keeps_the_generation() -> None:
    def plan(found: Any, *words: Any) -> Any:
        slices = [*found]
        planned = plan_writes(slices, *words)
        known = [each["spec"]["pool"]["generation"] for each in slices] or [1]
        for each in (*planned.update, *planned.create):
            each["spec"]["pool"]["generation"] = max(known)
        return planned

    patch(publisher, plan_writes=plan)


@defect("slices.many")
def _puts_all_into_one_slice() -> None:
    publish = Publisher.publish

    def joined(self: Publisher, slices: Slices) -> None:
        publish(self, [[device for part in slices for device in part]] if slices else ())

    patch(Publisher, publish=joined)
