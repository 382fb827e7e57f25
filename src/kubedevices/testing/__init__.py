"""The pytest plugin: fixture `bench`, `StubPlugin` and `conformance` for tests of device plugins.

Loaded by pytest in every session where kubedevices is installed, so nothing is imported here that
is not used; neither pytest-asyncio nor any setting is needed.

stub_plugin        `StubPlugin`, a device plugin that does what a test says
conformance_check  `conformance`, all checks of `kubedevices check` on a scanner
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubedevices.bench import Bench
    from kubedevices.testing.conformance_check import NotConformant, conformance
    from kubedevices.testing.stub_plugin import StubPlugin

__tracebackhide__ = True  # a failing test shows its own lines, not ours

__all__ = ["Bench", "NotConformant", "StubPlugin", "bench", "conformance"]

_HOME_OF = {
    "Bench": "kubedevices.bench",
    "NotConformant": "kubedevices.testing.conformance_check",
    "StubPlugin": "kubedevices.testing.stub_plugin",
    "conformance": "kubedevices.testing.conformance_check",
}


@pytest.fixture
def bench() -> "Iterator[Bench]":
    """Give a running node in a directory of its own; it ends with everything started on it.

    The test fails in the end if a plugin has failed and nobody looked.
    """
    from kubedevices.bench import Bench  # noqa: PLC0415

    with Bench() as node:
        yield node


# No __dir__: pytest looks at every name in it, which would load them all.
def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first asked for (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
