"""Plugins of this folder that start by a fork, for tests that start many of them."""

from collections.abc import Callable, Iterator
from socket import socket

import pytest

from kubedevices.check.processes import Supervisor
from tests.check.preloaded_supervisor import Forked, forking_supervisors


@pytest.fixture(scope="session")
def fork_supervisor() -> Iterator[Callable[[socket], Forked]]:
    """Give what forks a supervisor that has the plugins loaded."""
    with forking_supervisors() as fork:
        yield fork


@pytest.fixture
def preloaded(fork_supervisor: Callable[[socket], Forked], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checks of a test fork their supervisors."""
    monkeypatch.setattr(Supervisor, "start_supervisor", staticmethod(fork_supervisor))
