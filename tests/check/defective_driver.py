"""A DRA driver of ours with one defect: `python -m tests.check.defective_driver DEFECT ARG…`.

`DEFECTS` has one function for each rule that a defect of this kind can break. It patches the driver
before `kubedevices ARG…` runs. So the rule has to find in a driver of its own process what a
published driver did wrong.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kubedevices.cli import main
from kubedevices.dra import driver as driver_module
from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.device_plugin_guard import KubeletGuard
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.publisher import Publisher
from kubedevices.dra.service import ClaimService
from kubedevices.dra.sockets import _RegistrationService
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.kubelet_api.dra import ClaimAnswer, DeviceHealth
from kubedevices.values.allocation import ClaimDevice, ClaimReference, PluginInfo

Answers = dict[str, ClaimAnswer]
Claims = tuple[ClaimReference, ...]
DEFECTS: dict[str, Callable[[], None]] = {}
_prepare, _unprepare = ClaimService.prepare, ClaimService.unprepare
_WRONG = ClaimDevice(("one",), "check-node", "wrong")


def defect(rule: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function that breaks the rule with this ID."""

    def add(function: Callable[[], None]) -> Callable[[], None]:
        DEFECTS[rule] = function
        return function

    return add


def answering(change: Callable[[Claims, Answers], Answers]) -> None:
    """Let Prepare answer what `change` makes of the right answers."""

    async def prepare(self: ClaimService, claims: Claims) -> Mapping[str, ClaimAnswer]:
        return change(claims, {**await _prepare(self, claims)})

    ClaimService.prepare = prepare  # type: ignore[method-assign, assignment, unused-ignore]


def accepting(words: str) -> None:
    """Answer success where the right answer is an error with these words."""

    def change(_claims: Claims, answers: Answers) -> Answers:
        return {
            uid: (_WRONG,) if isinstance(answer, str) and words in answer else answer
            for uid, answer in answers.items()
        }

    answering(change)


def devices_as(change: Callable[[ClaimDevice], ClaimDevice]) -> None:
    """Change each prepared device."""

    def changed(_claims: Claims, answers: Answers) -> Answers:
        return {
            uid: answer if isinstance(answer, str) else tuple(map(change, answer))
            for uid, answer in answers.items()
        }

    answering(changed)


def informing(**fields: Any) -> None:
    """Let GetInfo answer with other fields."""

    async def get_info(self: _RegistrationService) -> PluginInfo:
        return self._info._replace(**fields)

    _RegistrationService.get_info = get_info  # type: ignore[method-assign, assignment, unused-ignore]


# ---------------------------------------------------------------- registration


@defect("register.info")
def _unknown_version() -> None:
    informing(supported_versions=("v1.DRAPlugin", "v9.DRAPlugin"))


@defect("health.served")
def _no_health() -> None:
    informing(supported_versions=("v1.DRAPlugin",))


@defect("register.secrets")
def _prints_its_kubeconfig() -> None:
    print(Path(os.environ["KUBECONFIG"]).read_text(), file=sys.stderr)


@defect("register.status-refused")
def _refusal_unheard() -> None:
    _RegistrationService.notify_registration_status = _nothing  # type: ignore[method-assign, assignment, unused-ignore]


@defect("register.stale-socket")
def _ends_at_an_old_socket() -> None:
    if [*_root().glob("plugins_registry/*.sock")]:
        sys.exit("address already in use")


@defect("register.kubelet-restart")
@defect("slices.again")
@defect("slices.deleted-one")
def _publishes_once() -> None:
    async def published_once(self: Publisher, _version: str, _timeout: float | None) -> bool:
        return await asyncio.Event().wait() and False

    Publisher._wait_for_change = published_once  # type: ignore[method-assign, assignment, unused-ignore]


@defect("register.stop")
def _ends_with_an_error() -> None:
    run = driver_module.DraDriver.run

    async def failing(self: Any) -> None:
        try:
            await run(self)
        finally:
            os._exit(3)

    driver_module.DraDriver.run = failing  # type: ignore[method-assign, assignment, unused-ignore]


# ---------------------------------------------------------------- slices


@defect("slices.quiet")
def _rewrites() -> None:
    async def impatient(self: Publisher, _version: str, _timeout: float | None) -> bool:
        await asyncio.sleep(0.5)
        for each in (await self._api.list_slices(self._driver, self._node))[0]:
            await self._api.update_slice(each)
        return False

    Publisher._wait_for_change = impatient  # type: ignore[method-assign, assignment, unused-ignore]


