"""kubedevices.node.arrival.registry_state."""

from pathlib import Path

import pytest

from kubedevices.node.arrival.registry_state import RegisteredPlugin, RegistryState

PATH = Path("/registry/gpu.sock")
PLUGIN = RegisteredPlugin("example.com/gpu", PATH)


def registered() -> RegistryState:
    state = RegistryState()
    assert state.plan({PATH: 1}, now=0.0).register == (PATH,)
    state.registered(PATH, PLUGIN, 1)
    return state


def test_a_socket_is_registered_once() -> None:
    """During and after its registration there is no further work for this socket."""
    state = RegistryState()
    assert state.plan({PATH: 1}, now=0.0) == ((), (PATH,))
    assert state.plan({PATH: 1}, now=1.0) == ((), ())
    state.registered(PATH, PLUGIN, 1)
    assert state.plan({PATH: 1}, now=2.0) == ((), ())
    assert state.counts() == {PATH: (1, 1)}


def test_a_deleted_socket_is_unregistered_and_forgotten() -> None:
    """`unregistered` returns the plugin to disconnect. The path is not stored any more."""
    state = registered()
    assert state.plan({}, now=1.0) == ((PATH,), ())
    assert state.plan({}, now=1.5) == ((), ())
    assert state.unregistered(PATH) == PLUGIN
    state.plan({}, now=2.0)
    assert state.counts() == {}


def test_a_re_created_socket_is_first_unregistered_and_then_registered() -> None:
    """Another file at the same path is another plugin."""
    state = registered()
    assert state.plan({PATH: 2}, now=1.0) == ((PATH,), ())
    state.unregistered(PATH)
    assert state.plan({PATH: 2}, now=2.0) == ((), (PATH,))


def test_the_pauses_after_failures_double() -> None:
    """Half a second, then twice as long each time, at most 122 seconds."""
    state, now, pauses = RegistryState(), 0.0, []
    for _ in range(10):
        assert state.plan({PATH: 1}, now).register == (PATH,)
        pause = state.failed(PATH, now)
        pauses.append(pause)
        assert state.plan({PATH: 1}, now + pause - 0.01) == ((), ())
        now += pause
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]


def test_a_success_resets_the_pause() -> None:
    """The first pause after a registration is half a second again."""
    state = RegistryState()
    for now in (0.0, 1.0):
        state.plan({PATH: 1}, now)
        state.failed(PATH, now)
    state.plan({PATH: 1}, 9.0)
    state.registered(PATH, PLUGIN, 1)
    state.plan({}, 10.0)
    state.unregistered(PATH)
    state.plan({PATH: 2}, 11.0)
    assert state.failed(PATH, 11.0) == pytest.approx(0.5)


def test_the_counts_are_the_two_gauges_of_a_kubelet() -> None:
    """Desired and actual plugins for each path."""
    state = RegistryState()
    state.plan({PATH: 1}, 0.0)
    assert state.counts() == {PATH: (1, 0)}
    state.registered(PATH, PLUGIN, 1)
    assert state.counts() == {PATH: (1, 1)}
    state.plan({}, 1.0)
    assert state.counts() == {PATH: (0, 1)}
