"""HPACK: the examples of RFC 7541, appendix C, what it forbids, and the library hpack's opinion."""

import pytest
from hpack import Decoder as LibraryDecoder
from hpack import Encoder as LibraryEncoder
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.wire.hpack import MAX_REMEMBERED, NO_TABLE, TABLE_SIZE, Decoder, encode
from kubedevices.wire.http2_frames import ErrorCode

fields = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=300)), max_size=8).map(tuple)

Pairs = list[tuple[str, str]]
HOST = (":authority", "www.example.com")
GET: Pairs = [(":method", "GET"), (":scheme", "http"), (":path", "/"), HOST]
GETS = [
    GET,
    [*GET, ("cache-control", "no-cache")],
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        HOST,
        ("custom-key", "custom-value"),
    ],
]
DATES = ["Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT"]
LOCATION = ("location", "https://www.example.com")
COOKIE = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
RESPONSES = [
    [(":status", "302"), ("cache-control", "private"), ("date", DATES[0]), LOCATION],
    [(":status", "307"), ("cache-control", "private"), ("date", DATES[0]), LOCATION],
    [
        (":status", "200"),
        ("cache-control", "private"),
        ("date", DATES[1]),
        LOCATION,
        ("content-encoding", "gzip"),
        ("set-cookie", COOKIE),
    ],
]


def decoder(table_size: int = TABLE_SIZE) -> Decoder:
    return Decoder(2**16, table_size)


def decoded(blocks: list[str], table_size: int = TABLE_SIZE) -> list[Pairs]:
    """Return what blocks in hexadecimal say to one decoder, one after the other."""
    reader = decoder(table_size)
    lists = [reader.decode(bytes.fromhex(block)).fields for block in blocks]
    return [[(name.decode(), value.decode()) for name, value in each] for each in lists]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param(
            "400a637573746f6d2d6b65790d637573746f6d2d686561646572",
            ("custom-key", "custom-header"),
            id="C.2.1 literal with indexing",
        ),
        pytest.param(
            "040c2f73616d706c652f70617468",
            (":path", "/sample/path"),
            id="C.2.2 literal without indexing",
        ),
        pytest.param(
            "100870617373776f726406736563726574",
            ("password", "secret"),
            id="C.2.3 literal never indexed",
        ),
        pytest.param("82", (":method", "GET"), id="C.2.4 indexed"),
    ],
)
def test_appendix_c_fields(block: str, expected: tuple[str, str]) -> None:
    """One field in each of its representations."""
    assert decoded([block]) == [[expected]]


@pytest.mark.parametrize(
    ("blocks", "table_size", "expected"),
    [
        pytest.param(
            [
                "828684410f7777772e6578616d706c652e636f6d",
                "828684be58086e6f2d6361636865",
                "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
            ],
            4096,
            GETS,
            id="C.3 requests",
        ),
        pytest.param(
            [
                "828684418cf1e3c2e5f23a6ba0ab90f4ff",
                "828684be5886a8eb10649cbf",
                "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
            ],
            4096,
            GETS,
            id="C.4 requests with Huffman",
        ),
        pytest.param(
            [
                (
                    "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a32"
                    "3120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d"
                ),
                "4803333037c1c0bf",
                (
                    "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a6970"
                    "7738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d61"
                    "67653d333630303b2076657273696f6e3d31"
                ),
            ],
            256,
            RESPONSES,
            id="C.5 responses that evict",
        ),
        pytest.param(
            [
                (
                    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad"
                    "171863c78f0b97c8e9ae82ae43d3"
                ),
                "4883640effc1c0bf",
                (
                    "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2"
                    "e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"
                ),
            ],
            256,
            RESPONSES,
            id="C.6 responses that evict, with Huffman",
        ),
    ],
)
def test_appendix_c_blocks(blocks: list[str], table_size: int, expected: list[Pairs]) -> None:
    """Blocks of one connection, which share a table."""
    assert decoded(blocks, table_size) == expected


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("80", id="index 0"),
        pytest.param("be", id="index above the tables"),
        pytest.param("7f", id="integer cut off"),
        pytest.param("1fffffffffffffff7f", id="integer without end"),
        pytest.param("00", id="literal cut off"),
        pytest.param("000561", id="string cut off"),
        pytest.param("0001617f", id="length cut off"),
        pytest.param("8220", id="table size behind a field"),
        pytest.param("3fe21f", id="table size above ours"),
        pytest.param("000161" + "81ff", id="Huffman: padding of eight bits"),
        pytest.param("000161" + "8118", id="Huffman: padding of noughts"),
        pytest.param("000161" + "84ffffffff", id="Huffman: end of string"),
        pytest.param("000161" + "82fffe", id="Huffman: code cut off"),
    ],
)
def test_forbidden(block: str) -> None:
    """A block that no encoder may write is a COMPRESSION_ERROR."""
    with pytest.raises(ProtocolError) as caught:
        decoded([block])
    assert caught.value.code == ErrorCode.COMPRESSION


