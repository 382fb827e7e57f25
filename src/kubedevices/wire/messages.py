"""Message classes of every API we speak, from our own descriptors in a private pool.

Private, because generated modules register in one pool per process: any second copy of `v1beta1`
there (another plugin library, a generated client) would collide with ours.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kubedevices.errors import ProtocolError


def _load_classes() -> Mapping[str, Any]:
    pool = DescriptorPool()
    # Not by importlib.resources: that loads zipfile and tempfile into every plugin process.
    data = Path(__file__).with_name("generated").joinpath("descriptors.binpb").read_bytes()
    classes: dict[str, Any] = {}
    for file in FileDescriptorSet.FromString(data).file:
        pool.Add(file)
        _add_classes(classes, pool.FindFileByName(file.name).message_types_by_name.values())
    return classes


def _add_classes(classes: dict[str, Any], descriptors: Iterable[Descriptor]) -> None:
    for descriptor in descriptors:
        classes[descriptor.full_name] = GetMessageClass(descriptor)
        _add_classes(classes, descriptor.nested_types)


_CLASSES = _load_classes()
"""All of them, also those of fields and map entries, for ever.

The library keeps no reference to the class of a field: every garbage collection would destroy it,
while another thread may be encoding an answer with it. A node once died in the library's C code.
"""


def message_class(full_name: str) -> Any:
    """Return the class of `full_name`, for example `v1beta1.Device`."""
    return _CLASSES[full_name]


def parse(full_name: str, data: bytes) -> Any:
    """Return the message in `data`; raises `ProtocolError` for anything that is none."""
    try:
        return message_class(full_name).FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"{len(data)} bytes are no {full_name} message: {error}") from error


def serialize(message: Message) -> bytes:
    """Return the bytes of `message`, map entries in a fixed order so that equal means equal."""
    return message.SerializeToString(deterministic=True)