def _makes_slices_anew() -> None:
    sync = Publisher._sync

    async def anew(self: Publisher) -> str:
        for each in (await self._api.list_slices(self._driver, self._node))[0]:
            await self._delete(each)
        return await sync(self)

    Publisher._sync = anew  # type: ignore[method-assign, assignment, unused-ignore]


@defect("slices.dropped")
def _compares_with_what_it_sent() -> None:
    Publisher._record = lambda *_words: None  # type: ignore[method-assign, assignment, unused-ignore]


@defect("slices.refused")
def _gives_up_after_422() -> None:
    async def gives_up(*_words: object) -> None:
        await asyncio.Event().wait()

    Publisher._wait_after_refusal = gives_up  # type: ignore[method-assign, assignment, unused-ignore]


@defect("slices.conflict")
def _floods() -> None:
    async def impatient(*_words: object) -> None:
        await asyncio.sleep(0.01)

    Publisher._pause = impatient  # type: ignore[method-assign, assignment, unused-ignore]


@defect("slices.api-away")
def _needs_the_object_to_unprepare() -> None:
    async def unprepare(self: ClaimService, claims: Claims) -> Mapping[str, str]:
        for each in claims:
            try:
                await self._source.get_claim(each)
            except ApiUnreachable as error:
                return {one.uid: str(error) for one in claims}
        return await _unprepare(self, claims)

    ClaimService.unprepare = unprepare  # type: ignore[method-assign, assignment, unused-ignore]


@defect("slices.node-recreated")
def _remembers_the_node() -> None:
    get_node = ApiClient.get_node
    known: list[Any] = []

    async def first(self: ApiClient, name: str) -> Any:
        known[:] = known or [await get_node(self, name)]
        return known[0]

    ApiClient.get_node = first  # type: ignore[method-assign, assignment, unused-ignore]


# ---------------------------------------------------------------- Prepare


@defect("prepare.answers")
def _names_no_file() -> None:
    devices_as(lambda device: device._replace(cdi_ids=("example.com/none=x",)))


@defect("prepare.repeat")
def _answers_differ() -> None:
    numbers = iter(range(10_000))
    devices_as(lambda device: device._replace(requests=("one", f"more-{next(numbers)}")))


@defect("prepare.batch")
def _all_or_nothing() -> None:
    def change(_claims: Claims, answers: Answers) -> Answers:
        bad = [each for each in answers.values() if isinstance(each, str)]
        return dict.fromkeys(answers, bad[0]) if bad else answers

    answering(change)


@defect("prepare.concurrent")
def _refuses_a_second_call() -> None:
    running: set[str] = set()

    async def prepare(self: ClaimService, claims: Claims) -> Mapping[str, ClaimAnswer]:
        if {each.uid for each in claims} & running:
            return {each.uid: "in progress" for each in claims}
        running.update(each.uid for each in claims)
        try:
            return await _prepare(self, claims)
        finally:
            running.difference_update(each.uid for each in claims)

    ClaimService.prepare = prepare  # type: ignore[method-assign, assignment, unused-ignore]


for _rule, _words in {
    "prepare.uid": "it was replaced",
    "prepare.no-allocation": "nothing is allocated",
    "prepare.unknown-device": "there is no device",
    "prepare.config-strict": "has configuration",
}.items():
    DEFECTS[_rule] = lambda words=_words: accepting(words)  # type: ignore[misc]


@defect("prepare.requests")
def _one_request_for_all() -> None:
    devices_as(lambda device: device._replace(requests=("first",)))


@defect("prepare.subrequest")
def _names_the_subrequest() -> None:
    devices_as(lambda device: device._replace(requests=("gpu/big",)))


@defect("prepare.exclusive")
def _never_looks_for_holders() -> None:
    Preparation._holders = lambda *_words: iter(())  # type: ignore[method-assign, assignment, unused-ignore]


@defect("prepare.slow-api")
def _success_without_devices() -> None:
    answering(
        lambda _claims, answers: {
            uid: () if isinstance(answer, str) and "forbidden" in answer else answer
            for uid, answer in answers.items()
        }
    )


# ---------------------------------------------------------------- Unprepare


def unpreparing(before: Callable[[Claims], str | None]) -> None:
    """Answer Unprepare with the text of `before`; the right answer if it is None."""

    async def unprepare(self: ClaimService, claims: Claims) -> Mapping[str, str]:
        text = before(claims)
        return await _unprepare(self, claims) if text is None else {c.uid: text for c in claims}

    ClaimService.unprepare = unprepare  # type: ignore[method-assign, assignment, unused-ignore]


@defect("unprepare.cleans")
def _does_nothing() -> None:
    unpreparing(lambda _claims: "")


