"""A record in the place of a plugin: its lists in their time, and its answers."""

import json
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.cli import main
from kubedevices.errors import RpcError, StatusCode, UsageError
from kubedevices.proxy.replay import Replay
from kubedevices.testing import Bench, Replayer, conformance
from tests.check.rig import FAST
from tests.middleware_rig import Scanned, scanned
from tests.proxy.test_record_reader import GPU, answered, asked, listed, record, said
from tests.waiting import until_sync
from tests.widgets import QUICK, Widgets, widgets


async def ask(served: Scanned, *containers: tuple[str, ...]) -> list[dict[str, str]]:
    request = kd.AllocateRequest(tuple(map(kd.ContainerAllocateRequest, containers)))
    answer = await served.server("gpu", relay=True).allocate(request)
    return [each.env for each in answer.containers]


def test_lists_are_replayed_at_their_times(tmp_path: Path, bench: Bench, replay: Replayer) -> None:
    """The first at once; at a tenth of the speed it takes ten times as long; the last stays.

    `bench.advance` moves the time of the record, so a test of minutes takes none.
    """
    path = record(
        tmp_path / "r",
        listed(0, "g0"),
        listed(20, "g0", "g1"),
        said(40, call="ListAndWatch", gone=True),
        listed(59, "g2"),
    )
    plugin = replay(path, speed=0.1)
    bench.wait_for(GPU, allocatable=1)
    bench.advance(seconds=201)
    bench.wait_for(GPU, allocatable=2)
    bench.advance(seconds=200)
    bench.wait_for(GPU, allocatable=0)
    bench.advance(seconds=200)
    bench.wait_for(GPU, allocatable=1)
    assert [*bench.devices(GPU)] == ["g2"]
    assert plugin.is_running


async def test_calls_get_the_recorded_answers(tmp_path: Path) -> None:
    """By the devices, in any order: first as the first time, then as the last time; errors too."""
    path = record(
        tmp_path / "r",
        listed(0, "g0", "g1"),
        *(asked(1, 1, "g0", "g1"), answered(1, 1, N="first")),
        *(asked(2, 2, "g1", "g0"), answered(2, 2, N="second")),
        *(asked(3, 3, "g0"), answered(3, 3, N="g0")),
        asked(4, 4, "g1"),
        said(4, call="Allocate", id=4, error={"code": "RESOURCE_EXHAUSTED", "message": "worn"}),
        asked(5, 5, "g2"),
    )
    async with scanned(Replay(path)) as served:
        for expected in ("first", "second", "second"):
            assert await ask(served, ("g1", "g0")) == [{"N": expected}]
        # Two containers, each of which asked alone.
        assert await ask(served, ("g0",), ("g0", "g1")) == [{"N": "g0"}, {"N": "second"}]
        with pytest.raises(RpcError, match="worn") as refused:
            await ask(served, ("g1",))
        assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(RpcError, match="g2: the plugin never answered"):
            await ask(served, ("g2",))
        with pytest.raises(RpcError) as refused:
            await ask(served, ("g9",))
    assert refused.value.message == (
        "example.com/gpu: the record has no answer to Allocate of g9; recorded requests: "
        "g0,g1, g0, g1, g2"
    )


async def test_the_other_calls_are_answered_too(tmp_path: Path) -> None:
    """Where the plugin said that it has them."""
    options = {"preStartRequired": True, "getPreferredAllocationAvailable": True}
    prefer = {"availableDeviceIDs": ["g0", "g1"], "allocationSize": 1}
    kubelet = {"from": "kubelet"}
    path = record(
        tmp_path / "r",
        listed(0, "g0", "g1"),
        said(0, call="GetDevicePluginOptions", message=options),
        {
            **said(1, call="GetPreferredAllocation", id=1, message={"containerRequests": [prefer]}),
            **kubelet,
        },
        said(
            1,
            call="GetPreferredAllocation",
            id=1,
            message={"containerResponses": [{"deviceIDs": ["g1"]}]},
        ),
        {**said(2, call="PreStartContainer", id=2, message={"devicesIds": ["g1"]}), **kubelet},
        said(2, call="PreStartContainer", id=2, message={}),
    )
    async with scanned(Replay(path)) as served:
        assert await served.prefer("g1 g0", 1, device_type="gpu") == ["g1"]
        with pytest.raises(RpcError, match="GetPreferredAllocation of 2 of g0,g1; recorded"):
            await served.prefer("g0 g1", 2, device_type="gpu")
        server = served.server("gpu")
        await server.pre_start_container(kd.PreStartContainerRequest(("g1",)))
        with pytest.raises(RpcError, match="PreStartContainer of g0; recorded requests: g1"):
            await server.pre_start_container(kd.PreStartContainerRequest(("g0",)))


