"""The base of every middleware: passes the trees, the abilities and the calls of a scanner on.

Two classes work together. A `Middleware` stands in front of a scanner and changes its trees. For
every device type that it serves it creates a `Relay`, which has the abilities of the type and
changes calls and answers. Everything else passes unchanged.

A call goes from the outermost relay to the plugin, its answer goes back the same way. If the plugin
leaves Allocate to the framework (`USE_DEFAULT`), the framework answers from the outermost tree, and
`post_allocate` goes from the outermost relay to the plugin. `Relay.edit` is called in both cases.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn, TypeVar

from kubedevices.errors import UsageError
from kubedevices.host import deadlines
from kubedevices.plugin import hook_threads
from kubedevices.plugin.capabilities import AllocateAnswer, ClaimPreparer, StandIn, UseDefault
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.stoppable import call_on
from kubedevices.rules.device_selector import UnusedGlobs
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ClaimedDevices,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device_tree import DeviceTree

if TYPE_CHECKING:
    from kubedevices.values.cdi import ContainerEdits

Rule = TypeVar("Rule")
Owner = TypeVar("Owner")

_log = logging.getLogger(__name__)


class Relay(StandIn, ClaimPreparer):
    """The abilities of one served type: by default the abilities of the inner type, passed on.

    `adds` has the abilities of a subclass that the inner type may not have. A subclass that
    overrides `edit` adds `Allocator` and `PostAllocator`.
    """

    adds: ClassVar[frozenset[type]] = frozenset()

    def __init__(self, inner: Hooks, device_type: str, inner_type: str) -> None:
        self.inner, self.device_type, self.inner_type = inner, device_type, inner_type
        self.offered = inner.offered | self.adds
        self.stands_for, self.unknown_options = inner.name, inner.options.unknown
        self.parameters = inner.parameters  # type: ignore[misc]
        self.cordon_file = inner.cordon_file

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Ask the inner type; edit its answer, unless the answer is `USE_DEFAULT`."""
        answer = await self.inner.allocate(request)
        if not isinstance(answer, UseDefault):
            await self.edit(answer, request)
        return answer

    async def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Let the inner type edit the framework's answer, then edit it here."""
        await self.inner.post_allocate(response, request)
        await self.edit(response, request)

    async def edit(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Change the answer of the plugin or of the framework in place. Does nothing here."""

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Ask the inner type."""
        return await self.inner.get_preferred_allocation(request)

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Let the inner type prepare the devices."""
        return await self.inner.pre_start_container(request)

    async def prepare_claim(self, claimed: ClaimedDevices) -> "ContainerEdits | None":
        """Let the inner type make the devices ready."""
        return await self.inner.prepare_claim(claimed._replace(device_type=self.inner_type))

    async def unprepare_claim(self, claimed: ClaimedDevices) -> None:
        """Let the inner type undo `prepare_claim`."""
        await self.inner.unprepare_claim(claimed._replace(device_type=self.inner_type))

    async def on_type_added(self, device_type: str) -> None:
        """Call the inner type, with its own name."""
        del device_type
        await self.inner.on_type_added(self.inner_type)

    async def on_type_removed(self, device_type: str) -> None:
        """Call the inner type; only the deadline of the caller counts."""
        del device_type
        await self.inner.on_type_removed(self.inner_type, timeout=None)


class OwnedRelay(Relay, Generic[Owner]):
    """A relay that asks its `owner`, which is the middleware."""

    def __init__(self, owner: Owner, inner: Hooks, device_type: str, inner_type: str) -> None:
        super().__init__(inner, device_type, inner_type)
        self.owner = owner


class Middleware(Scanner):
    """A scanner in, a scanner out: changes what another scanner finds, and how it answers.

    A subclass overrides what it changes: `change` for trees, `relay` for calls, `inner_type` for
    names of types. `counts` has the number of events by (device type, event), for the metric
    `kubedevices_middleware_events_total`. Raises `UsageError` if `scanner` is no `Scanner`.
    """

    def __init__(self, scanner: Scanner) -> None:
        if not isinstance(scanner, Scanner):
            raise UsageError(f"{type(self).__name__} needs a Scanner object, not {scanner!r}")
        self.scanner = scanner
        self.subject = ""
        """Put before the line of the start if a process has several scanners."""

        self.counts: Counter[tuple[str, str]] = Counter()
        # For `change`: the scanner's thread and the thread of `look_again` call it.
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._inner_tree: DeviceTree | None = None
        self.is_waiting = False
        """Set by `change`: it needs a later look before a tree may be passed on."""

        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._next_look: float | None = None

    def __str__(self) -> str:
        return self.line()

    # ------------------------------------------------------------ for subclasses

    def line(self) -> str:
        """Return its rules in one line, for the log of the start; empty if it does nothing."""
        return ""

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return the changed `tree`, which is read-only. `now` is the loop's time in seconds.

        Called for every tree of the inner scanner, in the notifying thread, never twice at the same
        time. It must be quick, and must not call `notify`. It may call `look_again`.
        """
        del now
        return tree

    def inner_type(self, device_type: str) -> str:
        """Return the type of the inner scanner from which a served type comes."""
        return device_type

    def inner_id(self, device_type: str, device_id: str) -> str:
        """Return the ID of a device by which the inner scanner knows it."""
        del device_type
        return device_id

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> Relay:
        """Return the relay that answers for `device_type`; called each time the type appears."""
        return Relay(inner, device_type, inner_type)

    async def run_beside(self) -> None:
        """Run beside the scan, which cancels it at its end.

        It may return early. If it raises, the scan ends.
        """

    # ------------------------------------------------------------ what subclasses call

    def count(self, event: str, device_type: str = "", times: int = 1) -> None:
        """Count an event for the metrics. From any thread."""
        with self._counting:
            self.counts[device_type, event] += times

    def look_again(self, at: float | None = None) -> None:
        """Call `change` with the last tree again, soon or at the loop's time `at`.

        From any thread; returns at once. Of several times the earliest counts; then `change` must
        ask again. Before the scan this does nothing, because the first tree will come.
        """
        loop = self._loop
        if loop is not None:
            call_on(loop, self._plan_look, loop.time() if at is None else at)

    # ------------------------------------------------------------ as a scanner

    @property
    def scanner_name(self) -> str:
        """The name of the inner scanner: its failures are not failures of the middleware."""
        return self.scanner.scanner_name

    def abilities_of(self, device_type: str) -> object:
        """Return the relay of `device_type`, around the abilities of the inner type."""
        inner_type = self.inner_type(device_type)
        inner = Hooks(self.scanner.abilities_of(inner_type))
        return self.relay(inner, device_type, inner_type)

    async def scan(self, notifier: Notifier) -> None:
        """Run the inner scanner; ends when it ends."""
        self._loop = loop = asyncio.get_running_loop()
        if line := self.line():
            _log.info("%s%s", f"{self.subject}: " if self.subject else "", line)

        def report(tree: DeviceTree) -> None:
            changed = self.change(tree, loop.time())
            if not self.is_waiting:
                notifier.notify(changed)

        def pass_on() -> None:
            with self._lock:
                self._inner_tree = part.take()[0]
                report(self._inner_tree)

        # `pass_on` takes the tree under the lock: so of two trees at the same time, the later tree
        # is passed on later.
        part = Notifier(pass_on, notifier.wait_stopped)
        name = type(self).__name__
        try:
            await run_together(
                (f"scan below {name}", hook_threads.call(self.scanner.scan, part)),
                (f"looks of {name}", self._look(report)),
                (f"beside {name}", self._beside()),
            )
        finally:
            self._loop = None

    def _plan_look(self, at: float) -> None:
        self._next_look = at if self._next_look is None else min(self._next_look, at)
        self._wake.set()

    async def _look(self, report: Callable[[DeviceTree], None]) -> NoReturn:
        loop = asyncio.get_running_loop()

        def look() -> None:
            with self._lock:
                if self._inner_tree is not None:
                    report(self._inner_tree)

        while True:
            # A wake-up only means that `_next_look` may be earlier now.
            self._wake.clear()
            await deadlines.until(self._next_look, self._wake.wait())
            if self._next_look is not None and self._next_look <= loop.time():
                self._next_look = None
                await hook_threads.call(look)  # the comparison of two large trees takes a while

    async def _beside(self) -> NoReturn:
        await self.run_beside()
        await asyncio.Event().wait()
        raise AssertionError("unreachable: no code sets the event")


class RuledMiddleware(Middleware, Generic[Rule]):
    """A middleware with one rule for all device types, or rules by inner type."""

    def __init__(self, scanner: Scanner, rules: Rule | Mapping[str, Rule]) -> None:
        super().__init__(scanner)
        self._rules = rules
        self._unused = UnusedGlobs()
        self.with_place: Callable[[str, str], str] = lambda _glob, text: text
        """Glob and text -> the text, with the place of the glob in its file before it if known."""

    def use(self, rules: Rule | Mapping[str, Rule]) -> None:
        """Go on with other rules, without a restart. From any thread."""
        self._rules = rules
        self._unused = UnusedGlobs()
        self.look_again()

    def warn_of_unused_globs(
        self, device_type: str, globs: Iterable[str], ids: Collection[str], now: float
    ) -> None:
        """Warn of globs that have fitted no ID for a minute; for `change`."""
        late, again_at = self._unused.look(device_type, globs, ids, now)
        for glob in late:
            self.count("unused_globs", device_type)
            text = f"{glob!r} has fitted the ID of no device of {device_type} for a minute"
            _log.warning("%s: %s", type(self).__name__, self.with_place(glob, text))
        if again_at is not None:
            self.look_again(again_at)

    def named_rules(self, of_all: str = "devices") -> Iterable[tuple[str, Rule]]:
        """Return (type, rule) pairs; one rule for all types has the name `of_all`."""
        if isinstance(self._rules, Mapping):
            return self._rules.items()
        return ((of_all, self._rules),)

    def rules_line(self, beginning: str, text_of: Callable[[Rule], str]) -> str:
        """Return the line of the start with the text of each rule; empty without rules."""
        texts = [f"{name} {text_of(rule)}" for name, rule in self.named_rules()]
        return f"{beginning} {'; '.join(texts)}" if texts else ""

    def rule_of(self, inner_type: str) -> Rule | None:
        """Return the rule of a type; None: the type passes unchanged."""
        if isinstance(self._rules, Mapping):
            return self._rules.get(inner_type)
        return self._rules


def layers(scanner: object) -> Iterator[Middleware]:
    """Yield the middleware around a scanner, the outermost first."""
    while isinstance(scanner, Middleware):
        yield scanner
        scanner = scanner.scanner


def innermost(scanner: Scanner) -> Scanner:
    """Return the scanner that finds the devices."""
    while isinstance(scanner, Middleware):
        scanner = scanner.scanner
    return scanner
