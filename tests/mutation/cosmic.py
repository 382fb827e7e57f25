"""Prints the mutants of cosmic-ray for the module on stdin, as JSON. Run by its own environment.

Its binary operators are left out: most of them break `X | None` in annotations, which fails at the
import. So are decorators, which the import needs too, and variables, whose names it wants to know.
"""

import json
import random
import re
import sys

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

_LEFT_OUT = (
    "core/ReplaceBinary",
    "core/RemoveDecorator",
    "core/Variable",
    # For None, bools, enums and objects that are equal only to themselves it is the same program.
    "core/ReplaceComparisonOperator_Is_Eq",
    "core/ReplaceComparisonOperator_IsNot_NotEq",
    # So it is for the small numbers and the words of the program, which Python keeps once.
    "core/ReplaceComparisonOperator_Eq_Is",
    "core/ReplaceComparisonOperator_NotEq_IsNot",
)

_ROUND = "000"
"""The end of a number that somebody chose as a limit: nobody notices one more or less."""

_LINES = re.compile(r"^ *@|if TYPE_CHECKING:|\btotal=False\):|_?[A-Z][A-Z_]* = \d+\.\d+")
"""Lines without mutants: decorators, what is for the type checker, chosen times and parts."""

_DEFAULT = "default="
"""Before the default of a key: the generated pages have it, and their tests compare."""


def main() -> None:
    """Print a list of [line, change, text]: as many as the first argument says, at random."""
    count, seed = map(int, sys.argv[1:])
    source, found = sys.stdin.read(), list[tuple[int, str, str]]()
    lines, nodes = source.splitlines(), [*ast_nodes(get_ast(source))]
    places = []
    for name in sorted(plugins.operator_names()):
        if not name.startswith(_LEFT_OUT):
            operator = plugins.get_operator(name)()
            spans = [each for node in nodes for each in operator.mutation_positions(node)]
            places += [
                (operator, number, start[0])
                for number, (start, end) in enumerate(spans)
                if not lines[start[0] - 1][: end[1]].endswith(_ROUND)
                and not lines[start[0] - 1][: start[1]].endswith(_DEFAULT)
            ]
    places = [each for each in places if not _LINES.search(lines[each[2] - 1])]
    random.Random(seed).shuffle(places)
    # Only the chosen ones are made: each of them needs the module to be parsed again.
    for operator, number, line in places[:count]:
        text = mutate_code(source, operator, number)
        if text is not None and text != source:
            after = (text.splitlines()[line - 1 :] or [""])[0]
            found.append((line, f"{lines[line - 1].strip()} -> {after.strip()}", text))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
