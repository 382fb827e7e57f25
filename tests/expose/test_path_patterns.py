"""Globs with memory, and texts with placeholders."""

import re

import pytest

from kubedevices.config.checks import file_path
from kubedevices.expose.path_patterns import PathPattern


@pytest.mark.parametrize(
    ("glob", "path", "captures"),
    [
        ("/dev/fuse", "/dev/fuse", ()),
        ("/dev/ttyUSB*", "/dev/ttyUSB12", ("12",)),
        ("/dev/ttyUSB*", "/dev/ttyUSB", ("",)),
        ("/dev/nvidia[0-9]*", "/dev/nvidia12", ("12",)),
        ("/dev/snd/pcmC?D*p", "/dev/snd/pcmC1D0p", ("1", "0")),
        ("/dev/tty[!0-9]*", "/dev/ttyS0", ("S0",)),
        ("/dev/a.b+c", "/dev/a.b+c", ()),
        ("/dev/x[]]", "/dev/x]", ("]",)),
        ("/dev/x[!]]", "/dev/xa", ("a",)),
        ("/dev/x[a^&&~-]", "/dev/x^", ("^",)),
        ("/dev/x[a^&&~-]", "/dev/x-", ("-",)),
        ("/dev/x[^a]", "/dev/x^", ("^",)),
    ],
)
def test_a_match_remembers_each_run_of_wildcards(
    glob: str, path: str, captures: tuple[str, ...]
) -> None:
    """Wildcards that touch count as one."""
    pattern = PathPattern(glob)
    assert pattern.match(path) == captures
    assert pattern.wildcards == len(captures)


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("/dev/*", "/dev/net/tun"),
        ("/dev/a?b", "/dev/a/b"),
        ("/dev/a[!x]b", "/dev/a/b"),
        ("/dev/tty[!0-9]*", "/dev/tty0"),
        ("/dev/a.b", "/dev/aXb"),
        ("/dev/fuse", "/dev/fuse2"),
    ],
)
def test_a_wildcard_stays_in_its_directory(glob: str, path: str) -> None:
    """And anything else stands for itself."""
    assert PathPattern(glob).match(path) is None


@pytest.mark.parametrize(
    ("glob", "problem"),
    [
        ("dev/fuse", "must be an absolute path"),
        ("", "a path must not be empty"),
        ("/dev/", "is a directory"),
        ("/dev//fuse", "must not contain"),
        ("/dev/../etc/shadow", "must not contain"),
        ("/dev/./fuse", "must not contain"),
        ("/dev/**/tun", "'**' is not supported"),
        ("/dev/{a,b}", "write an entry per alternative"),
        ("/dev/tty[0-9", "the '[' in 'tty[0-9' is never closed"),
        ("/dev/tty[]", "is never closed"),
        ("/dev/tty[9-0]", "'[9-0]' is not a range of characters"),
        ("/dev/a\nb", "cannot be printed"),
    ],
)
def test_an_impossible_pattern_is_refused(glob: str, problem: str) -> None:
    """With a sentence that says why."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        PathPattern(glob)


def test_paths_are_checked_without_file_access() -> None:
    """An ordinary path is fine, whether it exists or not."""
    assert file_path("/dev/nothing there") == ""
