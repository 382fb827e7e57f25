"""The pytest plugin for tests of device plugins: `bench`, `replay`, `StubPlugin`, `conformance`.

pytest loads this package in every session if kubedevices is installed. So the package imports the
other modules only when a test uses them. It needs neither pytest-asyncio nor any setting.

stub_plugin        `StubPlugin`, a device plugin whose answers a test sets
workbench          `Bench`, a whole node in a temporary directory
kubelet            a kubelet of the device plugin API that can misbehave on purpose
dra_kubelet        the kubelet's side of DRA
api_server         an API server in the process of a test, with faults

`conformance`, all checks of `kubedevices check` on a scanner, is in `check.pytest_check`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubedevices.check.pytest_check import NotConformant, conformance
    from kubedevices.plugin.options import RunnerOptions
    from kubedevices.testing.stub_plugin import StubPlugin
    from kubedevices.testing.workbench import Bench
    from kubedevices.testing.workbench.plugins import ScannerPlugin

__tracebackhide__ = True  # a failing test shows its own lines, not ours

__all__ = ["Bench", "NotConformant", "Replayer", "StubPlugin", "bench", "conformance", "replay"]

_HOME_OF = {
    "Bench": "kubedevices.testing.workbench",
    "NotConformant": "kubedevices.check.pytest_check",
    "StubPlugin": "kubedevices.testing.stub_plugin",
    "conformance": "kubedevices.check.pytest_check",
}


@pytest.fixture
def bench() -> "Iterator[Bench]":
    """Return a running node in its own directory; after the test, the node and its plugins end.

    The test fails at its end if a plugin has failed and the test did not notice.
    """
    from kubedevices.testing.workbench import Bench  # noqa: PLC0415

    with Bench() as node:
        yield node


class Replayer:
    """The value of the fixture `replay`: call it with the files of a record."""

    def __init__(self, bench: "Bench") -> None:
        self._bench = bench

    def __call__(
        self,
        *files: "Path | str",
        speed: float = 1.0,
        domain: str = "",
        **options: "Unpack[RunnerOptions]",
    ) -> "ScannerPlugin":
        """Serve the record on the bench, as `kubedevices replay` does; `wait_for` its devices.

        `bench.advance` also moves the time of the record. Raises `CannotRead` and `UsageError`.
        """
        from kubedevices.proxy.replay import OPTIONS, Replay  # noqa: PLC0415

        scanner = Replay(*files, speed=speed, domain=domain)
        served: RunnerOptions = {**OPTIONS, **options}
        return self._bench.start(scanner, domain=scanner.domain, **served)


@pytest.fixture
def replay(bench: "Bench") -> Replayer:
    """Return a function that serves the files of a record as a plugin of `bench`."""
    return Replayer(bench)


# No __dir__: pytest reads every name in __dir__, so it would import all modules.
def __getattr__(name: str) -> Any:
    """Import a public name from its module at the first use (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
