"""The texts of the terms of an expression: as many as its tree has, unless the caller sees it."""

import pytest

from kubedevices.values.selectors import Selector
from kubedevices.values.selectors.term_texts import term_texts


@pytest.mark.parametrize(
    ("expression", "terms"),
    [
        ("true", ["true"]),
        ("true && 1 < 2", ["true", "1 < 2"]),
        ("(true && (false || true)) && 1 < 2", ["true", "false || true", "1 < 2"]),
        ("((true && false))", ["true", "false"]),
        ('"a && b" == "a" && true', ['"a && b" == "a"', "true"]),
        (r'"\" && " == "a" && true', [r'"\" && " == "a"', "true"]),
        (r"r'\d&&' == 'a' && true", [r"r'\d&&' == 'a'", "true"]),
        ('"""a" && """ == "a" && true', ['"""a" && """ == "a"', "true"]),
        ("[1, 2].exists(x, x > 1 && x < 3) && true", ["[1, 2].exists(x, x > 1 && x < 3)", "true"]),
        ("true && // not && this\n false", ["true", "false"]),
        ("!(true && false)", ["!(true && false)"]),
        ("(true) == (false)", ["(true) == (false)"]),
    ],
)
def test_the_terms_are_those_of_the_tree(expression: str, terms: list[str]) -> None:
    """In its order."""
    assert [*term_texts(expression)] == terms
    assert len(Selector(expression).parts("d.example.com", {})) == len(terms)


def test_an_or_outside_of_brackets_has_another_number_of_terms() -> None:
    """So a caller sees that the texts are not the terms."""
    expression = "true || false && true"
    assert len(term_texts(expression)) == 2
    assert len(Selector(expression).parts("d.example.com", {})) == 1
