"""A reader of a report finds a check's file by its ID."""

import pytest

from kubedevices.check import checks
from kubedevices.check.catalogue import Catalogue
from kubedevices.check.drivers import rules


@pytest.mark.parametrize(
    "catalogue", [checks.CATALOGUE, rules.CATALOGUE], ids=["plugins", "drivers"]
)
def test_a_file_begins_like_the_ids_of_its_checks(catalogue: Catalogue) -> None:
    """`list.complete` is in `list_content.py`, `prepare.exclusive` in `prepare_holders.py`."""
    elsewhere = [
        (each.id, file)
        for each in catalogue.checks
        if (file := each.run.__module__.rpartition(".")[2]).partition("_")[0]
        != each.id.partition(".")[0]
    ]
    assert not elsewhere
