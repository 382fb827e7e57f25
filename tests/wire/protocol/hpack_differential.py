"""Our HPACK beside that of the package hpack: header blocks and Huffman strings from a seed."""

from random import Random

import hpack
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman

from kubedevices.errors import ProtocolError
from kubedevices.wire import huffman
from kubedevices.wire.hpack import Decoder, encode
from kubedevices.wire.http2_limits import Limits
from tests.wire.frames import REQUEST
from tests.wire.protocol.cases import Field

NAMES = (*(name for name, _ in REQUEST), b"x-test", b"cookie", b"user-agent", b"x" * 200)
INSERTED = (b"\x80", b"\x20", b"\x3f\xe1\x1f", b"\xff\xff", b"\x00")
_encoder = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


def _fields(random: Random) -> list[Field]:
    fields = [random.choice(REQUEST) for _ in range(random.randrange(6))]
    for _ in range(random.randrange(4)):
        size = random.choice((0, 1, 20, 130, 300))
        value = random.randbytes(size) if random.random() < 0.3 else b"v" * size
        fields.append((random.choice(NAMES), value))
    random.shuffle(fields)
    return fields


def _damaged(random: Random, block: bytes) -> bytes:
    work = bytearray(block)
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(work) + 1)
        match random.randrange(4):
            case 0 if work:
                work[at % len(work)] ^= 1 << random.randrange(8)
            case 1:
                work[at:at] = random.choice(
                    (b"\x80", b"\x20", b"\x3f\xe1\x1f", b"\xff\xff", b"\x00")
                )
            case 2:
                del work[at:]
            case _:
                work[at : at + 1] = random.randbytes(1)
    return bytes(work)


def block_difference(seed: int) -> str:
    """Return in which block of a connection two decoders differ, empty for none."""
    random = Random(seed)
    limit = Limits().max_header_block
    theirs, ours = hpack.Decoder(max_header_list_size=limit), Decoder(limit)
    theirs.max_allowed_table_size = 4096
    encoder = hpack.Encoder()
    for number in range(8):
        if random.random() < 0.1:
            encoder.header_table_size = random.choice((0, 64, 1000, 4096))
        block = encoder.encode(_fields(random), huffman=random.random() < 0.6)
        if random.random() < 0.25:
            block = _damaged(random, block)
        mine, other = _ours(ours, block), _theirs(theirs, block)
        if mine != other:
            return f"seed {seed}, block {number}: {block.hex()}: {mine} and {other}"
        if mine is None:
            break
    written = tuple(_fields(random))
    if _theirs(hpack.Decoder(), encode(written)) != list(written):
        return f"seed {seed}: {written} is not what we write"
    return ""


def _ours(decoder: Decoder, block: bytes) -> list[Field] | None:
    try:
        return list(decoder.decode(block).fields)
    except ProtocolError:
        return None


def _theirs(decoder: hpack.Decoder, block: bytes) -> list[Field] | None:
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except hpack.HPACKError:
        return None


def huffman_difference(seed: int) -> str:
    """Return a string or code that two decoders read differently, empty for none."""
    random = Random(seed)
    text = bytes((seed,)) if seed < 256 else random.randbytes(random.randrange(40))
    code = _encoder.encode(text)
    if huffman.decode(code) != text:
        return f"{text!r} in {code.hex()}"
    for any_code in (random.randbytes(random.randrange(12)), code[:-1], code + b"\xff"):
        try:
            other = bytes(decode_huffman(any_code))
        except hpack.HPACKError:
            other = None
        try:
            mine = huffman.decode(any_code)
        except ProtocolError:
            mine = None
        if mine != other:
            return f"{any_code.hex()}: {mine!r} and {other!r}"
    return ""
