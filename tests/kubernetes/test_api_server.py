"""The recorded answers to the corpus of requests are those of a real API server."""

import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import CLUSTER_TEST, Cluster
from tests.testing.api_server import corpus
from tests.testing.api_server.test_server import ANSWERS

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(300)]


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Path]:
    """Give a socket on which the API server answers to the admin."""
    path = cluster.directory / "corpus.sock"
    words = cluster.words("kubectl", "proxy", f"--unix-socket={path}", "--reject-methods=^$")
    process = subprocess.Popen(words)
    try:
        cluster.wait("the socket of kubectl proxy", path.exists)
        yield path
    finally:
        process.terminate()
        process.wait(30)


def test_the_recorded_answers_are_those_of_a_real_server(proxy: Path) -> None:
    """So the stand-in, which gives them, is judged by the real one."""

    def call(*request: Any) -> tuple[int, Any]:
        return corpus.ask(UnixConnection(proxy), *request)

    found = json.loads(json.dumps(corpus.run(call)))
    right = json.loads(ANSWERS.read_text())
    versions = found.pop("version"), right.pop("version")
    assert all(each[0] == 200 for each in versions)
    for step, answer in found.items():
        assert answer == right[step], step
