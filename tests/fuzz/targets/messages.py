"""The protobuf codec beside protobuf itself, and messages on their way to a record and back."""

from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api import convert, message_json
from kubedevices.kubelet_api.device_lists import DeviceListReader, device_list_from_wire
from kubedevices.kubelet_api.protobuf import block, integer, text_map
from tests.fuzz.target import Target
from tests.kubelet_api.beside_protobuf import MESSAGES, RELAYED, is_read_as_protobuf_reads_it

_NAMES = sorted(set(MESSAGES) - {convert.PRE_START_RESPONSE.name})
"""Of a message without fields their library takes even the number 0, which no field has."""

_RECORDED = sorted(RELAYED)
_ANSWER = block(1, text_map(1, {"A": "1"}) + block(2, block(1, b"/a") + block(2, b"/b")))
_LIST = block(1, block(1, b"a") + block(2, b"Healthy") + block(3, block(1, integer(1, 1))))
_TOKENS = (
    b"\x0a\x02\x08\x00", b"\x0b\x0c", b"\x13\x14", b"\x0d\x00\x00\x00\x00", b"\x8a\x00\x01a",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80\x00", b"\x78\x00", b"\x0a\x00",
)  # fmt: skip

_words = st.sampled_from([b"", b"a", b"\xff", "Ω".encode(), b"x" * 130])
_leaves = st.one_of(
    st.builds(block, st.integers(1, 6), _words),
    st.builds(integer, st.integers(1, 6), st.integers(1, 2**64 - 1)),
    st.sampled_from(_TOKENS),
)
_fields = st.recursive(
    _leaves,
    lambda inner: st.builds(
        lambda number, parts: block(number, b"".join(parts)),
        st.integers(1, 6),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)
_wire = st.lists(_fields, max_size=4).map(b"".join)


def check_message(data: bytes) -> None:
    """The first byte chooses the message: the same values, bytes passed on and refusals."""
    if data:
        is_read_as_protobuf_reads_it(_NAMES[data[0] % len(_NAMES)], data[1:])


def check_list(data: bytes) -> None:
    """A list gives the same devices in blocks, a second time, and as the message of the table."""
    try:
        expected = convert.DEVICE_LIST.from_wire(data)
    except ProtocolError:
        expected = None
    try:
        found = device_list_from_wire(data)
    except ProtocolError:
        assert expected is None
        return
    assert found == expected
    reader = DeviceListReader()
    for _ in range(2):
        for _ in (reading := reader.read(data)):
            pass
        assert reading is not None
        assert reader._devices == found


def check_json(data: bytes) -> None:
    """A message in a record has the same content when it is played again."""
    if not data:
        return
    kind = RELAYED[_RECORDED[data[0] % len(_RECORDED)]]
    try:
        found = message_json.to_json(kind, data[1:])
    except ProtocolError:
        return
    again = message_json.to_bytes(kind, found)
    assert message_json.to_json(kind, again) == found


_CHOSEN = tuple(bytes((number,)) + _ANSWER for number in range(len(_NAMES)))
_also = st.builds(
    lambda first, wire: bytes((first,)) + wire, st.integers(0, len(_NAMES) - 1), _wire
)
TARGETS = [
    Target("message", check_message, _CHOSEN, _TOKENS, _also),
    Target("device-list", check_list, (_LIST * 3, _LIST * 300), (*_TOKENS, _LIST), _wire),
    Target("message-json", check_json, _CHOSEN, _TOKENS, _also),
]
