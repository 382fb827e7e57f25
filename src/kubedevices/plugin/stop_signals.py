"""Ends a plugin process on SIGTERM, SIGINT and SIGHUP: orderly at the first, at once at the second.

The handlers belong to the `signal` module, not to the event loop, because an `async` method of the
author may block the loop. A process that ignores SIGTERM for this reason gets killed, and its
sockets stay. SIGINT and SIGHUP stay ignored if the parent ignores them, as `nohup` does.
`run_until_signal` uses this; a program that only embeds a plugin does not.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, Self, TypeAlias

from kubedevices.host import heap, service_manager
from kubedevices.host.stopping import stop_signals
from kubedevices.host.unblocked_output import flush_output
from kubedevices.plugin.timing import Timing

_OUTPUT_WAIT = 0.2
"""Seconds that the last log lines may take."""

_CALLS_SHOWN = 3

_log = logging.getLogger(__name__)


def _place_of_main_thread() -> str:
    """Return where the main thread is, such as `cards.py:12 in allocate`; innermost calls first."""
    frames = sys._current_frames()  # noqa: SLF001 - it is documented
    frame = frames.get(threading.main_thread().ident or 0)
    calls = traceback.extract_stack(frame, limit=_CALLS_SHOWN)
    return ", called by ".join(
        f"{Path(each.filename).name}:{each.lineno} in {each.name}" for each in reversed(calls)
    )


class StopSignals:
    """While the context lasts, the first signal calls `stop`.

    If the context has not ended `grace` seconds later, or at the second signal, `clean_up` is
    called and the process exits.
    """

    def __init__(
        self, stop: Callable[[], None], clean_up: Callable[[], None], grace: float
    ) -> None:
        self._stop, self._clean_up, self._grace = stop, clean_up, grace
        self._before: dict[signal.Signals, Any] = {}
        self._watchdog: threading.Timer | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = [*stop_signals()]
            if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else nohup, or it means reload
                numbers.append(signal.SIGHUP)
            self._before = {number: signal.signal(number, self._take) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self._watchdog is not None:
            self._exit(128 + number)
        # A thread, because it watches the event loop of the main thread, which may be blocked.
        self._watchdog = threading.Timer(self._grace, self._give_up)
        self._watchdog.daemon = True
        self._watchdog.name = "stop watchdog"
        self._watchdog.start()
        self._stop()

    def _give_up(self) -> None:
        writer = threading.Thread(target=self._log_block, daemon=True)
        writer.start()
        writer.join(_OUTPUT_WAIT)  # the log itself may block, for example at a full pipe
        self._exit(1)

    def _log_block(self) -> None:
        _log.error(
            "not stopped within %g s: something blocks the event loop, exiting (it is at %s)",
            self._grace, _place_of_main_thread(),
        )  # fmt: skip

    def _exit(self, code: int) -> None:
        try:
            self._clean_up()
        finally:
            flush_output(_OUTPUT_WAIT)
            os._exit(code)


Beside: TypeAlias = Callable[[Any], contextlib.AbstractAsyncContextManager[object]]
"""Gets the runner and returns a context; the runner runs inside the context."""


class _Settings(Protocol):
    @property
    def timing(self) -> Timing: ...


class Runner(Protocol):
    """Serves the devices of a scanner, or of other plugins."""

    @property
    def settings(self) -> _Settings:
        """The options of the runner."""

    @property
    def has_started(self) -> bool:
        """Whether the runner serves every device that the scanner found."""

    async def run(self) -> None:
        """Serve until `stop`, the end of the scanner, or an error. Can be called once."""

    def stop(self) -> None:
        """End `run`; may be called from any thread."""

    def unlink_sockets(self) -> None:
        """Remove the socket files at once."""


def run_until_signal(runner: Runner, beside: Beside | None = None) -> None:
    """Run `runner` inside the context of `beside` until it ends, or until SIGTERM or SIGINT.

    Raises `KubedevicesError`.
    """
    heap.give_large_blocks_back()

    async def run_beside() -> None:
        started = service_manager.announced(lambda: runner.has_started)
        async with beside(runner) if beside else contextlib.nullcontext(), started:
            await runner.run()

    with StopSignals(runner.stop, runner.unlink_sockets, runner.settings.timing.exit_grace):
        asyncio.run(run_beside())
