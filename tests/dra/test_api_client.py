"""The calls to the API server, and the errors of failed calls."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.kubeconfig import ApiAccess
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.testing.api_server import ApiFault
from kubedevices.values.allocation import ClaimReference
from tests.dra.cluster import OneNode, claim_of

POOL = {"name": "node1", "generation": 1, "resourceSliceCount": 1}
SPEC = {"driver": "example.com", "nodeName": "node1", "pool": POOL, "devices": []}
CLAIM = ClaimReference("default", "uid-1", "one")


async def test_a_claim_is_read(server: OneNode) -> None:
    """By namespace and name."""
    server.give("one", claim_of("uid-1", "gpu-0"))
    found = await ApiClient(server.access).get_claim(CLAIM)
    assert found == server.get("resourceclaims", "one")
    assert found["metadata"]["uid"] == "uid-1"
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one"
    assert [(each.method, each.path) for each in server.requests] == [("GET", path)]


async def test_all_claims_are_listed_page_by_page(
    server: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster may have very many claims."""
    client, asked = ApiClient(server.access), []
    pages = iter([{"items": [{}], "metadata": {"continue": "next"}}, {"items": None}])

    async def answer(call: Any) -> Any:
        asked.append(call.query)
        return next(pages)

    monkeypatch.setattr(client, "_do", answer)
    assert [page async for page in client.claim_pages()] == [[{}], []]
    assert asked == [{"limit": "500"}, {"limit": "500", "continue": "next"}]


async def test_a_slice_is_created_replaced_watched_and_deleted(server: OneNode) -> None:
    """The five calls about slices."""
    api = ApiClient(server.access)
    made = await api.create_slice({"metadata": {"generateName": "a-"}, "spec": SPEC})
    found, version = await api.list_slices("example.com", "node1")
    about = {"kind": made["kind"], "apiVersion": made["apiVersion"]}
    assert [each | about for each in found] == [made], "the items of a list have neither"
    newer = await api.update_slice(made | {"spec": SPEC | {"devices": [{"name": "gpu-0"}]}})
    async with contextlib.aclosing(api.watch_slices("example.com", "node1", version)) as events:
        assert (await anext(events))["object"] == newer
    with pytest.raises(ApiRefused) as conflict:
        await api.delete_slice(made)
    assert conflict.value.status == 409
    await api.delete_slice(newer)
    assert await api.list_slices("example.com", "node1") == ([], str(int(version) + 2))


async def test_a_refusal_has_the_text_of_the_server(server: OneNode) -> None:
    """Reason and message of the server's Status, and the time of Retry-After."""
    server.fault = lambda _request: ApiFault(429, "slow down", "TooManyRequests", retry_after=3)
    with pytest.raises(ApiRefused, match="cannot get nodes: slow down") as refused:
        await ApiClient(server.access).get_node("node1")
    assert (refused.value.status, refused.value.reason) == (429, "TooManyRequests")
    assert refused.value.retry_after == 3


async def test_a_refusal_by_a_policy_names_no_rule(server: OneNode) -> None:
    """RBAC permits the request, so another rule would not help."""
    text = "resourceslices is forbidden: ValidatingAdmissionPolicy 'a' with binding 'a' denied"
    server.answer_all(403, text)
    with pytest.raises(ApiRefused, match="denied") as caught:
        await ApiClient(server.access).list_slices("example.com", "node1")
    assert not caught.value.missing_rule


async def test_a_missing_permission_names_the_rule(server: OneNode) -> None:
    """The error has the RBAC rule, so that the administrator can paste it."""
    server.answer_all(403, "forbidden")
    api = ApiClient(server.access)
    with pytest.raises(ApiRefused) as refused:
        await api.list_slices("example.com", "node1")
    rule = '{apiGroups: ["resource.k8s.io"], resources: [resourceslices], verbs: [list]}'
    assert refused.value.missing_rule == rule
    with pytest.raises(ApiRefused, match=r'apiGroups: \[""\], resources: \[nodes\]'):
        await api.get_node("node1")


@pytest.mark.parametrize("status", [0, -1])
async def test_a_server_that_does_not_answer_is_unreachable(server: OneNode, status: int) -> None:
    """It closes the connection, or sends nothing."""
    server.answer_all(status)
    with pytest.raises(ApiUnreachable, match=server.url):
        await ApiClient(server.access, timeout=0.5).get_node("node1")


async def test_an_api_server_that_does_not_listen_is_unreachable() -> None:
    """As while the API server restarts."""
    async with OneNode().running() as gone:
        pass
    api = ApiClient(gone.access)
    with pytest.raises(ApiUnreachable):
        await api.get_node("node1")
    with pytest.raises(ApiUnreachable):
        await anext(api.watch_slices("example.com", "node1", "1"))


async def test_a_token_that_was_replaced_counts_at_once(server: OneNode, tmp_path: Path) -> None:
    """The kubelet writes a new token every hour."""
    token = tmp_path / "token"
    api = ApiClient(ApiAccess(server.url, token=token))
    for word in ("first", "second"):
        token.write_text(f"{word}\n")
        await api.get_node("node1")
    assert [each.token for each in server.requests] == ["first", "second"]
    token.unlink()
    with pytest.raises(ApiUnreachable, match="No such file"):
        await api.get_node("node1")


async def test_an_answer_without_json_is_refused(server: OneNode) -> None:
    """A proxy in between may answer for the server."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
    server.fault = lambda _request: ApiFault(200, raw=answer)
    with pytest.raises(ApiRefused, match="the answer must be an object"):
        await ApiClient(server.access).get_node("node1")
