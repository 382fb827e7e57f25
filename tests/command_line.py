"""Runs the command line in the process of the test, and keeps what it printed."""

import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest

from kubedevices.cli import main


class Printed(NamedTuple):
    """What one command printed."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout."""
        return self.out.splitlines()

    @property
    def data(self) -> Any:
        """The JSON of stdout."""
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Runs commands; `before` and `after` stand around the words of each of them."""

    capsys: pytest.CaptureFixture[str]
    before: tuple[object, ...] = ()
    after: tuple[object, ...] = ()

    def __call__(self, *words: object, code: int = 0) -> Printed:
        """Run a command and check its exit code; return what this command alone printed."""
        self.capsys.readouterr()
        found = main([*map(str, (*self.before, *words, *self.after))])
        printed = Printed(*self.capsys.readouterr())
        assert found == code, printed
        return printed

    def of(self, *before: object, after: tuple[object, ...] = ()) -> "CommandLine":
        """Return the command line with more words around those of each command."""
        return replace(self, before=(*self.before, *before), after=(*after, *self.after))
