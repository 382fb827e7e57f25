"""A mutant: the text of a module with one small change. Changes of statements are made here.

`cosmic.py` makes the changes of expressions with cosmic-ray, which has none of whole statements.
But what no test notices is mostly a step that is missing, or that comes one step too early.
"""

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

_STEPS = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)


class Mutant(NamedTuple):
    """A module with one change at `line`; `change` says what it was, for people and for lists."""

    line: int
    change: str
    text: str


def without_a_step(text: str) -> Iterator[Mutant]:
    """Yield the module without one of the steps of its functions, for each step."""
    for body in _bodies(text):
        for each in body:
            if isinstance(each, (*_STEPS, ast.Raise)) and _is_step(each):
                lines = text.splitlines(keepends=True)
                indent = " " * each.col_offset
                lines[each.lineno - 1 : each.end_lineno] = [f"{indent}pass\n"]
                yield Mutant(each.lineno, f"without {_words(text, each)}", "".join(lines))


def with_two_steps_swapped(text: str) -> Iterator[Mutant]:
    """Yield the module with two neighbouring steps in the other order, for each such pair."""
    for body in _bodies(text):
        for first, second in itertools.pairwise(body):
            if not all(isinstance(each, _STEPS) and _is_step(each) for each in (first, second)):
                continue
            if _is_apart(first, second) or _is_apart(second, first) or _are_fields(first, second):
                continue  # the order says nothing
            assert first.end_lineno
            assert second.end_lineno
            if second.lineno <= first.end_lineno:
                continue  # on one line
            lines = text.splitlines(keepends=True)
            one = lines[first.lineno - 1 : first.end_lineno]
            between = lines[first.end_lineno : second.lineno - 1]
            two = lines[second.lineno - 1 : second.end_lineno]
            lines[first.lineno - 1 : second.end_lineno] = [*two, *between, *one]
            change = f"{_words(text, second)} before {_words(text, first)}"
            yield Mutant(first.lineno, change, "".join(lines))


def _bodies(text: str) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements inside functions."""
    functions = [
        each
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inner = {id(each) for one in functions for each in ast.walk(one) if each is not one}
    for function in functions:
        if id(function) in inner:
            continue  # the outer function has it
        for node in ast.walk(function):
            for name in ("body", "orelse", "finalbody"):
                if isinstance(body := getattr(node, name, None), list):
                    yield body


def _is_step(statement: ast.stmt) -> bool:
    """Whether the statement does something that a test could notice: no docstring, no log line."""
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return False
    if isinstance(statement, ast.Expr):
        if isinstance(statement.value, ast.Constant):
            return False
        called = statement.value.func if isinstance(statement.value, ast.Call) else None
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            return called.value.id not in ("_log", "logger")
    return True


def _is_apart(statement: ast.stmt, other: ast.stmt) -> bool:
    """Whether a statement only sets local names, without an await, and `other` has none of them."""
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return False
    if any(isinstance(each, ast.Await | ast.Yield) for each in ast.walk(statement)):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    parts = [each for target in targets for each in ast.walk(target)]
    if not all(isinstance(each, ast.Name | ast.Tuple | ast.expr_context) for each in parts):
        return False
    ours = {each.id for each in parts if isinstance(each, ast.Name)}
    return not ours & _names(other) and not _stored(other) & _names(statement)


def _are_fields(*statements: ast.stmt) -> bool:
    """Whether both only set attributes of `self`, to values that are not made from `self`."""
    for each in statements:
        if not isinstance(each, ast.Assign | ast.AnnAssign) or each.value is None:
            return False
        targets = each.targets if isinstance(each, ast.Assign) else [each.target]
        places = [part for one in targets for part in getattr(one, "elts", [one])]
        if not all(ast.unparse(part).rpartition(".")[0] == "self" for part in places):
            return False
        if any(
            isinstance(part, ast.Await) or (isinstance(part, ast.Name) and part.id == "self")
            for part in ast.walk(each.value)
        ):
            return False
    return True


def _names(statement: ast.stmt) -> set[str]:
    """Return the names of a statement, without those that live in a comprehension only."""
    parts = [*ast.walk(statement)]
    inside = [each.target for each in parts if isinstance(each, ast.comprehension)]
    own = {each.id for one in inside for each in ast.walk(one) if isinstance(each, ast.Name)}
    return {each.id for each in parts if isinstance(each, ast.Name)} - own


def _stored(statement: ast.stmt) -> set[str]:
    """Return the names of `_names` that the statement sets or deletes."""
    found = [each for each in ast.walk(statement) if isinstance(each, ast.Name)]
    stored = {each.id for each in found if isinstance(each.ctx, ast.Store | ast.Del)}
    return stored & _names(statement)


def _words(text: str, statement: ast.stmt) -> str:
    return " ".join((ast.get_source_segment(text, statement) or "").split())
