"""MODULE:CLASS on the command line becomes a scanner, or one line that says why not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.cli.write.scanner_loader import load_scanner
from kubedevices.errors import KubedevicesError, ScanFailed, UsageError
from kubedevices.plugin.polled_scanner import PolledScanner

WIDGETS = '''
import functools
import os
from pathlib import Path
import kubedevices as kd

class Widgets(kd.PolledScanner):
    def __init__(self, count: int = 1, dev: "Path | None" = None, fast: bool = False,
                 ratio: float = 1.0, name="none"):
        self.values = (count, dev, fast, ratio, name)
    def list_devices(self):
        return kd.DeviceTree()

class Anything(Widgets):
    def __init__(self, **values):
        self.values = values

class Misspelt(kd.PolledScanner):
    def list_device(self):
        return kd.DeviceTree()

class Forgotten(kd.Scanner):
    pass

class MisspeltAbility(Widgets, kd.ContainerPreStarter):
    def prestart_container(self, request):
        pass

class Needy(kd.PolledScanner):
    def __init__(self, dev, *, vendor):
        pass
    def list_devices(self):
        return kd.DeviceTree()

class Broken(Widgets):
    def __init__(self):
        raise OSError("no such\\nlibrary")

class Careful(Widgets):
    def __init__(self):
        raise kd.errors.UsageError("give me a licence")

class NoScanner:
    pass

class Namespace:
    Inner = Widgets

ready = Widgets(7)
wrapped = kd.Damped(Widgets(7), kd.HealthRule())
number = 5

def make(count: int = 2, name="made"):
    """Return a scanner in a middleware."""
    return kd.Damped(Widgets(count, name=name), kd.HealthRule())

partly = functools.partial(make, 3)

def needs_dev(dev):
    return Widgets(dev=dev)

def gives_devices():
    return kd.DeviceTree()

def gives_number():
    return 5

async def later():
    return Widgets()

def raises():
    raise OSError("no such library")
'''


MISSING_IMPORT = (
    "missing_import does not import: ModuleNotFoundError: No module named 'surely_not_installed' "
    "(missing_import.py:1)"
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a directory with a few modules, and forget them afterwards."""
    files = {
        "widgets": WIDGETS,
        "missing_import": "import surely_not_installed\n",
        "broken": "x = 1\nraise ValueError('bad\\nday')\n",
        "leaving": "import sys\nsys.exit(3)\n",
        "syntax": "x = 1\ndef f(:\n",
        "empty": "",
        "neighbour": "from widgets import Widgets as Theirs\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def values_of(target: str, *arguments: str) -> object:
    scanner = load_scanner(target, list(arguments))
    assert isinstance(scanner, PolledScanner)
    return scanner.values  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "target",
    ["widgets:Widgets", "widgets.py:Widgets", "./widgets.py:Widgets", "neighbour.py:Theirs",
     "widgets:Namespace.Inner"],
)  # fmt: skip
def test_a_module_or_a_file(target: str) -> None:
    """The current directory is searched first; a file finds its neighbours."""
    assert values_of(target) == (1, None, False, 1.0, "none")


