"""Messages as JSON: the JSON that protobuf itself writes and reads, and nothing lost."""

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api import convert
from kubedevices.kubelet_api.message_json import to_bytes, to_json
from kubedevices.kubelet_api.protobuf import Message, block
from tests.kubelet_api.protobuf_classes import message_class

text = st.text(max_size=6)
texts = st.lists(text, max_size=3)
text_map = st.dictionaries(text, text, max_size=3)
int64 = st.integers(-(2**63), 2**63 - 1)


def some(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return fields of a message, any of them left out."""
    return st.fixed_dictionaries({}, optional=parts)


def several(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(some(**parts), max_size=3)


paths: dict[str, st.SearchStrategy[Any]] = {"container_path": text, "host_path": text}
container = several(
    envs=text_map,
    mounts=several(read_only=st.booleans(), **paths),
    devices=several(permissions=text, **paths),
    annotations=text_map,
    cdi_devices=several(name=text),
)
asked = several(
    available_deviceIDs=texts,
    must_include_deviceIDs=texts,
    allocation_size=st.integers(-(2**31), 2**31 - 1),
)
devices = several(ID=text, health=text, topology=some(nodes=several(ID=int64)))
flags = {
    name: st.booleans() for name in ("pre_start_required", "get_preferred_allocation_available")
}

MESSAGES: list[tuple[str, Message[Any], st.SearchStrategy[dict[str, Any]]]] = [
    ("ListAndWatchResponse", convert.DEVICE_LIST, some(devices=devices)),
    ("DevicePluginOptions", convert.OPTIONS, some(**flags)),
    (
        "AllocateRequest",
        convert.ALLOCATE_REQUEST,
        some(container_requests=several(devices_ids=texts)),
    ),
    ("AllocateResponse", convert.ALLOCATE_RESPONSE, some(container_responses=container)),
    ("PreferredAllocationRequest", convert.PREFERRED_REQUEST, some(container_requests=asked)),
    (
        "PreferredAllocationResponse",
        convert.PREFERRED_RESPONSE,
        some(container_responses=several(deviceIDs=texts)),
    ),
    ("PreStartContainerRequest", convert.PRE_START_REQUEST, some(devices_ids=texts)),
]


@pytest.mark.parametrize(("name", "kind", "content"), MESSAGES, ids=[each[0] for each in MESSAGES])
def test_the_json_is_protobufs_json(
    name: str, kind: Message[Any], content: st.SearchStrategy[dict[str, Any]]
) -> None:
    """We write the same JSON as protobuf, and each reads the other's JSON."""
    made = message_class(f"v1beta1.{name}")

    @given(content)
    def check(parts: dict[str, Any]) -> None:
        message = made(**parts)
        found = to_json(kind, message.SerializeToString())
        assert found == MessageToDict(message)
        assert made.FromString(to_bytes(kind, found)) == message
        assert ParseDict(found, made()) == message

    check()


@given(st.lists(st.tuples(st.integers(4, 15), st.binary(max_size=9)), max_size=3), texts)
def test_fields_of_a_later_version_are_kept(
    fields: list[tuple[int, bytes]], ids: list[str]
) -> None:
    """At every level, byte for byte."""
    unknown = b"".join(block(number, content) for number, content in fields)
    inner = b"".join(block(1, each.encode()) for each in ids) + unknown
    data = block(1, inner) + unknown
    kind = convert.ALLOCATE_REQUEST
    assert to_bytes(kind, to_json(kind, data)) == data


@pytest.mark.parametrize(
    ("kind", "given", "problem"),
    [
        (convert.DEVICE_LIST, [], r"^\[\] is not an object"),
        (convert.DEVICE_LIST, {"devices": {}}, "devices: {} is not a list"),
        (convert.DEVICE_LIST, {"devices": [{"ID": 3}]}, "devices: ID: 3 is not text"),
        (convert.DEVICE_LIST, {"devices": [{"ID": "\ud800"}]}, "devices: ID: .*surrogates"),
        (
            convert.DEVICE_LIST,
            {"devices": [{"topology": {"nodes": [{"ID": str(2**63)}]}}]},
            "topology: nodes: ID: 9223372036854775808 has more than 64 bits",
        ),
        (convert.OPTIONS, {"preStartRequired": 1}, "preStartRequired: 1 is not true or false"),
        (convert.OPTIONS, {"unknown": "%"}, "unknown: not the base64"),
        (convert.OPTIONS, {"unknown": "CA=="}, "unknown: not the base64"),
        (
            convert.ALLOCATE_RESPONSE,
            {"containerResponses": [{"envs": {"A": 1}}]},
            "containerResponses: envs: 1 is not text",
        ),
        (
            convert.PREFERRED_REQUEST,
            {"containerRequests": [{"allocationSize": "many"}]},
            "allocationSize: .*many",
        ),
    ],
)
def test_invalid_json_is_refused_with_its_key(kind: Message[Any], given: Any, problem: str) -> None:
    """The error names the key."""
    with pytest.raises(ValueError, match=problem):
        to_bytes(kind, given)


@given(st.binary(max_size=30))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    """A valid message is the same message afterwards."""
    try:
        found = to_json(convert.ALLOCATE_RESPONSE, data)
    except ProtocolError:
        return
    again = to_bytes(convert.ALLOCATE_RESPONSE, found)
    assert to_json(convert.ALLOCATE_RESPONSE, again) == found
