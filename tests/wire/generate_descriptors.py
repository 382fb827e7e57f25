"""Makes `descriptors.binpb` from `src/kubedevices/wire/proto`; `make proto` and a test run it."""

import tempfile
from pathlib import Path

from grpc_tools import protoc

from tests.wire.protobuf_classes import DESCRIPTORS

PACKAGE = Path(__file__).parents[2] / "src" / "kubedevices" / "wire"


def generate() -> bytes:
    """Return the serialized FileDescriptorSet of all our .proto files, in name order."""
    files = sorted(path.name for path in (PACKAGE / "proto").glob("*.proto"))
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "descriptors.binpb"
        arguments = ["protoc", f"-I{PACKAGE / 'proto'}", f"--descriptor_set_out={out}", *files]
        if protoc.main(arguments):
            raise RuntimeError("protoc failed, see its message above")
        return out.read_bytes()


if __name__ == "__main__":
    DESCRIPTORS.write_bytes(generate())
    print(f"{DESCRIPTORS.name}: {DESCRIPTORS.stat().st_size} bytes")
