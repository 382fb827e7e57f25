"""The tree of errors in docs/reference.md is made of the classes: run this to repair the page."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from kubedevices import errors
from kubedevices.errors import KubedevicesError

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
BEGIN, END = "<!-- errors: begin -->\n", "<!-- errors: end -->\n"
MODULES = [
    import_module(f"{errors.__name__}.{each.name}") for each in iter_modules(errors.__path__)
]
CLASSES = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type)
    and issubclass(value, BaseException)
    and value.__module__ == module.__name__
    and not value.__name__.startswith("_")  # a form of texts, of no interest to users
]


def rows(error: type[BaseException], before: str, behind: str) -> Iterator[tuple[str, str]]:
    """Yield the name of a class as it is drawn, and its meaning; then those derived from it."""
    base, *others = error.__bases__
    meaning = (error.__doc__ or "").partition("\n")[0]
    meaning += "".join(
        f" Also a {each.__name__}." for each in others if not each.__name__.startswith("_")
    )
    code = getattr(error, "exit_code", 1)
    if code != getattr(base, "exit_code", None):
        meaning += f" Exit code {code}."
    yield before + error.__name__, meaning
    derived = [each for each in CLASSES if each.__bases__[0] is error]
    for number, each in enumerate(sorted(derived, key=lambda each: each.__name__), 1):
        corner, line = ("└── ", "    ") if number == len(derived) else ("├── ", "│   ")
        yield from rows(each, behind + corner, behind + line)


def tree() -> str:
    """Return all classes, each below its first base."""
    drawn = list(rows(KubedevicesError, "", ""))
    width = max(len(name) for name, _ in drawn)
    return "".join(f"{name:{width}}  {meaning}\n" for name, meaning in drawn)


def page_with_tree() -> str:
    """Return the page as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}```text\n{tree()}```\n{END}{rest.partition(END)[2]}"


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_an_error_class_is_exported_and_has_a_docstring(error: type[BaseException]) -> None:
    """`kubedevices.errors` offers each class of its modules, and its first line is a sentence."""
    assert getattr(errors, error.__name__, None) is error, "import its module in errors/__init__.py"
    assert (error.__doc__ or "").strip(), "no docstring"


def test_every_error_class_derives_from_the_root() -> None:
    """A user who catches `KubedevicesError` catches them all."""
    assert [error for error in CLASSES if not issubclass(error, KubedevicesError)] == []


def test_the_page_draws_every_error_class() -> None:
    """Each class once, below its base, with its first line and its exit code."""
    assert PAGE.read_text() == page_with_tree(), "run python -m tests.test_errors"
    assert len(tree().splitlines()) == len(CLASSES)


if __name__ == "__main__":
    PAGE.write_text(page_with_tree())
    print(f"written: {PAGE}")
