"""Plugins of this folder that start by a fork, for tests that start many of them."""

from collections.abc import Callable, Iterator
from socket import socket

import pytest

from kubedevices.conformance.processes import Keeper
from tests.conformance.preloaded_keeper import Forked, forking_keepers


@pytest.fixture(scope="session")
def fork_keeper() -> Iterator[Callable[[socket], Forked]]:
    """Give what forks a keeper that has the plugins loaded."""
    with forking_keepers() as fork:
        yield fork


@pytest.fixture
def preloaded(fork_keeper: Callable[[socket], Forked], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checks of a test fork their keepers."""
    monkeypatch.setattr(Keeper, "start_keeper", staticmethod(fork_keeper))
