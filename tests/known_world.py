"""Gives every test, and every process that a test starts, the same world.

Whoever runs the tests may have another umask, locale, time zone, home or PATH, a low or a high
limit of open files, signals that a shell or `nohup` ignores, or variables that kubedevices reads.
`enter` sets all of this once in each process of pytest; a fixture restores it after each test.
"""

import atexit
import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DESCRIPTORS = 1024
"""The soft limit of open files, as of most users. More of them: `needs(descriptors=N)`."""

KUBELET_DIR = "/var/lib/kubelet"

_SET = {"LANG": "C.UTF-8", "TERM": "xterm", "TZ": "UTC0"}
_KEPT = {
    *("CI", "FUZZ_EXAMPLES", "LOGNAME", "PATH", "SHELL", "USER", "VIRTUAL_ENV"),
    *("LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONPYCACHEPREFIX"),
    *("GIT_CONFIG_GLOBAL", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
}
_KEPT_BEGINNINGS = (
    *("KUBEDEVICES_", "PYTEST_", "PIP_", "PYENV_", "COVERAGE_", "HYPOTHESIS_"),
    *("GO", "CONTAINERS_", "XDG_", "DBUS_"),
)
"""Settings of the test suite, and of tools that tests run. kubedevices reads none of them."""

_HOME_OF_TESTS = "KUBEDEVICES_HOME_OF_TESTS"
_SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_CHECKOUT = Path(__file__).parents[1]
_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # Python ignores them in every process
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)

_touched: list[str] = []


def enter() -> None:
    """Give this process the known world. May be called again in a worker of pytest."""
    os.umask(0o022)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS)
    _limit(resource.RLIMIT_CORE, 0)
    _set_environment()
    time.tzset()


def use_default_signals() -> None:
    """Heed signals that a shell or `nohup` ignores, in a process that runs tests.

    A process that only controls workers keeps ignoring them, as whoever started it wants.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP} - _BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def watch_kubelet_directories() -> None:
    """Note from now on when Python opens, lists or dials something below the host's kubelet."""

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in {"open", "os.listdir", "os.scandir", "os.mkdir", "socket.connect"}:
            path = arguments[1 if event == "socket.connect" else 0]
            if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(
                KUBELET_DIR
            ):
                _touched.append(f"{event} {os.fsdecode(path)}")

    sys.addaudithook(note)


@pytest.fixture(autouse=True)
def known_world_of_each_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restore what a test changed, and fail if it looked at the kubelet of this host.

    `explain` may do so: it looks at every process of the host, and where each kubelet keeps files.
    """
    environment, directory = dict(os.environ), Path.cwd()
    modules, search = set(sys.modules), [*sys.path]
    limits = [(each, resource.getrlimit(each)) for each in _LIMITS]
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGHUP)}
    _touched.clear()
    yield
    touched = [*_touched]
    sys.path[:] = search
    for name in set(sys.modules) - modules:  # a scanner of a test: the next test has another one
        if _is_of_a_test(Path(getattr(sys.modules[name], "__file__", None) or "/")):
            del sys.modules[name]
    # Checks of health that a test has left hanging would take the places of the next test's.
    if threads := sys.modules.get("kubedevices.rules.check_threads"):
        fresh = threads.CheckThreads()
        for name in ("kubedevices.rules.check_threads", "kubedevices.rules.health_checks"):
            if name in sys.modules:
                sys.modules[name].CHECKS = fresh  # type: ignore[attr-defined]
    os.chdir(directory)
    os.umask(0o022)
    for each, limit in limits:
        resource.setrlimit(each, limit)
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    if os.environ != environment:
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
    if "explain" not in request.node.nodeid:
        assert not touched, "a test must not depend on the kubelet of this host"


def _is_of_a_test(module: Path) -> bool:
    """Tell if a test wrote this module; the whole checkout may be in a temporary directory too."""
    return module.is_relative_to(tempfile.gettempdir()) and not module.is_relative_to(_CHECKOUT)


def _limit(kind: int, wanted: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(kind, (most, hard))


def _set_environment() -> None:
    given = dict(os.environ)
    kept = {
        name: given[name]
        for name in given
        if name in _KEPT or name.startswith(_KEPT_BEGINNINGS) or name.lower().endswith("_proxy")
    }
    os.environ.clear()
    os.environ.update(kept | _SET | {"PATH": _searchable(given.get("PATH", ""))})
    if _HOME_OF_TESTS not in given:
        _make_home(Path(given.get("HOME", "/")))
    os.environ["HOME"] = os.environ[_HOME_OF_TESTS]


def _make_home(home: Path) -> None:
    """Make an empty home. Tools that tests run keep their settings and caches in the real one."""
    process, made = os.getpid(), tempfile.mkdtemp(prefix="kd-home-")
    os.environ[_HOME_OF_TESTS] = made
    for name, place in (
        ("XDG_CACHE_HOME", home / ".cache"),
        ("XDG_CONFIG_HOME", home / ".config"),
        ("XDG_DATA_HOME", home / ".local/share"),
        ("GIT_CONFIG_GLOBAL", home / ".gitconfig"),
    ):
        os.environ.setdefault(name, str(place))

    def remove() -> None:
        if os.getpid() == process:  # a forked worker also calls this at its end
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)


def _searchable(path: str) -> str:
    """Return a PATH of the directories that we may search, and then those of every system."""
    found = []
    for directory in (*path.split(":"), *_SYSTEM_PATH):
        with contextlib.suppress(OSError):
            if directory.startswith("/") and directory not in found:
                Path(directory, "..").stat()
                found.append(directory)
    return ":".join(found)
