"""Threads for an author's code: it may block, fail and outlive whoever asked."""

import asyncio
import contextvars
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kubedevices.errors import HookHangs
from kubedevices.plugin import hook_threads
from tests.waiting import until

WHO = contextvars.ContextVar("WHO", default="nobody")


class Gate:
    """A hook that blocks until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.entries = 0

    def pass_through(self, answer: object = None) -> object:
        """Block, then answer; an exception is raised instead of returned."""
        self.entries += 1
        self.entered.release()
        assert self.open.wait(30)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Give a gate that is open at the latest when the test is over."""
    gate = Gate()
    yield gate
    gate.open.set()


def hook_thread_count() -> int:
    """Count the threads that run a hook just now."""
    return sum(thread.name.startswith("hook ") for thread in threading.enumerate())


async def test_a_def_runs_in_a_thread_of_its_own() -> None:
    """A plain function runs in a daemon thread that is not the loop's."""

    def who_runs() -> tuple[int, bool]:
        return threading.get_ident(), threading.current_thread().daemon

    ident, is_daemon = await hook_threads.call(who_runs)
    assert ident != threading.get_ident()
    assert is_daemon


async def test_an_async_def_runs_on_the_loop() -> None:
    """A coroutine function is awaited where it was called."""

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        assert threading.current_thread() is threading.main_thread()
        return 2 * number

    assert await hook_threads.call(double, 4) == 8


async def test_a_def_may_return_an_awaitable() -> None:
    """What a plain function returns to be awaited is awaited on the loop."""

    async def answer() -> str:
        return threading.current_thread().name

    def ask() -> object:
        return answer()

    assert await hook_threads.call(ask) == threading.main_thread().name


async def test_errors_reach_the_caller() -> None:
    """An exception in the thread is raised where the answer is awaited."""

    def fail() -> None:
        raise KeyError("widget7")

    with pytest.raises(KeyError, match="widget7"):
        await hook_threads.call(fail)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1)])
async def test_sys_exit_in_a_hook_fails_only_the_hook(error: BaseException) -> None:
    """sys.exit() in a hook fails the hook, not the process; StopIteration does not get lost."""

    def leave() -> None:
        raise error

    with pytest.raises(RuntimeError, match=f"leave raised {type(error).__name__}") as caught:
        await hook_threads.call(leave)
    assert caught.value.__cause__ is error


async def test_context_variables_are_carried() -> None:
    """The thread sees the caller's context and cannot change it."""

    def rename() -> str:
        seen = WHO.get()
        WHO.set("the thread")
        return seen

    WHO.set("the caller")
    assert await hook_threads.call(rename) == "the caller"
    assert WHO.get() == "the caller"


async def test_sleeping_hooks_do_not_stop_others(gate: Gate) -> None:
    """While sixteen hooks sleep, the next one is answered."""
    sleeping = [asyncio.create_task(hook_threads.call(gate.pass_through)) for _ in range(16)]
    await until(lambda: gate.entries == 16, what="sixteen hooks sleep")
    assert await asyncio.wait_for(hook_threads.call(str, 5), 10) == "5"
    gate.open.set()
    await asyncio.gather(*sleeping)


async def test_threads_are_bounded_and_calls_wait_in_order(gate: Gate) -> None:
    """Beyond the limit calls wait for a thread and get one; none is lost."""
    limit = hook_threads.THREAD_LIMIT
    calls = [asyncio.create_task(hook_threads.call(gate.pass_through, n)) for n in range(limit + 8)]
    await until(lambda: gate.entries == limit, what="every thread is busy")
    await until(lambda: hook_thread_count() == limit, what="no more threads than the limit")
    assert gate.entries == limit
    gate.open.set()
    assert await asyncio.gather(*calls) == list(range(limit + 8))


async def test_a_cancelled_call_that_has_no_thread_is_never_made(gate: Gate) -> None:
    """A call cancelled while it waits for a thread does not happen later."""
    limit = hook_threads.THREAD_LIMIT
    calls = [asyncio.create_task(hook_threads.call(gate.pass_through, n)) for n in range(limit)]
    await until(lambda: gate.entries == limit, what="every thread is busy")
    late = asyncio.create_task(hook_threads.call(gate.pass_through))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.wait([late])
    gate.open.set()
    await asyncio.gather(*calls)
    assert gate.entries == limit


