"""A node to ask; after each test, the modules are as before the test."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_plugin import healthy
from tests.node_thread import NodeThread, node_thread

_CHECKOUT = str(Path(__file__).parents[2])


@pytest.fixture(autouse=True)
def modules_as_before() -> Iterator[None]:
    """Forget the scanners of a test: the next test has other scanners in a file of the same name.

    The checkout itself may be in the directory for temporary files: its modules stay.
    """
    path = [*sys.path]
    yield
    sys.path[:] = path
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None) or ""
        if file.startswith(f"{tempfile.gettempdir()}/") and not file.startswith(f"{_CHECKOUT}/"):
            del sys.modules[name]


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node with four devices."""
    with node_thread(short_dir / "p") as running:
        running.serve(healthy("a", "b", "c", "d"))
        yield running
