"""The kubelet versions that a plugin is judged for, and harm that only some of them do."""

from dataclasses import replace

import pytest

from kubedevices.check.check import Severity
from kubedevices.check.checks import find
from kubedevices.check.kubelets import Kubelets
from kubedevices.errors import UsageError


@pytest.mark.parametrize(
    ("text", "kubelets", "shown"),
    [
        ("1.36", Kubelets((1, 36), (1, 36)), "1.36"),
        ("v1.36.2", Kubelets((1, 36), (1, 36)), "1.36"),
        ("1.34-1.36", Kubelets((1, 34), (1, 36)), "1.34 to 1.36"),
        ("v1.9.0-v1.10.1", Kubelets((1, 9), (1, 10)), "1.9 to 1.10"),
    ],
)
def test_versions_are_read(text: str, kubelets: Kubelets, shown: str) -> None:
    """One or a range, with or without v and patch; 1.10 is newer than 1.9."""
    assert Kubelets.parse(text) == kubelets
    assert str(kubelets) == shown


@pytest.mark.parametrize("text", ["", "1", "latest", "1.36-", "-1.36", "1.34,1.36", "1.36-1.34"])
def test_an_invalid_kubelet_version_is_refused(text: str) -> None:
    """With the option's name and what was written."""
    with pytest.raises(UsageError, match=f"--kubelet {text}"):
        Kubelets.parse(text)


@pytest.mark.parametrize(
    ("since", "until", "severity"),
    [
        ("", "", Severity.FAIL),
        ("1.34", "1.36", Severity.FAIL),
        ("", "1.35", Severity.WARN),
        ("1.35", "", Severity.WARN),
        ("", "1.33", None),
        ("1.37", "", None),
    ],
)
def test_harm_of_some_kubelets_is_a_warning(
    since: str, until: str, severity: Severity | None
) -> None:
    """Harm of all judged kubelets has the check's severity; harm of none is not tried."""
    check = replace(find("life.sockets-wiped"), since=since, until=until)
    assert Kubelets((1, 34), (1, 36)).severity(check) is severity


def test_a_note_gets_no_worse() -> None:
    """Harm that only some kubelets do is a warning at most."""
    check = replace(find("allocate.empty-ids"), until="1.35")
    assert Kubelets((1, 34), (1, 36)).severity(check) is Severity.NOTE
