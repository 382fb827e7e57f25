"""`kubedevices.host.stopping`: the signals that stop a program that serves."""

import signal
from collections.abc import Iterator

import pytest

from kubedevices.host.stopping import stop_signals


@pytest.fixture(autouse=True)
def _sigint_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_and_sigterm_stop_a_program() -> None:
    """Python's own handler of SIGINT, or none, counts as not ignored."""
    for handler in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, handler)
        assert set(stop_signals()) == {signal.SIGINT, signal.SIGTERM}


def test_sigint_stays_ignored_and_sigterm_does_not() -> None:
    """Nothing else than SIGTERM stops a container or a unit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert stop_signals() == (signal.SIGTERM,)
