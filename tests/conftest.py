"""Fixtures for every test, and the rule that no test is skipped in CI."""

import logging
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings

from kubedevices.cli.log_lines import JsonLines, TextLines
from tests import forked_workers
from tests.image_host import ImageHost, build_image, image_host
from tests.kubernetes.cluster import FOLDER

# The time of an example depends on the machine more than on the code.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

IN_CI = os.environ.get("CI") == "true"


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Give a directory with a short path, because a Unix socket path has at most 107 bytes."""
    parent = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    parent.chmod(0o755)  # some tests read the directory as another user
    directory = parent / "d"  # a node puts its state directory beside it: the parent is removed too
    directory.mkdir()
    yield directory
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo the changes of `cli.main` to logging.

    Otherwise log lines would go to the captured stderr of a test that is over.
    """
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [*root.handlers]:
        if isinstance(handler.formatter, (TextLines, JsonLines)):
            root.removeHandler(handler)


@pytest.fixture(scope="session")
def built() -> Iterator[ImageHost]:
    """Give a host with our image, built once for all tests that need the image."""
    with image_host() as host:
        build_image(host)
        yield host


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a second try its own deadline: pytest-timeout sets one deadline for all tries together.

    Otherwise a test that hangs in its second try would run without a limit in CI.
    """
    if getattr(item, "execution_count", 1) > 1:
        settings = pytest_timeout._get_item_settings(item)
        item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure in CI: `make test-deps` installs everything that tests need.

    A test that no CI machine can run has the mark `@pytest.mark.needs_host("what")`. A test with
    the mark `real_kubernetes` runs only if an environment variable names a Kubernetes.
    """
    report = yield
    excused = hasattr(report, "wasxfail") or item.get_closest_marker("needs_host")
    if FOLDER not in os.environ:
        excused = excused or item.get_closest_marker("real_kubernetes")
    if IN_CI and report.skipped and not excused:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where everything must run: {report.longrepr}"
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `-n`."""
    forked_workers.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; with `-n`, fork workers."""
    forked_workers.pytest_configure(config)
    config.addinivalue_line(
        "markers", "needs_host(what): asks the host for something that no package can install"
    )
    config.addinivalue_line(
        "markers", f"real_kubernetes: runs on the Kubernetes that {FOLDER} names, or is skipped"
    )
    config.addinivalue_line("markers", "slow: takes longer than the other tests of its part")