def test_a_file_of_another_directory_finds_its_neighbours(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `python FILE`."""
    monkeypatch.chdir("/")
    assert values_of(f"{directory}/neighbour.py:Theirs") == (1, None, False, 1.0, "none")


def test_a_scanner_object_is_used_directly() -> None:
    """For one that is put together of others."""
    assert values_of("widgets:ready") == (7, None, False, 1.0, "none")


@pytest.mark.parametrize(
    ("target", "arguments", "count", "name"),
    [
        ("widgets:wrapped", [], 7, "none"),
        ("widgets:make", [], 2, "made"),
        ("widgets:make", ["count=5", "name=x"], 5, "x"),
        ("widgets:partly", ["name=x"], 3, "x"),
    ],
)
def test_a_scanner_in_a_middleware_is_an_object_or_comes_from_a_function(
    target: str, arguments: list[str], count: int, name: str
) -> None:
    """The arguments of the function are converted like those of a constructor."""
    scanner = load_scanner(target, arguments)
    assert isinstance(scanner, kd.Damped)
    values = scanner.scanner.values  # type: ignore[attr-defined]
    assert (values[0], values[4]) == (count, name)


def test_constructor_arguments_are_converted_by_annotation() -> None:
    """Text, where there is none."""
    arguments = ("count=3", "dev=/tmp/dev", "fast=yes", "ratio=.5", "name=a=b")
    assert values_of("widgets:Widgets", *arguments) == (3, Path("/tmp/dev"), True, 0.5, "a=b")
    assert values_of("widgets:Widgets", "fast=False") == (1, None, False, 1.0, "none")
    assert values_of("widgets:Anything", "any=1") == {"any": "1"}


@pytest.mark.parametrize(
    ("target", "arguments", "message"),
    [
        ("widgets", [], "'widgets' is not MODULE:CLASS, for example widgets.py:Widgets"),
        (":Widgets", [], "':Widgets' is not MODULE:CLASS"),
        ("widgets:", [], "'widgets:' is not MODULE:CLASS"),
        ("nowhere:X", [], "there is no module 'nowhere'"),
        ("nowhere.below:X", [], "there is no module 'nowhere'"),
        ("nowhere.py:X", [], "there is no file 'nowhere.py'"),
        ("./:X", [], "there is no file '.'"),
        ("/etc/hostname:X", [], "'/etc/hostname' is not a Python file"),
        ("missing_import:X", [], MISSING_IMPORT),
        ("broken:X", [], "broken does not import: ValueError: bad day (broken.py:2)"),
        ("broken.py:X", [], "broken.py does not import: ValueError: bad day (broken.py:2)"),
        ("leaving:X", [], "leaving does not import: SystemExit: 3 (leaving.py:2)"),
        ("syntax:X", [], "syntax does not import: SyntaxError: invalid syntax (syntax.py:2)"),
        ("syntax.py:X", [], "syntax.py does not import: SyntaxError: invalid syntax (syntax.py:2)"),
        ("widgets:Widget", [], "widgets has no 'Widget', did you mean 'Widgets'?"),
        ("widgets:Xyz", [], "widgets has no 'Xyz', its scanners: Widgets, Anything, Misspelt"),
        ("empty:X", [], "empty has no 'X', and no scanner at all"),
        ("widgets:number", [], "number must be a class, a function or a scanner, not int"),
        ("widgets:NoScanner", [], "NoScanner does not inherit kubedevices.Scanner or"),
        ("widgets:Misspelt", [], "Misspelt lacks list_devices() (is list_device() misspelt?)"),
        ("widgets:Forgotten", [], "Forgotten lacks scan()"),
        ("widgets:MisspeltAbility", [],
         "MisspeltAbility lacks pre_start_container() (is prestart_container() misspelt?)"),
        ("widgets:Needy", [], "Needy(dev, *, vendor): missing a required argument: 'dev', give it"),
        ("widgets:Widgets", ["cuont=1"], "Widgets takes no argument 'cuont', did you mean"),
        ("widgets:Careful", ["x=1"], "Careful takes no argument 'x': Careful()"),
        ("widgets:Widgets", ["count"], "--arg 'count' is not NAME=VALUE"),
        ("widgets:Widgets", ["count=many"], "--arg count: 'many' is not a number"),
        ("widgets:Widgets", ["fast=maybe"], "--arg fast: 'maybe' is neither true nor false"),
        ("widgets:ready", ["count=1"], "widgets:ready is a scanner, not a class: it takes"),
        ("widgets:Careful", [], "give me a licence"),
        ("widgets:needs_dev", [], "needs_dev(dev): missing a required argument: 'dev', give it"),
        ("widgets:gives_number", [], "gives_number() must return a scanner, not int"),
        ("widgets:gives_devices", [], "gives_devices() returns devices, not a scanner: write"),
        ("widgets:later", [], "later() must return a scanner, not coroutine"),
    ],
)  # fmt: skip
def test_a_loading_error_is_one_line(target: str, arguments: list[str], message: str) -> None:
    """And is the user's to repair: exit code 2."""
    with pytest.raises(UsageError) as caught:
        load_scanner(target, arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_constructor_that_raises_is_the_scanners_failure() -> None:
    """Nothing the user typed is wrong, so the exit code is 1."""
    message = r"scanner Broken failed: its constructor raised OSError: no such library \(widgets"
    with pytest.raises(ScanFailed, match=message) as caught:
        load_scanner("widgets:Broken", [])
    assert caught.value.exit_code == 1
    with pytest.raises(ScanFailed, match="scanner raises failed: it raised OSError: no such lib"):
        load_scanner("widgets:raises", [])
    assert isinstance(caught.value, KubedevicesError)
