"""The benchmark of the image works, and the image meets its targets."""

import pytest

from benchmarks.footprint import QUICK, ROWS, measure_rows, print_footprints, print_sizes
from benchmarks.footprint_places import InContainer
from tests.docs.test_benchmarks import PAGE, shapes
from tests.image_host import ImageHost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MORE_THAN_IMPORTS = 5
"""MB that a serving plugin may need in addition to the modules that it imports."""


async def test_a_plugin_in_a_container_needs_little_memory(
    built: ImageHost, capsys: pytest.CaptureFixture[str]
) -> None:
    """Little more than its transport; and docs/performance.md has the printed tables."""
    rows = [row for row in ROWS if row.title in {"simulate", "expose, --listen"}]
    found = await measure_rows(InContainer(built), QUICK, rows)
    simulate = found.rows["simulate"]
    assert 2 < found.python.pss < found.imports.pss < simulate.pss
    assert simulate.pss <= found.imports.pss + MORE_THAN_IMPORTS
    assert 0 < found.python.register < simulate.register < simulate.first_list
    print_footprints("In a container", found, rows)
    print_sizes(built)
    printed = shapes(capsys.readouterr().out)
    assert len(printed) == 2
    assert printed <= shapes(PAGE.read_text())
