"""Messages in a byte stream."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire.grpc_framing import MessageReader, frame


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 60))
def test_messages_come_back(payloads: list[bytes], step: int) -> None:
    """The messages do not depend on how the bytes are split."""
    stream = b"".join(frame(each) for each in payloads)
    reader = MessageReader(50)
    got = [
        message
        for at in range(0, len(stream), step)
        for message in reader.feed(stream[at : at + step])
    ]
    assert got == payloads
    assert reader.buffered == 0


def test_limit_is_checked_on_the_prefix() -> None:
    """A length above the limit is refused before anything of the message has come."""
    reader = MessageReader(1000)
    assert list(reader.feed(b"\0\0\0\x03")) == []
    with pytest.raises(RpcError, match=r"1001 vs\. 1000") as caught:
        list(reader.feed(b"\xe9"))
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


def test_no_memory_before_it_is_needed() -> None:
    """The announced length of a message takes no memory."""
    tracemalloc.start()
    try:
        reader = MessageReader(2**31)
        assert list(reader.feed(b"\0\x7f\xff\xff\xff" + b"some")) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
