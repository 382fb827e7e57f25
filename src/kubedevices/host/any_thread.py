"""Calls a function on an event loop, from any thread or signal handler."""

import asyncio
import contextlib
from collections.abc import Callable


def call_on(
    loop: asyncio.AbstractEventLoop | None, function: Callable[..., object], *args: object
) -> None:
    """Let `loop` call `function` soon; do nothing before its start (None) and after its end."""
    if loop is not None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(function, *args)
