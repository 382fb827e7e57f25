"""What a record has of a scanner: its lists, and every call with its answer."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError, StatusCode
from kubedevices.testing import Bench
from tests.middleware_rig import scanned
from tests.waiting import until, until_sync
from tests.widgets import Widgets, widgets


class Able(Widgets, kd.Allocator, kd.PreferredAllocator, kd.ContainerPreStarter):
    """Answers itself; refuses w0 and never answers w9."""

    async def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        (asked,) = request.containers
        if "w9" in asked.device_ids:
            await asyncio.Event().wait()
        if "w0" in asked.device_ids:
            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, "w0 is worn out")
        return kd.AllocateResponse([kd.ContainerAllocateResponse(env={"TOKEN": "secret"})])

    def get_preferred_allocation(
        self, request: kd.PreferredAllocationRequest
    ) -> kd.PreferredAllocationResponse:
        return kd.PreferredAllocationResponse(tuple(c.available[-c.size :] for c in request[0]))

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        raise ValueError("not ready")


def recorded(scanner: kd.Recorded) -> list[dict[str, Any]]:
    """Return what the lines say, without time and resource, which are those of every line."""
    until_sync(lambda: not scanner.file.is_writing, timeout=60)
    path = scanner.file.path
    head, *found = [json.loads(line) for line in path.read_text().splitlines()]
    assert head["kubedevices-record"] == 1
    for line in found:
        assert line.pop("resource") == "example.com/widget"
        assert head["time"] <= line.pop("time") <= "2999"
    return found


LISTED = {"from": "plugin", "call": "ListAndWatch"}


async def test_calls_and_answers_are_written_in_order(tmp_path: Path) -> None:
    """Also errors, and a caller who hangs up; request and answer have one number."""
    path = tmp_path / "w.jsonl"
    scanner = kd.Recorded(Able(widget=widgets("w0", "w1")), "example.com", path, redact_env=True)
    async with scanned(scanner) as served:
        await served.allocate("w1")
        with pytest.raises(RpcError, match="worn out"):
            await served.allocate("w0")
        assert await served.prefer("w0 w1", 1, must="w1") == ["w1"]
        with pytest.raises(RpcError, match="not ready"):
            await served.server().pre_start_container(kd.PreStartContainerRequest(("w1",)))
        late = asyncio.create_task(served.allocate("w9"))
        await until(lambda: path.exists() and "w9" in path.read_text())
        late.cancel()
        await asyncio.wait({late})
    lines = recorded(scanner)
    options = {"preStartRequired": True, "getPreferredAllocationAvailable": True}
    devices = [{"ID": "w0", "health": "Healthy"}, {"ID": "w1", "health": "Healthy"}]
    assert lines[:2] == [
        {**LISTED, "message": {"devices": devices}},
        {"from": "plugin", "call": "GetDevicePluginOptions", "message": options},
    ]
    assert lines.pop() == {"from": "kubelet", "call": "Allocate", "id": 5, "hungUp": True}
    asked = {
        number: {key: line[key] for key in ("call", "message")}
        for line in lines
        if line["from"] == "kubelet" and (number := line["id"])
    }
    prefer = {"availableDeviceIDs": ["w0", "w1"], "mustIncludeDeviceIDs": ["w1"]}
    assert list(asked.values()) == [
        {"call": "Allocate", "message": {"containerRequests": [{"devicesIds": ["w1"]}]}},
        {"call": "Allocate", "message": {"containerRequests": [{"devicesIds": ["w0"]}]}},
        {
            "call": "GetPreferredAllocation",
            "message": {"containerRequests": [{**prefer, "allocationSize": 1}]},
        },
        {"call": "PreStartContainer", "message": {"devicesIds": ["w1"]}},
        {"call": "Allocate", "message": {"containerRequests": [{"devicesIds": ["w9"]}]}},
    ]
    answers = [line for line in lines if "id" in line and line["from"] == "plugin"]
    assert [answer.pop("id") for answer in answers] == [1, 2, 3, 4]
    assert [answer.get("message", answer.get("error")) for answer in answers] == [
        {"containerResponses": [{"envs": {"TOKEN": "REDACTED"}}]},
        {"code": "RESOURCE_EXHAUSTED", "message": "w0 is worn out"},
        {"containerResponses": [{"deviceIDs": ["w1"]}]},
        {"code": "UNKNOWN", "message": "not ready"},
    ]


def test_an_answer_of_the_framework_is_written_too(tmp_path: Path) -> None:
    """A plugin without an answer of its own: what its containers get is in the record."""
    plugin = Widgets(widget=[kd.Device("w0", env={"W": "0"}, paths=["/dev/null"])])
    scanner = kd.Recorded(plugin, "example.com", tmp_path / "w.jsonl")
    with Bench() as bench:
        bench.start(scanner, domain="example.com")
        bench.wait_for("example.com/widget", allocatable=1)
        bench.allocate("pod", "main", {"example.com/widget": 1})
    *_, request, answer = recorded(scanner)
    assert request["message"] == {"containerRequests": [{"devicesIds": ["w0"]}]}
    null = {"containerPath": "/dev/null", "hostPath": "/dev/null", "permissions": "rw"}
    assert answer["message"] == {"containerResponses": [{"envs": {"W": "0"}, "devices": [null]}]}
    assert answer["id"] == request["id"]


async def test_lists_are_written_as_they_change(tmp_path: Path) -> None:
    """Also that a type is no longer served."""
    plugin = Widgets(widget=widgets("w0", "w1"))
    scanner = kd.Recorded(plugin, "example.com", tmp_path / "w.jsonl")
    async with scanned(scanner) as served:
        plugin.show(widget=widgets("w0", "w1", unhealthy=("w1",)))
        await served.next_tree()
        plugin.show()
        await served.next_tree()
    bad = {"ID": "w1", "health": "Unhealthy"}
    assert recorded(scanner)[1:] == [
        {**LISTED, "change": {"devices": [bad], "removed": []}},
        {**LISTED, "gone": True},
    ]


async def test_a_record_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """The plugin serves; the lines are counted."""
    scanner = kd.Recorded(Able(widget=widgets("w1")), "example.com", tmp_path / "none" / "w.jsonl")
    async with scanned(scanner) as served:
        assert (await served.allocate("w1")).env == {"TOKEN": "secret"}
        await until(lambda: scanner.counts["", "record_lines_lost"] > 0)
    assert [*tmp_path.iterdir()] == []


class Editing(Widgets, kd.PostAllocator):
    """Leaves the answer to the framework, and edits it."""

    def post_allocate(self, response: kd.AllocateResponse, request: kd.AllocateRequest) -> None:
        for container in response.containers:
            container.env["EDITED"] = "1"


async def test_an_answer_is_written_as_the_plugin_has_edited_it(tmp_path: Path) -> None:
    """A replay would answer without the edits otherwise."""
    plugin = Editing(widget=[kd.Device("w0", env={"W": "0"})])
    scanner = kd.Recorded(plugin, "example.com", tmp_path / "w.jsonl")
    async with scanned(scanner) as served:
        assert (await served.allocate("w0")).env == {"W": "0", "EDITED": "1"}
    *_, answer = recorded(scanner)
    assert answer["message"] == {"containerResponses": [{"envs": {"W": "0", "EDITED": "1"}}]}


def request_for(*ids: str) -> kd.AllocateRequest:
    return kd.AllocateRequest((kd.ContainerAllocateRequest(ids),))


def answer_with(text: str) -> kd.AllocateResponse:
    return kd.AllocateResponse([kd.ContainerAllocateResponse(env={"W": text})])


async def test_answers_of_the_framework_belong_to_their_requests(tmp_path: Path) -> None:
    """In any order; two equal requests are two calls, and an answer without one gets one."""
    scanner = kd.Recorded(Widgets(widget=widgets("w0", "w1")), "example.com", tmp_path / "w.jsonl")
    async with scanned(scanner):
        relay = scanner.abilities_of("widget")
        assert isinstance(relay, kd.Relay)
        for name in ("w0", "w1", "w1"):
            await relay.allocate(request_for(name))
        for name, text in (("w1", "a"), ("w0", "b"), ("w1", "c"), ("w1", "d")):
            await relay.post_allocate(answer_with(text), request_for(name))
    calls = [line for line in recorded(scanner) if "id" in line]
    asked = [
        (line["id"], line["message"]["containerRequests"][0]["devicesIds"])
        for line in calls
        if line["from"] == "kubelet"
    ]
    answered = [
        (line["id"], line["message"]["containerResponses"][0]["envs"]["W"])
        for line in calls
        if line["from"] == "plugin"
    ]
    assert asked == [(1, ["w0"]), (2, ["w1"]), (3, ["w1"]), (4, ["w1"])]
    assert answered == [(2, "a"), (1, "b"), (3, "c"), (4, "d")]
