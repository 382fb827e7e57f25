"""The messages of every API as classes of protobuf itself, the judge of `kubelet_api.protobuf`.

For tests and for plugins that share no code with ours; from the descriptors of our .proto files.
"""

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb")


def _load_pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return pool


POOL = _load_pool()


def message_class(full_name: str) -> Any:
    """Return the class of a message, for example `v1beta1.Device`."""
    return GetMessageClass(POOL.FindMessageTypeByName(full_name))
