"""Threads for code that may block: an author's hooks and scans, and our own look-ups in files.

Each call gets a daemon thread that ends with the call. So a hook that never returns stops no other
call and does not delay the exit of the process. The loop's default executor cannot be used: it has
few threads, other code shares them, and the exit of Python waits for them.
"""

import asyncio
import contextvars
import inspect
import logging
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar, overload

from kubedevices.errors import HookHangs, HookTimedOut

T = TypeVar("T")

THREAD_LIMIT = 64
"""Most calls that run at the same time in this process; further calls wait in their order."""

HANGING_LIMIT = 16
"""Most calls of one function that still run after their callers gave up.

With so many, the function is not called again (`HookHangs`).
"""

STOP_GRACE = 2.0
"""Seconds that `settle` waits for calls whose callers gave up."""

_log = logging.getLogger(__name__)


class Deadline(NamedTuple):
    """The time limit of one call, and what its error says.

    `at` is a time of the loop's clock, `seconds` the length of the whole limit, `option` the name
    of the option that sets the limit.
    """

    at: float
    seconds: float
    resource: str
    option: str

    async def keep(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Return the result of `work`, or cancel it and raise `HookTimedOut` when it is late."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=name)
        try:
            await asyncio.wait({task}, timeout=max(0.0, self.at - loop.time()))
            is_late = not task.done()
        finally:
            if not task.done():  # the author's code may ignore the cancellation
                task.add_done_callback(_forget)
                task.cancel()
                # One round of the loop: in it, code that honours the cancellation ends.
                await asyncio.sleep(0)
        if is_late:
            raise HookTimedOut(self.resource, name, self.seconds, self.option)
        return task.result()


def _forget(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.info("%s failed after its caller gave up: %r", task.get_name(), error)


@overload
def call(
    function: Callable[..., Awaitable[T]], *args: object, deadline: Deadline | None = None
) -> Coroutine[Any, Any, T]: ...


@overload
def call(
    function: Callable[..., T | Awaitable[T]], *args: object, deadline: Deadline | None = None
) -> Coroutine[Any, Any, T]: ...


def call(
    function: Callable[..., Any], *args: object, deadline: Deadline | None = None
) -> Coroutine[Any, Any, Any]:
    """Run `function(*args)` and return its answer: on the loop if it is `async`, else in a thread.

    The thread sees the caller's context variables. Cancelling does not stop the thread: its answer
    is dropped, and `settle` logs the thread if it still runs at the end. Raises `HookTimedOut`
    after the deadline, and `HookHangs` if too many calls of the function still run
    (`HANGING_LIMIT`).
    """
    if inspect.iscoroutinefunction(function):
        work: Coroutine[Any, Any, Any] = function(*args)
    else:
        work = _call_in_thread(function, *args)
    if deadline is None or deadline.at == math.inf:
        return work  # without another coroutine: a call passes many layers of middleware
    return deadline.keep(work, _name_of(function))


async def _call_in_thread(function: Callable[..., Any], *args: object) -> Any:
    job = _Job(function, args)
    _pool.start(job)
    try:
        # The shield: cancelling the caller must not cancel the future, because `settle` waits for
        # it while the thread still runs.
        await asyncio.shield(job.finished)
    except asyncio.CancelledError:
        _pool.abandon(job)
        raise
    # A plain function may return a coroutine, for example a lambda that calls an async function.
    # The coroutine runs on the loop, not in the thread.
    outcome = job.outcome()
    return await outcome if inspect.isawaitable(outcome) else outcome


async def settle(timeout: float = STOP_GRACE) -> tuple[str, ...]:
    """Wait for cancelled calls of this loop that still run; return the names of the rest."""
    left = _pool.abandoned(asyncio.get_running_loop())
    if left:
        await asyncio.wait([job.finished for job in left], timeout=timeout)
    names = tuple(job.name for job in left if not job.finished.done())
    for name in names:
        _log.warning("%s is still running after %g s: not waiting for it", name, timeout)
    return names


class _Job:
    """One call: created on the loop, run by a thread, finished on the loop."""

    def __init__(self, function: Callable[..., Any], args: tuple[object, ...]) -> None:
        self.name = _name_of(function)
        self.loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[None] = self.loop.create_future()
        self.is_abandoned = False
        self.has_run = False  # if true, its place in the pool is free again
        self._function, self._args = function, args
        self._context = contextvars.copy_context()
        self._answer: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call the function; store its answer or its error for the caller."""
        try:
            self._answer = self._context.run(self._function, *self._args)
        except BaseException as error:  # the author's code may raise anything
            # A coroutine cannot raise StopIteration, and sys.exit() in a hook must not end the
            # event loop.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            self._error = error if is_plain else RuntimeError(f"{self.name} raised {error!r}")
            if not is_plain:
                self._error.__cause__ = error

    def fail(self, error: Exception) -> None:
        """Store why the function could not be called."""
        self._error = error

    def finish(self) -> None:
        """Report the end to the loop, if it is not closed. The thread calls this."""
        try:
            self.loop.call_soon_threadsafe(self._set_finished)
        except RuntimeError:
            _log.debug("%s ended after its event loop", self.name)

    def _set_finished(self) -> None:
        if self.is_abandoned and self._error is not None:
            _log.info("%s failed after its caller gave up: %r", self.name, self._error)
        if not self.finished.done():
            self.finished.set_result(None)

    def outcome(self) -> Any:
        """Return the answer or raise the error, once; no cycle of references keeps it alive."""
        error, self._error = self._error, None
        if error is None:
            return self._answer
        try:
            raise error
        finally:
            del error


def _name_of(function: Callable[..., Any]) -> str:
    """Return `Class.method` with the author's class, also behind a middleware."""
    if inspect.ismethod(function):
        owner = function.__self__
        name = getattr(owner, "stands_for", type(owner).__name__)  # see `capabilities.StandIn`
        return f"{name}.{function.__name__}"
    return getattr(function, "__qualname__", None) or repr(function)


class _Pool:
    """Starts a thread per job up to the limit; further jobs wait until a running job ends.

    An abandoned job gives up its place, so that it delays no other job.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        # Number of places in use. It may be smaller than the number of threads: the thread of an
        # abandoned job goes on without a place.
        self._running = 0
        self._waiting: deque[_Job] = deque()
        self._abandoned: set[_Job] = set()

    def start(self, job: _Job) -> None:
        with self._lock:
            # Counted per function: a function that never returns would otherwise get one more
            # thread with each call of the kubelet.
            hanging = sum(each.name == job.name for each in self._abandoned)
            if hanging >= HANGING_LIMIT:
                raise HookHangs(job.name, hanging)
            if self._running >= self._limit:
                self._waiting.append(job)
                return
            self._running += 1
        self._start_thread(job)

    def _start_thread(self, job: _Job | None) -> None:
        while job is not None:
            try:
                threading.Thread(
                    target=self._work, args=(job,), name=f"hook {job.name}", daemon=True
                ).start()
            except RuntimeError as error:  # the process has too many threads
                job.fail(error)
                job = self._end(job)
            else:
                return

    def _work(self, job: _Job | None) -> None:
        while job is not None:
            job.run()
            job = self._end(job)

    def _end(self, job: _Job) -> _Job | None:
        """Report the end of `job` to its caller; return the waiting job that gets its place."""
        with self._lock:
            job.has_run = True
            following = None
            if job in self._abandoned:  # `abandon` gave its place away
                self._abandoned.remove(job)
            else:
                following = self._give_place()
        job.finish()
        return following

    def _give_place(self) -> _Job | None:
        if self._waiting:
            return self._waiting.popleft()
        self._running -= 1
        return None

    def abandon(self, job: _Job) -> None:
        """Give up a job whose caller has gone. A job that still waits for a thread is dropped."""
        job.is_abandoned = True
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                return
            if job.has_run:
                return
            self._abandoned.add(job)
            following = self._give_place()
        self._start_thread(following)

    def abandoned(self, loop: asyncio.AbstractEventLoop) -> list[_Job]:
        with self._lock:
            # One pool serves all event loops of the process, and a future belongs to its own loop.
            return [job for job in self._abandoned if job.loop is loop]


_pool = _Pool(THREAD_LIMIT)