@defect("unprepare.twice")
def _unknown_is_an_error() -> None:
    known: set[str] = set()

    def noting(claims: Claims, answers: Answers) -> Answers:
        known.update(each.uid for each in claims)
        return answers

    answering(noting)

    def before(claims: Claims) -> str | None:
        unknown = {each.uid for each in claims} - known
        known.difference_update(each.uid for each in claims)
        return "unknown claim" if unknown else None

    unpreparing(before)


@defect("unprepare.object-gone")
def _reads_the_object() -> None:
    async def unprepare(self: ClaimService, claims: Claims) -> Mapping[str, str]:
        try:
            for each in claims:
                await self._source.get_claim(each)
        except ApiRefused as error:
            return {each.uid: str(error) for each in claims}
        return await _unprepare(self, claims)

    ClaimService.unprepare = unprepare  # type: ignore[method-assign, assignment, unused-ignore]


@defect("unprepare.others")
def _empties_the_directory() -> None:
    def before(_claims: Claims) -> None:
        for each in _cdi().iterdir():
            each.unlink()

    unpreparing(before)
    _leave_files_alone()


def _leave_files_alone() -> None:
    """Do not write a CDI file again that somebody removed."""
    ClaimService.ensure_files = _nothing  # type: ignore[method-assign, assignment, unused-ignore]


async def _nothing(*_words: object) -> None:
    return None


# ---------------------------------------------------------------- state, health


@defect("state.cdi-wiped")
def _answers_from_memory() -> None:
    known: Answers = {}

    async def prepare(self: ClaimService, claims: Claims) -> Mapping[str, ClaimAnswer]:
        new = tuple(each for each in claims if isinstance(known.get(each.uid, ""), str))
        known.update(await _prepare(self, new))
        return {each.uid: known[each.uid] for each in claims}

    ClaimService.prepare = prepare  # type: ignore[method-assign, assignment, unused-ignore]
    _leave_files_alone()


@defect("state.restart-held")
def _forgets_at_a_restart() -> None:
    for each in _root().rglob("prepared*.json"):
        each.unlink()
    ClaimService.unprepare = _only_known  # type: ignore[method-assign, assignment, unused-ignore]


async def _only_known(self: ClaimService, claims: Claims) -> Mapping[str, str]:
    known = [each for each in claims if self._preparation.known(each.uid)]
    return {each.uid: "" if each in known else "unknown claim" for each in claims} | {
        **await _unprepare(self, tuple(known))
    }


@defect("state.checkpoint-cut")
def _crash_loop() -> None:
    for each in _root().rglob("prepared*.json"):
        if not each.read_bytes().rstrip().endswith(b"}"):
            sys.exit("unexpected end of JSON input")


@defect("state.leftovers")
def _removes_files_of_others() -> None:
    for each in _cdi().iterdir():
        each.unlink()


@defect("state.growth")
def _leaks_descriptors() -> None:
    def change(_claims: Claims, answers: Answers) -> Answers:
        os.open("/dev/null", os.O_RDONLY)
        return answers

    answering(change)


@defect("health.first")
def _only_one_device() -> None:
    _health(lambda devices: devices[:1])


@defect("health.stays-open")
def _ends_its_stream() -> None:
    watch = ClaimService.watch_health

    async def once(self: ClaimService) -> AsyncIterator[list[DeviceHealth]]:
        async with contextlib.aclosing(watch(self)) as lists:  # type: ignore[type-var]
            async for each in lists:
                yield each
                await asyncio.sleep(0.3)
                return

    ClaimService.watch_health = once  # type: ignore[method-assign, assignment, unused-ignore]


def _health(change: Callable[[list[DeviceHealth]], list[DeviceHealth]]) -> None:
    watch = ClaimService.watch_health

    async def changed(self: ClaimService) -> AsyncIterator[list[DeviceHealth]]:
        async for each in watch(self):
            yield change(each)

    ClaimService.watch_health = changed  # type: ignore[method-assign, assignment, unused-ignore]


def _root() -> Path:
    return Path(sys.argv[sys.argv.index("--kubelet-dir") + 1])


def _cdi() -> Path:
    return Path(sys.argv[sys.argv.index("--cdi-dir") + 1])


def run(name: str, arguments: Sequence[str]) -> int:
    """Break the driver, and run it; it does not wait for a kubelet that has just started."""
    KubeletGuard._is_young = lambda *_words: False  # type: ignore[method-assign]
    if name == "makes-slices-anew":
        _makes_slices_anew()
    elif name != "none":
        DEFECTS[name]()
    return main(list(arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
