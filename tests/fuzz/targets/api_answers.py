"""Answers of an API server, or of something before it: bytes of HTTP, and objects of any shape."""

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from kubedevices.dra import claims
from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.kubeconfig import ApiAccess
from kubedevices.errors import KubedevicesError
from kubedevices.values.allocation import ClaimReference
from tests.fuzz.target import Target
from tests.fuzz.targets.files import JSON

DRIVER = "gpu.example.com"
CLAIM = ClaimReference("default", "uid", "claim")
_OBJECT = {
    "metadata": {"uid": "uid", "name": "claim", "resourceVersion": "1", "generation": 1},
    "spec": {"driver": DRIVER, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
    "status": {"allocation": {"devices": {
        "results": [{"request": "r", "driver": DRIVER, "pool": "p", "device": "d"}],
        "config": [{"source": "FromClass", "requests": ["r"],
                    "opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]}}},
    "items": [{"metadata": {"name": "s"}}],
}  # fmt: skip


class _Writer:
    """The writing side of a connection to nobody."""

    transport = mock.Mock()

    def write(self, _data: bytes) -> None:
        """Throw the request away."""

    async def drain(self) -> None:
        """Return at once."""


def answered(call: Coroutine[Any, Any, Any], answer: bytes) -> Any:
    """Run a call of the client; the server says `answer` and closes the connection.

    Returns None for a refusal.
    """

    async def connect(*_where: Any, **_how: Any) -> tuple[asyncio.StreamReader, _Writer]:
        reader = asyncio.StreamReader()
        reader.feed_data(answer)
        reader.feed_eof()
        return reader, _Writer()

    async def ask() -> Any:
        with mock.patch("asyncio.open_connection", connect):
            return await call

    with contextlib.suppress(KubedevicesError):
        return asyncio.run(ask())


def check_http(data: bytes) -> None:
    """Whatever comes on the connection, the calls return something or raise an error of ours."""
    client = ApiClient(ApiAccess("http://localhost:1"))
    answered(client.get_claim(CLAIM), data)
    answered(client.list_slices(DRIVER, "node"), data)
    answered(_watch(client), data)


async def _watch(client: ApiClient) -> None:
    async for _event in client.watch_slices(DRIVER, "node", "1"):
        pass


def check_object(data: bytes) -> None:
    """A claim of any shape gives its devices, or a refusal."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    client = ApiClient(ApiAccess("http://localhost:1"))
    answered(client.list_slices(DRIVER, "node"), head + data)
    claim = answered(client.get_claim(CLAIM), head + data)
    if claim is not None:
        with contextlib.suppress(KubedevicesError):
            claims.results_of(claim, CLAIM, DRIVER)
            claims.configuration_of(claim, DRIVER)


_BODY = json.dumps(_OBJECT).encode()
_HTTP = (
    f"HTTP/1.1 200 OK\r\nContent-Length: {len(_BODY)}\r\n\r\n".encode() + _BODY,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n1\r\n\n\r\n0\r\n\r\n",
    b'HTTP/1.1 409 Conflict\r\nRetry-After: 3\r\n\r\n{"reason": "Conflict", "message": "m"}',
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
)
_TOKENS = (*JSON, b"\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"Retry-After: inf\r\n", b"\n", b"x" * 5000)
_values = st.recursive(
    st.sampled_from([None, True, 0, -1, 1.5, "", "r", "uid", DRIVER, "\ud800"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["metadata", "uid", "items", "results"]), inner, max_size=2
        ),
    ),
    max_leaves=4,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, each in inner for place in _places(each, (*path, key)))]


def _with(path: tuple[Any, ...], value: Any) -> bytes:
    if not path:
        return json.dumps(value).encode()
    made = json.loads(_BODY)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(made).encode()


_objects = st.builds(_with, st.sampled_from(_places(_OBJECT)), _values)
TARGETS = [
    Target("api-http", check_http, _HTTP, _TOKENS),
    Target("api-object", check_object, (_BODY,), JSON, _objects),
]
