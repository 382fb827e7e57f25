"""Compares what we make of the bytes of a message with what protobuf itself makes of them."""

from typing import Any

from google.protobuf.message import DecodeError

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api import convert
from kubedevices.kubelet_api.protobuf import Message
from tests.kubelet_api.protobuf_classes import message_class

RELAYED: dict[str, Message[Any]] = {
    each.name: each
    for each in (
        convert.OPTIONS,
        convert.ALLOCATE_REQUEST,
        convert.ALLOCATE_RESPONSE,
        convert.CONTAINER_RESPONSE,
        convert.PREFERRED_REQUEST,
        convert.PREFERRED_RESPONSE,
        convert.PRE_START_REQUEST,
        convert.PRE_START_RESPONSE,
    )
}
"""What a proxy passes on, so that fields which this version does not know must not get lost."""

READ_ONLY: dict[str, Message[Any]] = {
    each.name: each
    for each in (convert.REGISTER_REQUEST, convert.PLUGIN_INFO, convert.REGISTRATION_STATUS)
}
MESSAGES = RELAYED | READ_ONLY


def is_read_as_protobuf_reads_it(name: str, wire: bytes) -> None:
    """Raise `AssertionError` if we read, refuse or pass on something else than protobuf does.

    protobuf writes an unknown map entry anew, with its known fields first, and we do not change it.
    So protobuf reads what we pass on, and the comparison is of what protobuf then writes.
    """
    ours = MESSAGES[name]
    try:
        theirs = message_class(name).FromString(wire).SerializeToString(deterministic=True)
    except DecodeError:
        try:
            ours.from_wire(wire)
        except ProtocolError:
            return
        raise AssertionError(f"protobuf refuses it: {name} {wire.hex()}") from None
    found = ours.from_wire(wire)
    if name in RELAYED:
        passed = message_class(name).FromString(ours.to_wire(found))
        assert passed.SerializeToString(deterministic=True) == theirs
    else:
        assert found == ours.from_wire(theirs)
