"""Strategies of inputs, and numbers out of an input for targets that act step by step."""

from collections.abc import Sequence

from hypothesis import strategies as st

Change = tuple[str, int, int, bytes]
"""The kind of a change, its place, a count, and the bytes that it needs."""

MOST_COPIES = 40_000
"""Enough to exhaust the stack of a parser that calls itself for each bracket."""

MOST_FILLER = 2**20
"""Bytes of one kind of filler at most: a long token is not repeated until memory ends."""

changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "drop", "repeat", "insert"]),
        st.integers(0, 10**6),
        st.integers(1, 40),
        st.binary(min_size=1, max_size=12),
    ),
    max_size=6,
)


def changed(data: bytes, how: Sequence[Change], skip: int = 0) -> bytes:
    """Return `data` with some damage, sparing the first `skip` bytes."""
    work = bytearray(data)
    for kind, place, size, filler in how:
        at = skip + place % max(1, len(work) - skip)
        if kind == "flip" and at < len(work):
            work[at] ^= filler[0] or 1
        elif kind == "drop":
            del work[at : at + size]
        elif kind == "repeat":
            work[at:at] = work[at : at + size * 10]
        elif kind == "insert":
            work[at:at] = filler
        elif kind == "many":
            work[at:at] = filler * min(size, max(1, MOST_FILLER // max(1, len(filler))))
    return bytes(work)


def changed_files(known: Sequence[bytes], tokens: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return the strategy of damaged files, where damage also means a token in a place."""
    every = [*tokens, b"\0", b"\xff", b"0"]
    place = st.integers(0, 10**6)
    with_tokens = st.lists(
        st.one_of(
            st.tuples(st.just("insert"), place, st.just(1), st.sampled_from(every)),
            st.tuples(st.just("drop"), place, st.integers(1, 40), st.just(b"")),
            st.tuples(
                st.just("many"),
                st.one_of(st.just(0), place),
                st.one_of(st.integers(1, 200), st.just(MOST_COPIES)),
                st.sampled_from(every),
            ),
        ),
        max_size=4,
    )
    how = st.one_of(
        changes, with_tokens, st.tuples(changes, with_tokens).map(lambda two: [*two[0], *two[1]])
    )
    return st.builds(changed, st.sampled_from(list(known)), how)


class Numbers:
    """Takes small numbers and bytes out of an input, for a target that acts step by step."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def is_over(self) -> bool:
        """Whether the input is used up."""
        return self._at >= len(self._data)

    def below(self, limit: int) -> int:
        """Return a number below `limit`; 0 at the end of the input."""
        value = int.from_bytes(self.take(1 if limit <= 256 else 3), "big")
        return value % limit

    def take(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end of the input."""
        self._at += size
        return self._data[self._at - size : self._at]
