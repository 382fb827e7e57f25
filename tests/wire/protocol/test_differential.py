"""Our session and HPACK beside h2, libnghttp2 and hpack: the same bytes mean the same to all."""

import pytest

from tests.wire.frames import CLIENT_HELLO
from tests.wire.protocol.conversations import conversation
from tests.wire.protocol.differential import KNOWN, ORACLES, Difference, difference
from tests.wire.protocol.ends import End, Ours
from tests.wire.protocol.hpack_differential import block_difference, huffman_difference

SEEDS = range(300)
"""`python -m tests.wire.protocol.long_run fuzz` goes on from there for as long as it is told."""


@pytest.mark.parametrize("is_client", [False, True], ids=["server", "client"])
@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_same_events_or_a_refusal_of_both(oracle: type[End], is_client: bool) -> None:
    """In every conversation: the same facts of each frame, the same windows, or both refuse."""
    found = [difference(seed, oracle, is_client=is_client) for seed in SEEDS]
    assert [str(each) for each in found if each is not None and each.reason is None] == []


def test_an_allowed_difference_covers_only_its_own_case() -> None:
    """A difference is allowed only with the stricter side, the frame and the state of its row."""
    known = Difference("h2", "RST_STREAM", "", "idle", "ours", 0, ())
    assert known.reason
    assert not known._replace(refuses="h2").reason
    assert not known._replace(state="open").reason
    assert not known._replace(what="DATA").reason
    assert not known._replace(oracle="ngh2").reason
    assert all(reason for reason in KNOWN.values())


def test_header_blocks() -> None:
    """Our decoder reads what hpack writes and refuses what hpack refuses; and the other way."""
    found = [block_difference(seed) for seed in range(300)]
    assert [each for each in found if each] == []


def test_huffman() -> None:
    """Our decoder reads every string that hpack encodes, and any bytes as hpack does."""
    found = [huffman_difference(seed) for seed in range(500)]
    assert [each for each in found if each] == []


def _speech(seed: int, length: int) -> bytes:
    acts = conversation(seed, to_client=False)
    return CLIENT_HELLO + b"".join(next(acts).data for _ in range(length))


def _heard(*pieces: bytes) -> tuple[list[object], bytes]:
    """Return what our server reports of some bytes, and what it sends."""
    ours = Ours(is_client=False)
    facts: list[object] = []
    output = b""
    for piece in pieces:
        more, sent = ours.take(piece)
        facts += more
        output += sent
        if ours.is_over:
            break
    return facts, output


@pytest.mark.parametrize("seed", [16, 85, 199, 246])
def test_every_byte_boundary(seed: int) -> None:
    """Wherever the bytes are cut, they mean the same."""
    speech = _speech(seed, 12)
    whole = _heard(speech)
    assert len(whole[0]) >= 6
    for at in range(len(speech)):
        assert _heard(speech[:at], speech[at:]) == whole
    assert _heard(*(speech[at : at + 1] for at in range(len(speech)))) == whole
