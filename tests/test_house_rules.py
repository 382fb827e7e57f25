"""Rules of CONTRIBUTING that a program can check."""

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILE_LIMIT = 400
FUNCTION_LIMIT = 60


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file that git tracks and that exists."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_is_short_and_has_a_docstring(path: Path) -> None:
    """No module has more than 400 lines, and no function more than 60."""
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no module docstring"
    assert text.count("\n") <= FILE_LIMIT
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LIMIT, node.name


def imports_of(path: Path) -> set[Path]:
    """Return our modules that a module imports anywhere, also only for types."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kubedevices"):
            place = (ROOT / "src").joinpath(*str(node.module).split("."))
            found |= {place.with_suffix(".py"), *(place / f"{each.name}.py" for each in node.names)}
    return found.intersection(SOURCES)


def test_no_two_modules_import_each_other() -> None:
    """The contracts of import-linter are about packages, this test is about files."""
    imported = {path: imports_of(path) for path in SOURCES}
    circles = {
        tuple(sorted((name_of(path), name_of(other))))
        for path, others in imported.items()
        for other in others
        if path in imported[other]
    }
    assert not circles


PACKAGES = [path for path in SOURCES if path.name == "__init__.py" and path.parent.name != "cli"]


@pytest.mark.parametrize("path", PACKAGES[1:], ids=name_of)
def test_a_package_docstring_lists_its_modules(path: Path) -> None:
    """It has exactly the modules and packages of the folder, one a line."""
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    listed = set(re.findall(r"^(\w+)(?=  +\S)", doc, re.MULTILINE))
    modules = {file.stem for file in path.parent.glob("*.py")} - {"__init__"}
    folders = {folder.parent.name for folder in path.parent.glob("*/__init__.py")}
    assert listed == modules | folders


def test_readme_is_short() -> None:
    """README has fewer than 150 lines."""
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


WORKPLACE = re.compile(
    r"(?<![\w.])/(?:work|farm|root)/|docker\.io|ghcr\.io|quay\.io|gcr\.io|registry\.k8s"
)
SAYS_WHAT_KUBERNETES_PULLS = {
    ("src/kubedevices/manifests/image.py", "docker.io"),
    ("tests/cli/test_manifests.py", "docker.io"),
    ("tests/cli/test_deploy.py", "docker.io"),
    ("docs/install.md", "docker.io"),
}


def test_no_path_of_a_developers_machine_and_no_registry_is_named() -> None:
    """Tracked files are about the project only."""
    found = []
    for path in tracked_files():
        if path == Path(__file__) or path.suffix in {".binpb", ".png"}:
            continue
        found += [
            f"{name_of(path)}: {match[0]}"
            for match in WORKPLACE.finditer(path.read_text(errors="replace"))
            if (name_of(path), match[0]) not in SAYS_WHAT_KUBERNETES_PULLS
        ]
    assert not found


def test_no_to_do_notes_and_no_skipped_tests() -> None:
    """Nor a test that is always expected to fail."""
    pattern = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XXX)\b|mark\.(?:skip|xfail)\(")
    for path in tracked_files():
        if path.suffix == ".py" and path != Path(__file__):
            assert not pattern.search(path.read_text()), name_of(path)


def test_each_class_has_a_name_of_its_own() -> None:
    """No two classes of the source code have the same name, so a search finds one class."""
    names = Counter(
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


AWAITS_ITS_TASKS = {
    "proxy/plugin_scanner.py": 2,  # catches every error of a list; a close that fails harms nobody
    "proxy/proxied_resource.py": 2,  # one function starts and awaits both
    "two_apis/switch.py": 1,  # `run` awaits the scan
}


def test_long_lived_tasks_are_supervised() -> None:
    """An error of a task that nobody awaits is seen by nobody: `SupervisedTasks` starts them."""
    found = {}
    for path in SOURCES:
        name = path.relative_to(ROOT / "src/kubedevices").as_posix()
        if name.startswith(("proxy/", "two_apis/", "middleware/")):
            text = path.read_text()
            if count := text.count("create_task(") + text.count("ensure_future("):
                found[name] = count
    assert found == AWAITS_ITS_TASKS
