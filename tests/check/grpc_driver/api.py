"""Requests to the API server: plain HTTP with a token, as the kubeconfig file says."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Object = dict[str, Any]
Abortable = Callable[[Callable[[], None]], object]
"""Takes a function that ends the request when nobody waits for it any more."""

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_LIMIT = 15.0
_WATCH = 50


class ApiError(Exception):
    """The server refused, or could not be reached (`status` 0); `retry_after` in seconds."""

    def __init__(self, status: int, message: str, retry_after: float = 0) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class Api:
    """A connection for each request: nothing to repair when the server was away."""

    def __init__(self, kubeconfig: Path, driver: str, node: str) -> None:
        config = json.loads(kubeconfig.read_text())
        self._address = urlsplit(config["clusters"][0]["cluster"]["server"]).netloc
        self.token = config["users"][0]["user"].get("token", "")
        self.selector = f"spec.driver={driver},spec.nodeName={node}"

    def node(self, name: str) -> Object:
        """Return the Node."""
        return self.call("GET", f"/api/v1/nodes/{name}")

    def claim(self, namespace: str, name: str, limit: float, on_abort: Abortable) -> Object:
        """Return a ResourceClaim."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
        return self.call("GET", path, limit=limit, on_abort=on_abort)

    def slices(self) -> Object:
        """Return the list of own slices."""
        return self.call("GET", SLICES, query={"fieldSelector": self.selector})

    def call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        limit: float = _LIMIT,
        on_abort: Abortable | None = None,
    ) -> Object:
        """Return the answer; raises `ApiError`."""
        connection = self._open(limit)
        if on_abort is not None:
            on_abort(lambda: _hang_up(connection))
        try:
            with self._send(connection, method, path, body, query) as response:
                answer: Object = json.loads(response.read())
                return answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unreachable(error) from error
        finally:
            connection.close()

    def watch(self, version: str) -> Iterator[Object]:
        """Yield the events of own slices since a version; raises `ApiError`, 410 if it is old."""
        query = {
            "watch": "true",
            "fieldSelector": self.selector,
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH),
        }
        connection = self._open(_WATCH + _LIMIT)
        try:
            with self._send(connection, "GET", SLICES, None, query) as response:
                while line := response.readline():
                    event: Object = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(event["object"]["code"], event["object"]["message"])
                    yield event
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unreachable(error) from error
        finally:
            connection.close()

    def _open(self, limit: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, timeout=limit)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, str] | None,
    ) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        target = f"{path}?{urlencode(query)}" if query else path
        connection.request(method, target, text, headers)
        response = connection.getresponse()
        if response.status < 400:
            return response
        with response:
            problem = json.loads(response.read())
        after = float(response.getheader("Retry-After") or 0)
        raise ApiError(response.status, problem.get("message", response.reason), after)


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """End a request from another thread."""
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _unreachable(error: Exception) -> ApiError:
    return ApiError(0, f"the API server cannot be reached: {error or type(error).__name__}")
