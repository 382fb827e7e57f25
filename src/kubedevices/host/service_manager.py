"""Reports our state to the service manager, by the protocol of systemd's sd_notify(3).

That is a datagram to the socket in $NOTIFY_SOCKET; a name that begins with @ is an abstract socket.
Without this variable nothing is sent.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable

READY, STOPPING = "READY=1", "STOPPING=1"

_VARIABLE = "NOTIFY_SOCKET"
_SEND_TIMEOUT = 0.5  # seconds
_POLL_INTERVAL = 0.01  # seconds

_log = logging.getLogger(__name__)


def is_listening() -> bool:
    """Whether a service manager started us and waits for reports."""
    return bool(os.environ.get(_VARIABLE))


def notify(state: str) -> None:
    """Send `state` to the service manager, lines such as `READY=1`. Logs a failure.

    Waits at most half a second if the queue of the socket is full.
    """
    name = os.environ.get(_VARIABLE, "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            # A service manager that hangs must not stop us from serving.
            sender.settimeout(_SEND_TIMEOUT)
            sender.sendto(state.encode(), address)
    except OSError as error:
        _log.warning("cannot tell the service manager at %s %s: %s", name, state, error)


@contextlib.asynccontextmanager
async def announced(has_started: Callable[[], bool]) -> AsyncIterator[None]:
    """Report to the service manager, if any, when we have started and when we stop.

    Calls `has_started` every 10 ms until it returns True, because no event reports this.
    """

    async def announce() -> None:
        while not has_started():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_INTERVAL)
        notify(READY)

    if not is_listening():
        yield
        return
    task = asyncio.create_task(announce(), name="service manager")
    try:
        yield
    finally:
        task.cancel()
        notify(STOPPING)
