"""What is checked of a device: a value, for rules. `health_checks` does it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Check:
    """What is checked, and how often: a file, or else a command. Texts may have placeholders."""

    file: str | None = None
    """A file that must exist, or say `equals`."""

    equals: str | None = None
    command: tuple[str, ...] = ()
    """A program and its arguments; exit code 0 means healthy."""

    interval: float = 30.0
    """Seconds between two checks."""

    fail_after: int = 2
    """Failures in a row that count."""

    ok_after: int = 3
    """Successes in a row that count after a failure."""
