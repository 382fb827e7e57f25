"""The texts of the terms of an expression, for messages. Pure.

The tree of an expression has no places in the text, so the text is divided again.
"""

import functools
import re

_TOKEN = re.compile(
    r"//[^\n]*"
    r"|[bB]?[rR]?[bB]?(?:'''.*?'''|\"\"\".*?\"\"\")"
    r"|[bB]?[rR][bB]?(?:'[^']*'|\"[^\"]*\")"
    r"|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
    r"|&&|[()\[\]{}]|.",
    re.DOTALL,
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@functools.lru_cache(maxsize=256)
def term_texts(expression: str) -> tuple[str, ...]:
    """Return the terms of the outermost `&&`, also of a `&&` in brackets of its own.

    An `||` or `?` outside of all brackets is not seen: the caller compares the number of terms.
    """
    terms, depth, brackets = [""], 0, 0
    for token in _TOKEN.findall(expression):
        if token in _OPENING:
            depth, brackets = depth + 1, brackets + (depth == 0)
        elif token in _CLOSING:
            depth -= 1
        if token == "&&" and depth == 0:
            terms.append("")
        elif not token.startswith("//"):
            terms[-1] += token
    found = [" ".join(each.split()) for each in terms]
    if len(found) == 1 and brackets == 1 and found[0].startswith("(") and found[0].endswith(")"):
        return term_texts(found[0][1:-1])
    return tuple(text for each in found for text in _inside(each, found))


def _inside(term: str, terms: list[str]) -> tuple[str, ...]:
    return term_texts(term) if len(terms) > 1 and term.startswith("(") else (term,)