def test_table_of_every_size() -> None:
    """A table is emptied, shrunk and grown as the peer says, up to our limit."""
    add = "400161" + "0162"  # a: b, 34 bytes in the table
    assert decoded([add, "be", "203fe11f" + add, "be"])[1:] == [[("a", "b")]] * 3
    for update in ("20", "3f02", "2021"):  # 0, 33, 0 and then 1
        with pytest.raises(ProtocolError, match="index 62"):
            decoded([add, update, "be"])
    assert decoded([add, "3f03", "be"])[2] == [("a", "b")]
    with pytest.raises(ProtocolError, match="index 62"):
        decoded([add, "be"], table_size=33)


def test_list_size() -> None:
    """A list counts 32 bytes for each field, and not one byte above the limit is taken."""
    block = encode(((b"a", b"b" * 29),) * 2)
    assert len(Decoder(124).decode(block).fields) == 2
    with pytest.raises(ProtocolError, match="header list above 123 bytes"):
        Decoder(123).decode(block)


# ---------------------------------------------------------------- against the library


@given(st.lists(fields, max_size=4))
def test_any_decoder_reads_our_blocks(lists: list[tuple[tuple[bytes, bytes], ...]]) -> None:
    """Blocks follow on one another without either side keeping a table."""
    library = LibraryDecoder()
    library.max_allowed_table_size = 0
    prefix = NO_TABLE
    for each in lists:
        assert tuple(library.decode(prefix + encode(each), raw=True)) == each
        prefix = b""


@pytest.mark.parametrize("size", [0, 126, 127, 128, 254, 255, 256, 16510, 16511, 40_000])
def test_strings_of_every_length(size: int) -> None:
    """Lengths around the borders of HPACK's integers are written right, and read."""
    each = ((b"x", b"y" * size),)
    block = encode(each)
    assert tuple(LibraryDecoder().decode(block, raw=True)) == each
    assert decoder().decode(block).fields == each


def test_every_byte_in_huffman() -> None:
    """All codes, alone and behind every other."""
    writer, reader = LibraryEncoder(), decoder()
    for first in range(256):
        value = b"".join(bytes((first, second)) for second in (0, 10, 22, 48, 65, 124, 249, 255))
        for text in (bytes((first,)), value):
            sent = ((b"x", text),)
            block = writer.encode([(*sent[0], True)], huffman=True)
            assert reader.decode(block).fields == sent


@given(
    st.lists(st.sampled_from(range(6)), max_size=40),
    st.booleans(),
    st.lists(st.integers(0, TABLE_SIZE), max_size=3),
)
def test_we_read_any_encoder(order: list[int], sensitive: bool, sizes: list[int]) -> None:
    """A remembered block is forgotten when the peer's table changes under it."""
    lists = [
        ((b"name", b"%d" % number), (b"other", b"x" * 100 * number), (b":status", b"200"))
        for number in range(6)
    ]
    writer, reader = LibraryEncoder(), decoder()
    for at, number in enumerate(order):
        if at < len(sizes):
            writer.header_table_size = sizes[at]
        block = writer.encode([(name, value, sensitive) for name, value in lists[number]])
        assert reader.decode(block).fields == lists[number]


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes(blocks: list[bytes]) -> None:
    """Any bytes give a list of fields or a `ProtocolError`."""
    reader = decoder()
    try:
        for block in blocks:
            reader.decode(block)
    except ProtocolError:
        return


def test_memory_is_bounded() -> None:
    """Different blocks again and again do not fill the memory."""
    reader = decoder()
    for number in range(1000):
        reader.decode(encode(((b"n", b"%d" % number),)))
        reader.decode(b"\x40" + encode(((b"n", b"%d" % number),))[1:])
    assert len(reader._decoded) <= MAX_REMEMBERED
    assert reader._table_size == sum(len(n) + len(v) + 32 for n, v in reader._table) <= TABLE_SIZE


def test_a_block_has_at_most_two_table_sizes() -> None:
    """RFC 7541, section 4.2: the smallest and the last size of an interval; the third is refused.

    A block of sizes alone would cost milliseconds of work and would have no field to limit.
    """
    reader = decoder()
    assert reader.decode(b"\x20\x3f\xe1\x1f\x82").fields == ((b":method", b"GET"),)
    with pytest.raises(ProtocolError, match="too many table sizes") as caught:
        reader.decode(b"\x20\x20\x20\x82")
    assert caught.value.code == ErrorCode.COMPRESSION
