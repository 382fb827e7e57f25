"""Selectors as a scheduler evaluates them: true, false, or the kind of the error.

The answers in `rows.txt` are those of Kubernetes 1.36; `tests/kubernetes/test_selectors.py` asks
a real scheduler for them.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kubedevices.errors import BadSelector
from kubedevices.values.selectors import Selector

DRIVER = "d.example.com"
DEVICE = {
    "attributes": {
        "profile": {"string": "1g.5gb"},
        "numa": {"int": 1},
        "rdma": {"bool": True},
        "model": {"string": "A100"},
        "broken": {"string": "["},
        "version": {"version": "1.2.3"},
        "other.example.com/shared": {"string": "x"},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}
ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "rows.txt").read_text().splitlines()
    if not line.startswith("#")
]


def answer(expression: str) -> str:
    try:
        return str(Selector(expression).selects(DRIVER, DEVICE)).lower()
    except BadSelector as error:
        return error.kind


@pytest.mark.parametrize(("right", "expression"), ROWS)
def test_a_selector_has_the_answer_of_a_scheduler(right: str, expression: str) -> None:
    """True, false, or an error of the same kind; a wrong `true` would hide a Pending pod."""
    assert answer(expression) == right.rsplit(maxsplit=1)[-1]


@pytest.mark.parametrize(
    "expression",
    [
        'dyn([1]).indexOf("a", dyn(1)) == 0',
        'dyn("1.2.3").ip() == ip("1.2.3.4")',
        'dyn(duration("1s")).getSeconds("UTC") == 1',
        "dyn(1).matches(dyn('1'))",
        "dyn(1u).isInteger()",
    ],
)
def test_values_that_no_overload_takes_are_an_error(expression: str) -> None:
    """The checker does not know the type behind `dyn`: the evaluation compares it instead."""
    assert answer(expression) == "evaluation"


def test_there_are_rows_enough() -> None:
    """A file that is cut would test nothing."""
    assert len(ROWS) >= 1000
    assert sum("unsupported" in right for right, _ in ROWS) <= 20


def test_the_length_of_an_expression_is_limited() -> None:
    """10 KiB are allowed, one byte more is not."""
    assert answer(f'"{"x" * (10240 - 8)}" != ""'[:10240]) == "true"
    assert answer(f'"{"x" * 10240}" != ""') == "length"


def test_parts_say_which_term_is_false_and_what_it_saw() -> None:
    """`explain` shows the values that decide, an attribute that is absent too."""
    text = (
        'device.attributes["d.example.com"].numa == 0 && has(device.attributes["d.example.com"].x)'
    )
    first, second = Selector(text).parts(DRIVER, DEVICE)
    assert (first.holds, first.values) == (False, ((("device.attributes", DRIVER, "numa"), 1),))
    assert (second.holds, second.values) == (False, ((("device.attributes", DRIVER, "x"), None),))


def test_a_term_that_fails_has_its_problem() -> None:
    """An absent attribute is named."""
    (part,) = Selector('device.attributes["d.example.com"].x == 1').parts(DRIVER, DEVICE)
    assert (part.holds, part.problem) == (False, "no such key: x")


def test_one_selector_serves_many_devices() -> None:
    """It is compiled once, and 10,000 devices take seconds at most."""
    text = 'device.attributes["d.example.com"].numa == 1 && device.driver == "d.example.com"'
    selector = Selector.compiled(text)
    assert Selector.compiled(text) is selector
    before = time.process_time()
    assert all(selector.selects(DRIVER, DEVICE) for _ in range(10_000))
    assert time.process_time() - before < 20


def test_the_runtime_is_loaded_only_for_a_selector_and_its_absence_names_the_extra() -> None:
    """The import of the package costs nothing, and an error says what to install."""
    script = (
        "import sys; sys.modules['cel_expr_python'] = None\n"
        "from kubedevices.values.selectors import Selector\n"
        "from kubedevices.errors import UsageError\n"
        "try:\n    Selector('true')\nexcept UsageError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "pip install 'kubedevices[cel]'" in done.stdout
