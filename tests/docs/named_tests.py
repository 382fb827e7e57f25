"""Reads tables of the documentation that name tests as `tests/FILE.py::NAME`."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(page: Path) -> Iterator[list[str]]:
    """Yield the cells of every table row except headers."""
    is_body = False
    for line in page.read_text().splitlines():
        if not line.startswith("|"):
            is_body = False
        elif set(line) <= set("|-: "):
            is_body = True
        elif is_body:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return every file and function that `text` names."""
    return _NAMED.findall(text)


@cache
def tests_of(path: str) -> frozenset[str]:
    """Return the test functions of a file, an empty set if the file does not exist."""
    file = ROOT / path
    if not file.exists():
        return frozenset()
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


def missing(page: Path) -> list[str]:
    """Return the tests that `page` names and that do not exist."""
    return [
        f"{path}::{name}"
        for path, name in named_tests(page.read_text())
        if name not in tests_of(path)
    ]