async def give_up(calls: Sequence[asyncio.Task[Any]]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


async def test_calls_given_up_take_no_threads_from_others() -> None:
    """A kubelet repeats a call that hung: those left behind stop neither others nor those waiting.

    Or a plugin would stop scanning once a hook had hung as often as there are threads.
    """
    hooks = [type(name, (Gate,), {})() for name in ("Hook1", "Hook2", "Hook3", "Hook4")]
    limit = hook_threads.THREAD_LIMIT // len(hooks)
    calls = [
        asyncio.create_task(hook_threads.call(each.pass_through))
        for each in hooks
        for _ in range(limit)
    ]
    await until(lambda: all(each.entries == limit for each in hooks), what="every thread hangs")
    waiting = asyncio.create_task(hook_threads.call(str, 1))
    await asyncio.sleep(0)
    await give_up(calls)
    assert await asyncio.wait_for(waiting, 5) == "1"
    assert await asyncio.wait_for(hook_threads.call(str, 2), 5) == "2"
    for each in hooks:
        each.open.set()
    assert await hook_threads.settle(10) == ()
    await until(lambda: hook_thread_count() == 0, what="all hook threads have ended")


async def test_a_hook_that_hangs_again_and_again_is_refused(gate: Gate) -> None:
    """Threads that hang must not pile up: so many of one method and no more, until one ends."""
    for count in range(1, hook_threads.HANGING_LIMIT + 1):
        call = asyncio.create_task(hook_threads.call(gate.pass_through))
        await until(lambda n=count: gate.entries == n)  # type: ignore[misc]
        await give_up([call])
    text = rf"Gate.pass_through hangs in {hook_threads.HANGING_LIMIT} calls"
    with pytest.raises(HookHangs, match=text):
        await hook_threads.call(gate.pass_through)
    assert await hook_threads.call(str, 1) == "1"
    gate.open.set()
    assert await hook_threads.settle(10) == ()
    assert await hook_threads.call(gate.pass_through, "again") == "again"


async def test_a_call_given_up_as_it_ends_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled when its thread is done and has not told the loop yet: nothing is kept of it."""
    finish, is_over, may_tell = hook_threads._Job.finish, threading.Event(), threading.Event()

    def tell_late(job: hook_threads._Job) -> None:
        is_over.set()
        assert may_tell.wait(10)
        finish(job)

    monkeypatch.setattr(hook_threads._Job, "finish", tell_late)
    call = asyncio.create_task(hook_threads.call(Gate))
    await until(is_over.is_set)
    await give_up([call])
    may_tell.set()
    await until(lambda: hook_thread_count() == 0, what="the thread has ended")
    assert hook_threads._pool._abandoned == set()
    assert hook_threads._pool._running == 0


async def test_threads_end_with_their_calls() -> None:
    """Nothing is left running when nothing is to be done."""
    await asyncio.gather(*(hook_threads.call(str, n) for n in range(20)))
    await until(lambda: hook_thread_count() == 0, what="all hook threads have ended")


async def test_cancelling_does_not_wait(gate: Gate) -> None:
    """A cancelled call is over at once, even though its thread sleeps."""
    call = asyncio.create_task(hook_threads.call(gate.pass_through))
    await until(lambda: gate.entries == 1, what="the hook sleeps")
    call.cancel()
    await asyncio.wait([call], timeout=10)
    assert call.cancelled()


@pytest.mark.parametrize("answer", ["late", ValueError("late")])
async def test_the_late_answer_of_a_cancelled_call_is_dropped(
    gate: Gate, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody hears it, and asyncio has nothing to say about futures never retrieved."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    call = asyncio.create_task(hook_threads.call(gate.pass_through, answer))
    await until(lambda: gate.entries == 1, what="the hook sleeps")
    await give_up([call])
    gate.open.set()
    assert await hook_threads.settle(10) == ()
    del call
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_settle_logs_the_calls_that_still_run(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """A cancelled call that sleeps on is waited for so long and no longer, and logged."""
    call = asyncio.create_task(hook_threads.call(gate.pass_through))
    await until(lambda: gate.entries == 1, what="the hook sleeps")
    await give_up([call])
    started = asyncio.get_running_loop().time()
    assert await hook_threads.settle(0.05) == ("Gate.pass_through",)
    assert asyncio.get_running_loop().time() - started < 10
    assert "Gate.pass_through is still running after 0.05 s" in caplog.text


async def test_settling_does_not_wait_for_calls_in_use(gate: Gate) -> None:
    """A call that somebody awaits is not a leftover."""
    call = asyncio.create_task(hook_threads.call(gate.pass_through, "answer"))
    await until(lambda: gate.entries == 1, what="the hook sleeps")
    assert await asyncio.wait_for(hook_threads.settle(60), 5) == ()
    gate.open.set()
    assert await call == "answer"


async def test_settling_is_for_the_own_loop(gate: Gate) -> None:
    """What another loop of this process left running is not waited for here."""
    call = asyncio.create_task(hook_threads.call(gate.pass_through))
    await until(lambda: gate.entries == 1, what="the hook sleeps")
    await give_up([call])
    assert await asyncio.to_thread(asyncio.run, hook_threads.settle(60)) == ()
    assert await hook_threads.settle(0.01) == ("Gate.pass_through",)


def test_a_thread_that_outlives_its_loop_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """An answer that comes after the loop was closed disturbs nobody."""
    gate = Gate()

    async def leave_it_behind() -> None:
        call = asyncio.create_task(hook_threads.call(gate.pass_through))
        await until(lambda: gate.entries == 1, what="the hook sleeps")
        call.cancel()

    asyncio.run(leave_it_behind())
    threads = [thread for thread in threading.enumerate() if "pass_through" in thread.name]
    gate.open.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_sleeping_hook_does_not_delay_the_exit() -> None:
    """A process ends while its hook sleeps for an hour."""
    program = """
import asyncio, time
from kubedevices.plugin import hook_threads

async def main():
    call = asyncio.create_task(hook_threads.call(time.sleep, 3600))
    await asyncio.sleep(0.05)
    call.cancel()
    await asyncio.wait([call])
    print(await hook_threads.settle(0.1))

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "('sleep',)\n")
    assert done.stderr == "sleep is still running after 0.1 s: not waiting for it\n"


async def test_calls_are_named_after_the_authors_class() -> None:
    """A method inherited from one of our classes bears the name of the author's class."""

    class Widgets(Gate):
        def leave(self) -> None:
            raise SystemExit

    class BlueWidgets(Widgets):
        pass

    with pytest.raises(RuntimeError, match=r"^BlueWidgets\.leave raised SystemExit\(\)"):
        await hook_threads.call(BlueWidgets().leave)


async def test_a_thread_that_cannot_be_started_fails_its_call_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the process's thread limit a call fails and later ones work."""
    with monkeypatch.context() as patched:

        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(hook_threads.THREAD_LIMIT):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await hook_threads.call(str)
    assert await hook_threads.call(str, 1) == "1"
