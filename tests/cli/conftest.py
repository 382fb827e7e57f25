"""Every command configures logging: put it back afterwards."""

import logging
from collections.abc import Iterator

import pytest

_LOGGERS = ("", "asyncio", "hpack", "h2")


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
