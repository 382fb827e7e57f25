"""NodeUnprepareResources, done wrong."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from kubedevices.dra.service import ClaimService
from kubedevices.errors import ApiRefused
from tests.check.defects import (
    UNPREPARE,
    Answers,
    Claims,
    answering,
    cdi_dir,
    defect,
    leave_files_alone,
    patch,
    unpreparing,
)


@defect("unprepare.cleans")
def _does_nothing() -> None:
    unpreparing(lambda _claims: "")


@defect("unprepare.twice")
def _ended_is_an_error() -> None:
    ended: set[str] = set()

    def before(claims: Claims) -> str | None:
        again = {each.uid for each in claims} & ended
        ended.update(each.uid for each in claims)
        return "no such claim" if again else None

    unpreparing(before)


@defect("unprepare.unknown")
def _unknown_is_an_error() -> None:
    known: set[str] = set()

    def noting(claims: Claims, answers: Answers) -> Answers:
        known.update(each.uid for each in claims)
        return answers

    answering(noting)
    unpreparing(lambda claims: None if {each.uid for each in claims} <= known else "unknown")


def _needs_the_object(is_error: Callable[[ApiRefused], bool]) -> None:
    async def unprepare(self: ClaimService, claims: Claims) -> Mapping[str, str]:
        for each in claims:
            try:
                await self._source.get_claim(each)
            except ApiRefused as error:
                if is_error(error):
                    return {one.uid: str(error) for one in claims}
        return await UNPREPARE(self, claims)

    patch(ClaimService, unprepare=unprepare)


@defect("unprepare.object-gone")
def _looks_for_the_object() -> None:
    _needs_the_object(lambda error: error.status == HTTPStatus.NOT_FOUND)


@defect("unprepare.api-away")
def _asks_the_server() -> None:
    _needs_the_object(lambda error: error.status >= HTTPStatus.INTERNAL_SERVER_ERROR)


@defect("unprepare.others")
def _empties_the_directory() -> None:
    def before(_claims: Claims) -> None:
        for each in cdi_dir().iterdir():
            each.unlink()

    unpreparing(before)
    leave_files_alone()


@defect("unprepare.device-gone")
def _looks_the_device_up() -> None:
    async def unprepare(self: ClaimService, claims: Claims) -> Mapping[str, str]:
        offered = self._offer.devices if self._offer else {}
        for each in claims:
            for result in self._preparation.results_of(each.uid):
                if result.device not in offered:
                    return {one.uid: f"no device {result.device}" for one in claims}
        return await UNPREPARE(self, claims)

    patch(ClaimService, unprepare=unprepare)
