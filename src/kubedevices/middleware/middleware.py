"""The base of every middleware: passes the trees, the abilities and the calls of a scanner on.

Two classes work together. A `Middleware` stands for the scanner and changes its trees. For every
device type that it serves it makes a `Relay`, which stands for the abilities of the type and
changes calls and answers. What neither changes passes as it is.

A call goes from the outermost relay to the plugin, its answer the other way. Where the plugin
leaves Allocate to the framework (`USE_DEFAULT`), the framework answers from the outermost tree,
and `post_allocate` goes the same way. `Relay.edit` is called in both cases.
"""

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn, TypeVar

from kubedevices.allocation import (
    AllocateRequest,
    AllocateResponse,
    ClaimedDevices,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import UsageError
from kubedevices.middleware.choice import UnusedGlobs
from kubedevices.plugin import hook_threads
from kubedevices.plugin.capabilities import AllocateAnswer, ClaimPreparer, StandIn, UseDefault
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.served_type import run_together

if TYPE_CHECKING:
    from kubedevices.cdi import ContainerEdits

Rule = TypeVar("Rule")

_log = logging.getLogger(__name__)


class Relay(StandIn, ClaimPreparer):
    """The abilities of one served type: by default those of the inner type, passed on.

    `adds` has the abilities that a subclass has although the inner type may not have them. A
    subclass that overrides `edit` adds `Allocator` and `PostAllocator`.
    """

    adds: ClassVar[frozenset[type]] = frozenset()

    def __init__(self, inner: Hooks, device_type: str, inner_type: str) -> None:
        self.inner, self.device_type, self.inner_type = inner, device_type, inner_type
        self.offered = inner.offered | self.adds
        self.stands_for, self.unknown_options = inner.name, inner.options.unknown
        self.parameters = inner.parameters  # type: ignore[misc]

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Ask the inner type; edit its answer if it has an answer of its own."""
        answer = await self.inner.allocate(request)
        if not isinstance(answer, UseDefault):
            await self.edit(answer, request)
        return answer

    async def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Let the inner type edit the framework's answer, then edit it here."""
        await self.inner.post_allocate(response, request)
        await self.edit(response, request)

    async def edit(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Change the answer in place, be it the plugin's or the framework's. Does nothing here."""

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
        """Let the inner type undo that."""
        await self.inner.unprepare_claim(claimed._replace(device_type=self.inner_type))

    async def on_type_added(self, device_type: str) -> None:
        """Tell the inner type, by the name that it knows."""
        del device_type
        await self.inner.on_type_added(self.inner_type)

    async def on_type_removed(self, device_type: str) -> None:
        """Tell the inner type; the caller's deadline is the one that counts."""
        del device_type
        await self.inner.on_type_removed(self.inner_type, timeout=None)


class Middleware(Scanner):
    """A scanner in, a scanner out: changes what another scanner finds, and how it answers.

    A subclass overrides what it changes: `change` for trees, `relay` for calls, `inner_type` for
    names of types. `counts` has what it did, by device type and event; they become the metric
    `kubedevices_middleware_events_total`. Raises `UsageError` for a `scanner` that is none.
    """

    def __init__(self, scanner: Scanner) -> None:
        if not isinstance(scanner, Scanner):
            raise UsageError(f"{type(self).__name__} needs a Scanner object, not {scanner!r}")
        self.scanner = scanner
        self.subject = ""
        """What the line of the start speaks of, where there are several scanners in a process."""

        self.counts: Counter[tuple[str, str]] = Counter()
        # For `change`, which is called by the scanner's thread and by the thread of a look.
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._inner_tree: DeviceTree | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._next_look: float | None = None

    def __str__(self) -> str:
        return self.line()

    # ------------------------------------------------------------ for subclasses

    def line(self) -> str:
        """Return what it does, in one line for the log of the start; empty if it does nothing."""
        return ""

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return what becomes of `tree`, which is read-only, at the loop's time `now`.

        Called for every tree of the inner scanner, in the notifying thread, never twice at once.
        Must be quick, and must not notify. May call `look_again`.
        """
        del now
        return tree

    def inner_type(self, device_type: str) -> str:
        """Return from which type of the inner scanner a served type comes."""
        return device_type

    def inner_id(self, device_type: str, device_id: str) -> str:
        """Return by which ID the inner scanner knows a device of a served type."""
        del device_type
        return device_id

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> Relay:
        """Return what answers for `device_type`; called each time the type appears."""
        return Relay(inner, device_type, inner_type)

    async def run_beside(self) -> None:
        """Do what has to be done as long as the scan lasts; then it is cancelled.

        To return early is no harm. Raising ends the scan.
        """

    # ------------------------------------------------------------ what subclasses call

    @property
    def inner_tree(self) -> DeviceTree:
        """The last tree of the inner scanner; an empty one before the first."""
        return self._inner_tree if self._inner_tree is not None else DeviceTree()

    def count(self, event: str, device_type: str = "", times: int = 1) -> None:
        """Count something for the metrics. From any thread."""
        with self._counting:
            self.counts[device_type, event] += times

    def look_again(self, at: float | None = None) -> None:
        """Call `change` with the last tree again, soon or at the loop's time `at`.

        From any thread; returns at once. The earliest of several times counts, and each look asks
        for the next. Before the scan it does nothing: the first tree comes anyway.
        """
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody serves any more
                loop.call_soon_threadsafe(self._plan_look, loop.time() if at is None else at)

    # ------------------------------------------------------------ as a scanner

    @property
    def scanner_name(self) -> str:
        """That of the inner scanner: what fails there is not ours."""
        return self.scanner.scanner_name

    def abilities_of(self, device_type: str) -> object:
        """Return what answers for `device_type`; it offers what the inner type offers, and more."""
        inner_type = self.inner_type(device_type)
        inner = Hooks(self.scanner.abilities_of(inner_type))
        return self.relay(inner, device_type, inner_type)

    async def scan(self, notifier: Notifier) -> None:
        """Run the inner scanner; ends when it ends."""
        self._loop = loop = asyncio.get_running_loop()
        if line := self.line():
            _log.info("%s%s", f"{self.subject}: " if self.subject else "", line)

        def pass_on() -> None:
            with self._lock:
                self._inner_tree = part.take()[0]
                notifier.notify(self.change(self._inner_tree, loop.time()))

        # The tree is taken under the lock: of two trees at once the later one is also passed on
        # later.
        part = Notifier(pass_on, notifier.wait_stopped)
        name = type(self).__name__
        try:
            await run_together(
                (f"scan below {name}", hook_threads.call(self.scanner.scan, part)),
                (f"looks of {name}", self._look(notifier)),
                (f"beside {name}", self._beside()),
            )
        finally:
            self._loop = None

    def _plan_look(self, at: float) -> None:
        self._next_look = at if self._next_look is None else min(self._next_look, at)
        self._wake.set()

    async def _look(self, notifier: Notifier) -> NoReturn:
        loop = asyncio.get_running_loop()

        def look() -> None:
            with self._lock:
                if self._inner_tree is not None:
                    notifier.notify(self.change(self._inner_tree, loop.time()))

        while True:
            # A wake-up only means that `_next_look` may be earlier now.
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_look):
                    await self._wake.wait()
            if self._next_look is not None and self._next_look <= loop.time():
                self._next_look = None
                await hook_threads.call(look)  # comparing two large trees takes a while

    async def _beside(self) -> NoReturn:
        await self.run_beside()
        await asyncio.Event().wait()
        raise AssertionError("unreachable: nobody sets it")


class RuledMiddleware(Middleware, Generic[Rule]):
    """A middleware with a rule for all device types, or a rule for some: `{inner type: rule}`."""

    def __init__(self, scanner: Scanner, rules: Rule | Mapping[str, Rule]) -> None:
        super().__init__(scanner)
        self._rules = rules
        self._unused = UnusedGlobs()
        self.with_place: Callable[[str, str], str] = lambda _glob, text: text
        """Puts before a text about a glob where the glob is written, if anybody knows."""

    def use(self, rules: Rule | Mapping[str, Rule]) -> None:
        """Go on with other rules, without a restart. From any thread."""
        self._rules = rules
        self._unused = UnusedGlobs()
        self.look_again()

    def warn_of_unused_globs(
        self, device_type: str, globs: Iterable[str], ids: Collection[str], now: float
    ) -> None:
        """Warn of globs for IDs that have fitted nothing for a minute; for `change`."""
        late, again_at = self._unused.look(device_type, globs, ids, now)
        for glob in late:
            self.count("unused_globs", device_type)
            text = f"{glob!r} has fitted the ID of no device of {device_type} for a minute"
            _log.warning("%s: %s", type(self).__name__, self.with_place(glob, text))
        if again_at is not None:
            self.look_again(again_at)

    def named_rules(self) -> Iterable[tuple[str, Rule]]:
        """Return the rules and of which type they are, for the line of the start."""
        if isinstance(self._rules, Mapping):
            return self._rules.items()
        return (("devices", self._rules),)

    def rule_of(self, inner_type: str) -> Rule | None:
        """Return the rule of a type; None: it passes as it is."""
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
