"""Makes `wire/generated/descriptors.binpb` from `wire/proto`; `make proto` and a test run it."""

import tempfile
from pathlib import Path

from grpc_tools import protoc

PACKAGE = Path(__file__).parents[2] / "src" / "kubedevices" / "wire"
TARGET = PACKAGE / "generated" / "descriptors.binpb"


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
    TARGET.write_bytes(generate())
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")
