"""The certificate of the stand-in for an API server."""

import asyncio
import ssl

import pytest

from kubedevices.testing.api_server import ApiServer
from kubedevices.testing.api_server.certificate import CA

LIMIT = 10.0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
async def test_a_client_with_the_ca_trusts_the_server(host: str) -> None:
    """By address and by the names of the API server in a cluster, checked strictly."""
    context = ssl.create_default_context(cadata=CA)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    async with ApiServer(tls=True).running() as server, asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.tls_port, ssl=context, server_hostname=host
        )
        request = f"GET /api/v1/nodes HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        assert b"NodeList" in await reader.read()
        writer.close()
    assert [each.resource for each in server.requests] == ["nodes"]


async def test_a_client_without_the_ca_does_not() -> None:
    """Nobody trusts it by accident."""
    async with ApiServer(tls=True).running() as server, asyncio.timeout(LIMIT):
        context = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", server.tls_port, ssl=context)
    assert not server.requests
