"""Bodies in the protobuf of Kubernetes: what client-go wrote, and the JSON of the same objects.

protobuf_bodies.json was written by a Go program with the serializers of k8s.io/apimachinery 0.36.
"""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kubedevices.testing.api_server.protobuf_bodies import CONTENT_TYPE, read_protobuf
from kubedevices.testing.api_server.server import ApiServer
from tests.testing.api_server.test_server import call

CASES = json.loads(Path(__file__).with_name("protobuf_bodies.json").read_text("utf-8"))
BODIES = [base64.b64decode(each["protobuf"]) for each in CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["json"]["kind"])
def test_a_body_is_the_json_of_its_object(case: dict[str, Any]) -> None:
    """Pointers to zero stay, empty values that Go leaves out are left out, numbers keep signs."""
    assert read_protobuf(base64.b64decode(case["protobuf"])) == case["json"]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(len(body)))
def test_a_broken_body_is_none(body: bytes) -> None:
    """Cut at each place, or with another beginning: no exception, and never another kind."""
    kind = (read_protobuf(body) or {})["kind"]
    for end in range(len(body)):
        found = read_protobuf(body[:end])
        assert found is None or found["kind"] == kind
    assert read_protobuf(b"k9s" + body[3:]) is None


def test_a_kind_that_nobody_reads_is_none() -> None:
    """A pod, for example: the server then says that it does not know the form."""
    about = b"\n\x02v1\x12\x03Pod"
    assert read_protobuf(b"k8s\0\n" + bytes([len(about)]) + about) is None


async def test_a_client_writes_protobuf_and_reads_json() -> None:
    """As client-go does: an object is created, and deleted with a body of options."""
    async with ApiServer().running() as server:
        port = int(server.url.rpartition(":")[2])
        path = "/api/v1/namespaces/default/configmaps"
        headers = {"Content-Type": CONTENT_TYPE, "Accept": f"{CONTENT_TYPE},application/json"}
        status, made = await asyncio.to_thread(call, port, "POST", path, headers, BODIES[-2])
        assert (status, made["data"]) == (201, {"k": "v"})
        place = f"{path}/{made['metadata']['name']}"
        # The preconditions of the options name another object.
        status, _ = await asyncio.to_thread(call, port, "DELETE", place, headers, BODIES[-1])
        assert status == 409
        assert len(server.find("configmaps")) == 1