def test_a_plugin_has_one_domain(tmp_path: Path) -> None:
    """Which, is said by the record or by the caller."""
    other = {**listed(0, "d0"), "resource": "other.example/disk"}
    path = record(tmp_path / "r", listed(0, "g0"), other)
    with pytest.raises(UsageError, match=r"choose one of example\.com, other\.example"):
        Replay(path)
    assert Replay(path, domain="other.example").domain == "other.example"
    with pytest.raises(UsageError, match=r"no resource of 'x': example\.com, other\.example"):
        Replay(path, domain="x")
    with pytest.raises(UsageError, match="the record has no resource"):
        Replay(record(tmp_path / "e"))
    with pytest.raises(UsageError, match="speed must be more than 0"):
        Replay(path, speed=0)


def test_a_dry_run_of_a_record_shows_its_last_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all its domains, by the rules of a file; that the plugin is gone at the end is no list."""
    disk = {**listed(1, "d0"), "resource": "other.example/disk"}
    gone = said(9, call="ListAndWatch", gone=True)
    path = record(tmp_path / "r", listed(0, "g0"), listed(5, "g0", "g1"), disk, gone)
    rules = tmp_path / "rules.yaml"
    rules.write_text("resources: {example.com/gpu: {filter: {ids: [g0]}, share: {replicas: 2}}}")
    words = ["proxy", "--state-dir", str(tmp_path), "--config", str(rules), "--record", str(path)]
    assert main([*words, "--dry-run", "-o", "json"]) == 0
    found = [
        (each["plugin"], each["resource"], each["id"])
        for each in json.loads(capsys.readouterr().out)
    ]
    assert found == [
        (GPU, GPU, "g1::0"),
        (GPU, GPU, "g1::1"),
        ("other.example/disk", "other.example/disk", "d0"),
    ]
    assert main(words) == 2
    assert "--record needs --dry-run" in capsys.readouterr().err


class Good(Widgets, kd.Allocator, kd.PreferredAllocator, kd.ContainerPreStarter):
    """Has every call, and an answer for each device."""

    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        known = self.tree.devices("widget")
        asked = {each for container in request.containers for each in container.device_ids}
        if unknown := asked - known.keys():
            raise RpcError(StatusCode.NOT_FOUND, f"unknown: {sorted(unknown)}")
        return kd.AllocateResponse(
            [
                kd.ContainerAllocateResponse(env={"W": ",".join(container.device_ids)})
                for container in request.containers
            ]
        )

    def get_preferred_allocation(
        self, request: kd.PreferredAllocationRequest
    ) -> kd.PreferredAllocationResponse:
        return kd.PreferredAllocationResponse(
            tuple(
                (*each.must_include, *sorted({*each.available} - {*each.must_include}))[: each.size]
                for each in request.containers
            )
        )

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        pass


def test_a_replayed_plugin_is_judged_as_the_recorded_one(tmp_path: Path) -> None:
    """`check` says the same of both, and two replays say the same to each other's record."""
    themes = ["allocate", "preferred", "prestart"]

    def judged(scanner: kd.Recorded) -> dict[str, str]:
        results = conformance(
            scanner, domain="example.com", only=themes, check_timing=FAST, timing=QUICK, relay=True
        )
        until_sync(lambda: not scanner.file.is_writing, timeout=60)
        return {each.check.id: each.status.value for each in results}

    paths = [tmp_path / name for name in ("first", "second", "third")]
    first = judged(kd.Recorded(Good(widget=widgets("w0", "w1", "w2")), "example.com", paths[0]))
    assert len([each for each in first.values() if each == "pass"]) > 10
    again = [judged(kd.Recorded(Replay(paths[0]), "example.com", path)) for path in paths[1:]]
    assert again == [first, first]
    assert answers(paths[1]) == answers(paths[2]) == answers(paths[0])


def answers(path: Path) -> list[str]:
    """Return which answers there are to which questions; who hangs up may be too late for that."""
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    by_number: dict[int, list[object]] = {}
    for line in lines:
        if "id" in line:
            found = by_number.setdefault(line["id"], [line["call"]])
            found.append(line.get("message", line.get("error")))
    texts = {json.dumps(each, sort_keys=True) for each in by_number.values()}
    return sorted(text for text in texts if "null" not in text)
