"""The rules of CONTRIBUTING that a machine can check."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILE_LIMIT = 400
FUNCTION_LIMIT = 60


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that git tracks and that is there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_is_short_and_says_what_it_is_for(path: Path) -> None:
    """No module has more than 400 lines, no function more than 60, and each has a docstring."""
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no module docstring"
    assert text.count("\n") <= FILE_LIMIT
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LIMIT, node.name


def imports_of(path: Path) -> set[Path]:
    """Return the modules of ours that a module imports anywhere, also for its types only."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kubedevices"):
            place = (ROOT / "src").joinpath(*str(node.module).split("."))
            found |= {place.with_suffix(".py"), *(place / f"{each.name}.py" for each in node.names)}
    return found.intersection(SOURCES)


def test_no_two_modules_import_each_other() -> None:
    """The contracts of import-linter hold between packages; this holds between files."""
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
def test_the_package_docstring_is_the_map(path: Path) -> None:
    """Each package docstring lists exactly the modules of the folder, one a line."""
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    listed = set(re.findall(r"^(\w+)(?=  +\S)", doc, re.MULTILINE))
    modules = {file.stem for file in path.parent.glob("*.py")} - {"__init__"}
    folders = {folder.parent.name for folder in path.parent.glob("*/__init__.py")}
    assert listed == modules | folders


def test_readme_fits_on_a_few_screens() -> None:
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
    """Tracked files speak of the project alone."""
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


def test_nothing_is_left_open_in_the_code() -> None:
    """No to-do notes, and no test that is skipped or expected to fail for good."""
    pattern = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XXX)\b|mark\.(?:skip|xfail)\(")
    for path in tracked_files():
        if path.suffix == ".py" and path != Path(__file__):
            assert not pattern.search(path.read_text()), name_of(path)
