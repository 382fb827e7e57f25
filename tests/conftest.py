"""Fixtures for every test, and what each run of pytest does."""

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings

from tests import forking, host_needs, known_world, worker_groups
from tests.command_line import CommandLine
from tests.image_host import ImageHost, build_image, image_host

SAYS_SLOW = re.compile("mark.slow|CLUSTER_TEST")
"""What a file with slow tests contains."""

known_world.enter()
known_world.watch_kubelet_directories()

# The time of an example depends on the machine more than on the code.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# An error here is reported as that of the test that forks.
os.register_at_fork(before=forking.may_fork)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Give a directory with a short path, because a Unix socket path has at most 107 bytes."""
    parent = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    parent.chmod(0o755)  # some tests read the directory as another user
    directory = parent / "d"  # a node puts its state directory beside it: the parent is removed too
    directory.mkdir()
    yield directory
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Give the command line of kubedevices."""
    return CommandLine(capsys)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo the changes of `cli.main` to logging: handlers, and the levels of all loggers.

    Otherwise log lines would go to the captured stderr of a test that is over, and the next test
    would not see the warnings of a logger that a command had quieted.
    """
    root = logging.getLogger()
    handlers, levels = [*root.handlers], _levels()
    yield
    for handler in [*root.handlers]:
        if handler not in handlers:
            root.removeHandler(handler)
    for logger, level in _levels().items():
        # Each call of setLevel forgets what all loggers know: a millisecond and more for a test.
        if level != levels.get(logger, logging.NOTSET):
            logger.setLevel(levels.get(logger, logging.NOTSET))


def _levels() -> dict[logging.Logger, int]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    return {each: each.level for each in loggers if isinstance(each, logging.Logger)}


@pytest.fixture(scope="session")
def built() -> Iterator[ImageHost]:
    """Give a host with our image, built once for all tests that need the image."""
    with image_host() as host:
        build_image(host)
        yield host


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose needs the host does not meet; give a second try its own deadline.

    pytest-timeout sets one deadline for all tries together. Otherwise a test that hangs in its
    second try would run without a limit in CI.
    """
    host_needs.require_marked(item)
    if getattr(item, "execution_count", 1) > 1:
        settings = pytest_timeout._get_item_settings(item)
        item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each reason to skip tests, with their number."""
    reports = terminalreporter.getreports("skipped")
    lines = host_needs.skip_lines(report.longrepr[2] for report in reports)
    if lines:
        terminalreporter.section("tests that this host cannot run")
        terminalreporter.line("\n".join(lines))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Load only files with slow tests for `-m slow`: each worker needs seconds to load all."""
    is_module = collection_path.match("test_*.py") and collection_path.is_file()
    is_left_out = is_module and not SAYS_SLOW.search(collection_path.read_text())
    return True if is_left_out and config.getoption("markexpr") == "slow" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make sure that `-m slow` loads the file of every slow test."""
    files = {item.path for item in items if item.get_closest_marker("slow")}
    for path in files:
        assert SAYS_SLOW.search(path.read_text()), f"`-m slow` does not load {path}"


pytest_xdist_make_scheduler = worker_groups.pytest_xdist_make_scheduler


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks; let the process that runs tests start as from a terminal.

    `nohup` and a background job of a script ignore signals, and every child would inherit this.
    """
    config.addinivalue_line("markers", "slow: not part of `make test`; `make test-slow` runs it")
    config.addinivalue_line(
        "markers", "needs(*names, descriptors=0): what the host must give: tests/host_needs.py"
    )
    config.pluginmanager.register(known_world, "known world")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        known_world.use_default_signals()
