"""`kubedevices devices --cluster`, on the stand-in for an API server."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubedevices.cli import verb_parser
from kubedevices.cli.node import devices_cluster
from kubedevices.cli.shared.cluster_client import connect
from kubedevices.testing.api_server import HANG_UP
from tests.cli.commands import running
from tests.command_line import CommandLine
from tests.docs.pages import ROOT
from tests.explain.cluster_rig import DRIVER, Ask, SmallCluster, gpu
from tests.waiting import until

TAINT = {"key": "example.com/ecc", "value": "lost", "effect": "NoSchedule"}
Listed = Callable[..., Any]


@pytest.fixture
def listed(ask: Ask) -> Listed:
    """Return what runs `devices --cluster` and gives what it prints."""

    async def run(*words: str, code: int = 0) -> str:
        return (await ask("devices", "--cluster", *words, code=code)).out

    return run


def reporting(*devices: tuple[str, str], name: str, kind: str = "containerStatuses") -> Any:
    """Return the status of a pod in which a kubelet names its devices: ID and health."""
    found = [{"resourceID": device, "health": health} for device, health in devices]
    return {
        kind: [{"name": "main", "allocatedResourcesStatus": [{"name": name, "resources": found}]}]
    }


async def test_one_table_has_the_devices_of_both_apis(
    cluster: SmallCluster, listed: Listed
) -> None:
    """Those of slices by name; of a device plugin the numbers, and what pods say that they have.

    The example of the page is this cluster.
    """
    cluster.publish("node2", gpu("gpu-0", taints=[TAINT]), gpu("gpu-1"))
    cluster.hold("node1", "bert", namespace="ml")
    health = reporting((f"{DRIVER}/node1/gpu-0", "Unhealthy"), name="claim:bert-gpu/gpu")
    cluster.pod("bert", claims=["bert-gpu"], node="node1", namespace="ml", status=health)
    cluster.allocate("train-gpu", "train", "node1")
    cluster.offer("node1", "example.com/fpga", 4, 3)
    cluster.offer("node2", "example.com/fpga", 2)
    cluster.offer("node2", "memory", 2)
    limits = {"example.com/fpga": "1", "memory": "1Gi"}
    named = reporting(("fpga-7", "Healthy"), name="example.com/fpga")
    cluster.pod("video", node="node1", limits=limits, status=named)
    cluster.pod("audio", node="node1", limits={"example.com/fpga": "2"})
    ended = {"phase": "Succeeded"} | named
    cluster.pod("done", node="node2", limits=limits, status=ended)
    example = (ROOT / "docs/observe.md").read_text().partition("$ kubedevices devices --cluster\n")
    assert await listed() == example[2].partition("```")[0]


async def test_json_has_the_promised_keys(cluster: SmallCluster, listed: Listed) -> None:
    """They do not change; a resource or a driver chooses."""
    cluster.hold("node1", "bert", namespace="ml")
    cluster.offer("node1", "example.com/fpga", 4, 3)
    cluster.pod("audio", node="node1", limits={"example.com/fpga": "2"})
    found = json.loads(await listed(DRIVER, "-o", "json"))
    assert [*found] == ["devices", "resources", "problems", "notes", "unread"]
    assert len(found["devices"]) == 4
    assert not found["resources"]
    assert found["devices"][0] == {
        "node": "node1",
        "resource": DRIVER,
        "api": "dra",
        "pool": "node1",
        "device": "gpu-0",
        "published": True,
        "health": "",
        "taints": [],
        "held_by": [{"namespace": "ml", "pod": "bert", "claim": "bert-gpu"}],
        "is_conflict": False,
    }
    found = json.loads(await listed("example.com/fpga", "-o", "json"))
    assert not found["devices"]
    assert found["resources"] == [
        {
            "node": "node1",
            "resource": "example.com/fpga",
            "capacity": 4,
            "allocatable": 3,
            "held": 2,
            "held_by": [{"namespace": "default", "pod": "audio", "number": 2}],
        }
    ]


async def test_a_device_with_two_holders_stands_out(cluster: SmallCluster, listed: Listed) -> None:
    """In either API; those who share a device, or only watch it, are no second holders."""
    cluster.hold("node1", "bert", namespace="ml")
    claim = cluster.get("resourceclaims", "bert-gpu", "ml")
    for name, more in (("thief", {}), ("watcher", {"adminAccess": True})):
        result = claim["status"]["allocation"]["devices"]["results"][0] | more
        devices = {"results": [result]}
        status = claim["status"] | {"allocation": {"devices": devices}, "reservedFor": []}
        metadata = {"name": name, "namespace": "ml"}
        made = {"metadata": metadata, "spec": claim["spec"], "status": status}
        cluster.put("resourceclaims", made)
    for pod in ("a", "b"):
        kind = "initContainerStatuses" if pod == "b" else "containerStatuses"
        status = reporting(("fpga-7", "Healthy"), name="example.com/fpga", kind=kind)
        cluster.pod(pod, node="node1", limits={"example.com/fpga": "1"}, status=status)
    cluster.offer("node1", "example.com/fpga", 4)
    shown = await listed()
    assert "2 HOLDERS: ml/bert (claim bert-gpu), no pod (claim ml/thief)\n" in shown
    assert "2 HOLDERS: default/a, default/b\n" in shown
    assert shown.endswith(
        "\n\n"
        f"{DRIVER}/node1/gpu-0 has 2 holders: pod ml/bert through claim ml/bert-gpu; "
        "the claim ml/thief, which no pod uses\n"
        "fpga-7 of example.com/fpga on node node1 has 2 holders: pods default/a, default/b\n"
    )
    assert "thief, which no pod uses" in await listed(DRIVER)
    assert "thief" not in await listed("example.com/fpga")
    found = json.loads(await listed("-o", "json"))
    assert [each["device"] for each in found["devices"] if each["is_conflict"]] == [
        "gpu-0",
        "fpga-7",
    ]


async def test_a_device_that_claims_share_has_no_conflict(
    cluster: SmallCluster, listed: Listed
) -> None:
    shared = gpu("gpu-0", allowMultipleAllocations=True)
    cluster.publish("node1", shared)
    for pod in ("a", "b"):
        cluster.hold("node1", pod)
    (held, *_) = json.loads(await listed("-o", "json"))["devices"]
    assert [each["pod"] for each in held["held_by"]] == ["a", "b"]
    assert not held["is_conflict"]


async def test_a_held_device_without_a_slice_is_gone(cluster: SmallCluster, listed: Listed) -> None:
    """It is on the node of its pod. Slices that cannot be read say nothing about it."""
    cluster.hold("node1", "bert")
    cluster.unpublish("node1")
    assert "node1  gpu.example.com     gpu-0   gone " in await listed()
    cluster.forbid("resourceslices")
    assert "node1  gpu.example.com     gpu-0   - " in await listed()


async def test_devices_of_several_nodes_have_no_node(cluster: SmallCluster, listed: Listed) -> None:
    """All nodes, those of a selector, or what each device says."""
    zone = {"key": "zone", "operator": "In", "values": ["1"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    for name, spec in (
        ("all", {"allNodes": True, "devices": [gpu("a")]}),
        ("some", {"nodeSelector": selector, "devices": [gpu("b")]}),
        ("each", {"perDeviceNodeSelection": True, "devices": [gpu("c", nodeName="node2")]}),
    ):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        made = {"driver": "net.example.com", "pool": pool, **spec}
        cluster.put("resourceslices", {"metadata": {"name": name}, "spec": made})
    found = json.loads(await listed("net.example.com", "-o", "json"))["devices"]
    assert [(each["device"], each["node"]) for each in found] == [
        ("a", "*"),
        ("c", "node2"),
        ("b", "several"),
    ]


async def test_an_incomplete_pool_is_told(cluster: SmallCluster, listed: Listed) -> None:
    pool = {"name": "node1", "generation": 2, "resourceSliceCount": 2}
    cluster.publish("node1", gpu("gpu-0"), pool=pool)
    assert (
        "pool gpu.example.com/node1 has 1 of 2 slices of generation 2: none of its devices is "
        "allocated before all slices are there"
    ) in await listed()


@pytest.mark.parametrize(
    ("plurals", "code"),
    [(("pods",), 0), (("resourceslices",), 0), (("nodes", "resourceslices"), 3)],
)
async def test_missing_rights_are_named_below_the_table(
    plurals: tuple[str, ...], code: int, cluster: SmallCluster, listed: Listed
) -> None:
    """The rest is shown; without slices and nodes nothing is known."""
    cluster.hold("node1", "bert")
    cluster.forbid(*plurals)
    shown = await listed(code=code)
    assert "(claim bert-gpu)" in shown
    for plural in plurals:
        assert f"not read: {plural}: you need the RBAC rule {{apiGroups: [" in shown


async def test_a_cluster_without_devices(cluster: SmallCluster, ask: Ask) -> None:
    """It is not said of a cluster whose devices may not be read."""
    for node in ("node1", "node2"):
        cluster.unpublish(node)
    err = (await ask("devices", "--cluster")).err
    assert err.startswith("no devices: no driver has published any")
    cluster.forbid("nodes", "resourceslices")
    assert (await ask("devices", "--cluster", code=3)).err == "no devices may be read\n"


async def test_one_namespace_is_read_if_not_all_may_be(
    cluster: SmallCluster, listed: Listed
) -> None:
    """That of `--namespace`."""
    cluster.hold("node1", "bert", namespace="ml")
    cluster.forbid("pods", "resourceclaims", only_wide=True)
    shown = await listed("-n", "ml")
    assert "ml/bert (claim bert-gpu)" in shown
    assert "only those resourceclaims of the namespace ml were read: you need" in shown
    assert "bert" not in await listed("-n", "other")


async def test_an_unknown_name_is_an_error_with_a_suggestion(
    cluster: SmallCluster, ask: Ask
) -> None:
    assert (await ask("devices", "--cluster", "gpu.exmple.com", code=1)).err == (
        "kubedevices: no node has the resource or driver gpu.exmple.com; this cluster has "
        "gpu.example.com, did you mean 'gpu.example.com'?\n"
    )


async def test_names_of_strangers_are_harmless(cluster: SmallCluster, listed: Listed) -> None:
    """Neither a device plugin nor who writes pods can move the cursor."""
    bad = reporting(("x\x1b[2J\n::error::y", "Healthy\r"), name="example.com/fpga")
    cluster.pod("evil\x1b[31m", node="node1", limits={"example.com/fpga": "1"}, status=bad)
    cluster.offer("node1", "example.com/fpga", 4)
    shown = await listed()
    assert shown.replace("\n", "").isprintable()
    assert r"x\x1b[2J\n::error::y" in shown


async def test_watching_survives_a_lost_api_server(
    cluster: SmallCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every change is printed; a server that is away is said once, and asked again."""
    monkeypatch.setattr(devices_cluster, "_PAUSE", 0.01)
    config = tmp_path / "config"
    config.write_text(cluster.kubeconfig())
    words = ["--watch", "-o", "json", "--kubeconfig", str(config)]
    args = verb_parser(devices_cluster).parse_args(words)
    out, err = [""], [""]

    def printed() -> int:
        for before, new in zip((out, err), capsys.readouterr(), strict=True):
            before[0] += new
        return out[0].count("\n")

    watching = asyncio.ensure_future(devices_cluster._watch(*connect(args), args))
    try:
        await until(lambda: printed() == 1)
        cluster.fault = lambda _: HANG_UP
        seen = len(cluster.requests)
        await until(lambda: len(cluster.requests) > seen + 20)
        cluster.fault = lambda _: None
        cluster.publish("node1", gpu("gpu-9"))
        await until(lambda: printed() == 2)
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    first, second = (json.loads(line) for line in out[0].splitlines())
    assert [len(each["devices"]) for each in (first, second)] == [4, 3]
    assert err[0].startswith(f"the API server {cluster.url} cannot be reached: ")
    assert err[0].count("\n") == err[0].count("; asking again\n") == 1


async def test_a_server_that_is_away_from_the_beginning_ends_the_watch(
    cluster: SmallCluster, ask: Ask
) -> None:
    """The address is probably wrong."""
    cluster.fault = lambda _: HANG_UP
    assert "cannot be reached" in (await ask("devices", "--cluster", "--watch", code=3)).err


async def test_ctrl_c_ends_the_watch(cluster: SmallCluster, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(cluster.kubeconfig())

    def watch() -> int | None:
        words = ["devices", "--cluster", "--watch", "--kubeconfig", config]
        with running(words, log=tmp_path / "log") as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("NODE ")
            process.send_signal(signal.SIGINT)
            return process.wait(30)

    assert await asyncio.to_thread(watch) == 130
    assert (tmp_path / "log").read_text() == ""


def test_a_kubeconfig_means_a_cluster(cli: CommandLine) -> None:
    """As for `explain`; nobody asks a node with it."""
    assert "cannot read /nowhere" in cli("devices", "--kubeconfig", "/nowhere", code=3).err
