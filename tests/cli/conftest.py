"""A node to ask; logging and modules as they were: commands configure the one and load others."""

import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_plugin import RESOURCE, healthy
from tests.node_thread import NodeThread, node_thread

_LOGGERS = ("", "asyncio")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Restore handlers and levels, so that no handler writes to a stream that pytest closed."""
    root = logging.getLogger()
    handlers = [*root.handlers]
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    yield
    for handler in [*root.handlers]:
        if handler not in handlers:
            root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def modules_as_before() -> Iterator[None]:
    """Forget the scanners of a test: the next one has others in a file of the same name."""
    path = [*sys.path]
    yield
    sys.path[:] = path
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(f"{tempfile.gettempdir()}/"):
            del sys.modules[name]


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node with four devices."""
    with node_thread(short_dir / "p") as running:
        running.call(running.plugin.send(healthy("a", "b", "c", "d")))
        running.call(running.plugin.register())
        running.call(running.manager.wait_for(RESOURCE, allocatable=4))
        yield running
