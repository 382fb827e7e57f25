"""A target of the search: the inputs and what must hold for each of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.inputs import changed_files

CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True)
class Target:
    """`check` gets one input, and raises for a bug. It is quick: the search calls it often.

    `seeds` are inputs that a user would have, `tokens` are words of the format. The search changes
    the seeds and the files of the corpus. `also` are inputs that are made in another way.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...] = ()
    tokens: tuple[bytes, ...] = ()
    also: st.SearchStrategy[bytes] | None = None
    cpu_seconds: float = 5.0
    """Processor time that one input may take."""

    clock_seconds: float = 180.0
    """Time that one input may take: much, because a busy disk is no bug."""

    @property
    def directory(self) -> Path:
        """The directory of its corpus."""
        return CORPUS / self.name

    def corpus(self) -> list[Path]:
        """Return the files of its corpus."""
        return sorted(self.directory.iterdir()) if self.directory.exists() else []

    def inputs(self) -> st.SearchStrategy[bytes]:
        """Return the strategy of all inputs."""
        known = [*self.seeds, *(path.read_bytes() for path in self.corpus())]
        strategies = [st.binary(max_size=200), changed_files(known or [b""], self.tokens)]
        if self.also is not None:
            strategies += [self.also, self.also]
        return st.one_of(strategies)


def by_name(targets: Iterable[Target]) -> dict[str, Target]:
    """Return name → target."""
    return {each.name: each for each in targets}
