"""Tells the service manager how far we are, by the protocol of systemd's sd_notify(3).

A datagram to the socket that $NOTIFY_SOCKET names; a name that begins with @ is an abstract one.
Where nobody set it, nobody is told.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable

READY, STOPPING = "READY=1", "STOPPING=1"

_VARIABLE = "NOTIFY_SOCKET"
_SEND_TIMEOUT = 0.5
_LOOK_AGAIN = 0.01

_log = logging.getLogger(__name__)


def is_listening() -> bool:
    """Whether a service manager started us and wants to be told."""
    return bool(os.environ.get(_VARIABLE))


def notify(state: str) -> None:
    """Tell the service manager `state`, lines such as `READY=1`; a manager that is gone is logged.

    Waits half a second at most, should its queue be full.
    """
    name = os.environ.get(_VARIABLE, "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            # A manager that hangs must not keep us from serving.
            sender.settimeout(_SEND_TIMEOUT)
            sender.sendto(state.encode(), address)
    except OSError as error:
        _log.warning("cannot tell the service manager at %s %s: %s", name, state, error)


@contextlib.asynccontextmanager
async def announced(has_started: Callable[[], bool]) -> AsyncIterator[None]:
    """Tell the service manager, if there is one, when we have started, and that we stop.

    `has_started` is asked every 10 ms until it says so: what a socket's file says has no event.
    """

    async def announce() -> None:
        while not has_started():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN)
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
