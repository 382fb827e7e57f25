"""SIGTERM, SIGINT and SIGHUP for a plugin process: the first stops gently, the second at once.

Handlers of the `signal` module and not of the event loop, because an author's `async` method may
block the loop, and a process that ignores SIGTERM for that reason gets killed with its sockets left
behind. Used by `runner.run`; never in a program that only embeds a plugin.
"""

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from kubedevices.unblocked_output import flush_output

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LAST_WORDS = 0.2
_CALLS_SHOWN = 3

_log = logging.getLogger(__name__)


def _place_of_main_thread() -> str:
    """Return `cards.py:12 in allocate`, the innermost calls first."""
    frames = sys._current_frames()  # noqa: SLF001 - documented, in spite of its name
    frame = frames.get(threading.main_thread().ident or 0)
    calls = traceback.extract_stack(frame, limit=_CALLS_SHOWN)
    return ", called by ".join(
        f"{Path(each.filename).name}:{each.lineno} in {each.name}" for each in reversed(calls)
    )


class StopSignals:
    """While the context lasts, the first signal calls `stop`; `grace` seconds later, or at the
    second signal, `clean_up` is called and the process ends, whatever it is doing.
    """

    def __init__(
        self, stop: Callable[[], None], clean_up: Callable[[], None], grace: float
    ) -> None:
        self._stop, self._clean_up, self._grace = stop, clean_up, grace
        self._before: dict[signal.Signals, Any] = {}
        self._watchdog: threading.Timer | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = [*_SIGNALS]
            if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else nohup, or a reload
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
        # A thread of its own, because what has to be watched is the event loop in the main thread.
        self._watchdog = threading.Timer(self._grace, self._give_up)
        self._watchdog.daemon = True
        self._watchdog.name = "stop watchdog"
        self._watchdog.start()
        self._stop()

    def _give_up(self) -> None:
        teller = threading.Thread(target=self._tell, daemon=True)
        teller.start()
        teller.join(_LAST_WORDS)  # what blocks the loop may be the log, such as a full pipe
        self._exit(1)

    def _tell(self) -> None:
        _log.error(
            "not stopped within %g s: something blocks the event loop, exiting (it is at %s)",
            self._grace, _place_of_main_thread(),
        )  # fmt: skip

    def _exit(self, code: int) -> None:
        try:
            self._clean_up()
        finally:
            flush_output(_LAST_WORDS)
            os._exit(code)
