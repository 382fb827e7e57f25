"""Our HPACK against the library's, in both directions."""

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.wire.header_codec import MAX_REMEMBERED, RememberingDecoder, TablelessEncoder

fields = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=300)), max_size=8)


@given(st.lists(fields, max_size=4))
def test_any_decoder_reads_our_blocks(lists: list[list[tuple[bytes, bytes]]]) -> None:
    """Blocks follow on one another without either side keeping a table."""
    encoder, decoder = TablelessEncoder(), Decoder()
    for headers in lists:
        assert list(decoder.decode(encoder.encode(headers), raw=True)) == headers


def test_strings_of_every_length() -> None:
    """Lengths around the borders of HPACK's integers are written right."""
    encoder, decoder = TablelessEncoder(), Decoder()
    for size in (0, 126, 127, 128, 254, 255, 256, 16510, 16511, 40_000):
        headers = [(b"x", b"y" * size)]
        assert list(decoder.decode(encoder.encode(headers), raw=True)) == headers


def test_peer_may_shrink_the_table() -> None:
    """A decoder that has less room than it said at first has nothing to complain about."""
    encoder, decoder = TablelessEncoder(), Decoder()
    decoder.decode(encoder.encode([(b"a", b"b")]), raw=True)
    decoder.max_allowed_table_size = 0
    assert list(decoder.decode(encoder.encode([(b"a", b"b")]), raw=True)) == [(b"a", b"b")]


@given(st.lists(st.sampled_from(range(6)), max_size=40), st.booleans())
def test_we_read_any_encoder(order: list[int], sensitive: bool) -> None:
    """A remembered block is forgotten when the peer's table changes under it."""
    lists = [
        [(b"name", b"%d" % number), (b"other", b"x" * number), (b":status", b"200")]
        for number in range(6)
    ]
    encoder, decoder = Encoder(), RememberingDecoder()
    for number in order:
        headers = [(name, value, sensitive) for name, value in lists[number]]
        assert list(decoder.decode(encoder.encode(headers), raw=True)) == lists[number]


def test_table_size_update_forgets() -> None:
    """A block means something else after the peer has emptied its table."""
    encoder, decoder = Encoder(), RememberingDecoder()
    decoder.decode(encoder.encode([(b"a", b"b")]), raw=True)
    block = encoder.encode([(b"a", b"b")])
    for _ in range(2):
        assert list(decoder.decode(block, raw=True)) == [(b"a", b"b")]
    decoder.decode(b"\x20", raw=True)
    with pytest.raises(HPACKError):
        decoder.decode(block, raw=True)


def test_memory_is_bounded() -> None:
    """A peer that never says the same twice fills nothing."""
    encoder, decoder = TablelessEncoder(), RememberingDecoder()
    for number in range(1000):
        decoder.decode(encoder.encode([(b"n", b"%d" % number)]), raw=True)
    assert len(decoder._known) <= MAX_REMEMBERED
    assert len(encoder._known) <= MAX_REMEMBERED
