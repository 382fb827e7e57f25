"""No bytes of a peer that are read as a message raise anything but `ProtocolError`."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api import convert, services
from kubedevices.kubelet_api.device_lists import device_list_from_wire

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
often = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

DECODERS: list[Callable[[bytes], object]] = [
    device_list_from_wire,
    convert.OPTIONS.from_wire,
    convert.REGISTER_REQUEST.from_wire,
    convert.ALLOCATE_REQUEST.from_wire,
    convert.ALLOCATE_RESPONSE.from_wire,
    convert.CONTAINER_RESPONSE.from_wire,
    convert.PREFERRED_REQUEST.from_wire,
    convert.PREFERRED_RESPONSE.from_wire,
    convert.PRE_START_REQUEST.from_wire,
    convert.PLUGIN_INFO.from_wire,
    convert.REGISTRATION_STATUS.from_wire,
    services.json_from_wire,
]


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
@given(data=st.one_of(st.binary(max_size=60), st.text(max_size=40).map(str.encode)))
@often
def test_any_message(decode: Callable[[bytes], object], data: bytes) -> None:
    """Bytes that cannot be decoded as the message raise `ProtocolError`."""
    try:
        decode(data)
    except ProtocolError:
        return
