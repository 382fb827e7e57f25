"""Makes `descriptors.binpb` from the .proto files; `make proto` and a test run it."""

import tempfile
from pathlib import Path

from grpc_tools import protoc

from tests.kubelet_api.protobuf_classes import DESCRIPTORS

PACKAGE = Path(__file__).parents[2] / "src" / "kubedevices" / "kubelet_api"


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
