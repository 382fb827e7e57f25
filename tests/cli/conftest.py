"""A node to ask, and logging as it was: every command configures it."""

import logging
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


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node with four devices."""
    with node_thread(short_dir / "p") as running:
        running.call(running.plugin.send(healthy("a", "b", "c", "d")))
        running.call(running.plugin.register())
        running.call(running.manager.wait_for(RESOURCE, allocatable=4))
        yield running
