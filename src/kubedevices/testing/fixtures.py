"""The pytest plugin: its fixtures. Nothing but tests imports this module."""

from typing import TYPE_CHECKING, Unpack

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kubedevices.plugin.options import RunnerOptions
    from kubedevices.testing import DriverCheck
    from kubedevices.testing.workbench import Bench
    from kubedevices.testing.workbench.plugins import ScannerPlugin

__tracebackhide__ = True  # a failing test shows its own lines, not ours


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


@pytest.fixture
def dra_check() -> "Callable[[DriverCheck], Sequence[object]]":
    """Return `check_driver`: the test fails with the report if the driver breaks a rule."""
    from kubedevices.testing import check_driver  # noqa: PLC0415

    return check_driver
