"""Message classes of every API we speak, from our own descriptors in a private pool.

Private, because generated modules register in one pool per process: any second copy of `v1beta1`
there (another plugin library, a generated client) would collide with ours.
"""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kubedevices.errors import ProtocolError


def _load_pool() -> DescriptorPool:
    pool = DescriptorPool()
    # Not by importlib.resources: that loads zipfile and tempfile into every plugin process.
    data = Path(__file__).with_name("generated").joinpath("descriptors.binpb").read_bytes()
    for file in FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


_POOL = _load_pool()


@cache
def message_class(full_name: str) -> Any:
    """Return the class of `full_name`, for example `v1beta1.Device`."""
    return GetMessageClass(_POOL.FindMessageTypeByName(full_name))


def parse(full_name: str, data: bytes) -> Any:
    """Return the message in `data`; raises `ProtocolError` for anything that is none."""
    try:
        return message_class(full_name).FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"{len(data)} bytes are no {full_name} message: {error}") from error


def serialize(message: Message) -> bytes:
    """Return the bytes of `message`, map entries in a fixed order so that equal means equal."""
    return message.SerializeToString(deterministic=True)
