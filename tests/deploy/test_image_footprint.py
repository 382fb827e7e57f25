"""What `make bench` measures of the image can be measured, and stays within its targets."""

import pytest

from benchmarks.footprint import QUICK, ROWS, print_sizes, print_weights, weigh
from benchmarks.footprint_places import Inside
from tests.docs.test_benchmarks import PAGE, shapes
from tests.image_host import ImageHost

pytestmark = pytest.mark.timeout(600)

MORE_THAN_IMPORTS = 5
"""MB that a serving plugin may take beyond what it imports for its transport."""


async def test_a_plugin_in_a_container_is_small(
    built: ImageHost, capsys: pytest.CaptureFixture[str]
) -> None:
    """Little more than its transport; and the page has the tables that are printed."""
    rows = [row for row in ROWS if row.title in {"simulate", "expose, --listen"}]
    weights = await weigh(Inside(built), QUICK, rows)
    simulate = weights.rows["simulate"]
    assert 2 < weights.python.pss < weights.imports.pss < simulate.pss
    assert simulate.pss <= weights.imports.pss + MORE_THAN_IMPORTS
    assert 0 < weights.python.register < simulate.register < simulate.first_list
    print_weights("In a container", weights, rows)
    print_sizes(built)
    printed = shapes(capsys.readouterr().out)
    assert len(printed) == 2
    assert printed <= shapes(PAGE.read_text())
