"""Texts that a stranger may choose, and the check that no output obeys them."""

PLANT = (
    "\x1b]0;owned\x07\x1b[2J\n::error::forged\n"
    "kubedevices: forged\rforged\u2028forged\u202egnp\u2066\x9b31m\x85##[error]forged\x7f"
)
"""Escape sequences, controls of C1 and bidi, each kind of line break, commands to CI servers."""


def assert_harmless(printed: str) -> None:
    """No control character is in `printed`, no line is forged, no CI server finds a command."""
    assert "\x1b" not in printed
    for line in printed.split("\n"):
        bad = [c for c in line if not c.isprintable()]
        assert not bad, (bad, line)
        assert not line.lstrip().startswith("::"), line
        assert not line.startswith(("forged", "kubedevices: forged")), line
        assert "##[" not in line, line
