"""Connects to a Unix socket, for `grpc_channel`."""

import asyncio
import errno
import os
import socket
from pathlib import Path

from kubedevices.errors import DialError, SocketPathTooLong
from kubedevices.values.socket_paths import check_socket_path
from kubedevices.wire.unix_socket import FileIdentity

# Seconds between two tries while the queue of the server's listening socket is full.
CONNECT_RETRY = 0.005


async def connect(path: Path, file: FileIdentity | None) -> socket.socket:
    """Connect; wait while the server's queue is full. asyncio would take this for connected.

    With `file` only to this file. Raises `DialError`.
    """
    try:
        check_socket_path(path)
    except SocketPathTooLong as error:
        raise DialError(str(path), str(error)) from error
    if file is not None and not file.is_socket:
        raise DialError(str(path), "it is not a socket")
    place = str(path) if file is None else file.fd_path
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        endpoint.setblocking(False)
        # No event tells that the queue of a Unix socket has a free place: poll.
        while (refusal := endpoint.connect_ex(place)) == errno.EAGAIN:  # noqa: ASYNC110
            await asyncio.sleep(CONNECT_RETRY)
        if refusal:
            raise DialError(str(path), os.strerror(refusal).lower(), refusal)
    except BaseException:
        endpoint.close()
        raise
    return endpoint
