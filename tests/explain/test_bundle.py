"""`explain --bundle` and `--from`: the same answer elsewhere, no secrets, files of strangers."""

import asyncio
import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubedevices.explain import bundle
from kubedevices.explain.on_node.facts import Allocation
from kubedevices.values.allocation import ContainerAllocateResponse
from kubedevices.values.device import Health
from tests.command_line import CommandLine
from tests.explain import planted_faults as plant
from tests.explain.cluster_rig import DRIVER, Ask, SmallCluster
from tests.explain.test_planted_faults import FAULTS, name_of


@pytest.fixture
def read(cli: CommandLine) -> Ask:
    """Return what runs `explain` without an API server, beside this loop."""
    return partial(asyncio.to_thread, cli, "explain")


def packed(**members: object) -> bytes:
    """Return a bundle with these members; the names have the suffix .json."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as archive:
        for name, content in members.items():
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return found.getvalue()


def content_of(file: Path) -> Any:
    with tarfile.open(file) as archive:
        (member,) = archive.getmembers()
        found = archive.extractfile(member)
        assert found
        return json.load(found)


@pytest.mark.parametrize(
    "fault", [plant.all_held, plant.prepare_fails, plant.no_scheduler, plant.all_used], ids=name_of
)
async def test_a_bundle_gives_the_same_answer(
    fault: plant.Planted, tmp_path: Path, explain: Ask, read: Ask, cluster: SmallCluster
) -> None:
    """About a pod and a cluster; without words about its subject, which others can change."""
    file = tmp_path / "it.tar.gz"
    whole = tmp_path / "whole.tar.gz"
    fault(cluster)
    told = (await explain("pod", "train", "--bundle", file, code=1)).out
    about_all = (await explain("--bundle", whole, code=1)).out
    assert (await read("--from", file, code=1)).out == told
    assert (await read("--from", whole, code=1)).out == about_all
    assert (await read("pod", "train", "--from", whole, code=1)).out == told
    await read("node", "node2", "--from", whole, "-o", "json")
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_bundle_has_no_secrets(tmp_path: Path, explain: Ask, cluster: SmallCluster) -> None:
    """Only what is read of an object: no environment, annotations and parameters."""
    secret = "hunter2"
    claim = cluster.get("resourceclaims", "train-gpu")
    parameters = {"driver": DRIVER, "parameters": {"token": secret}}
    claim["spec"]["devices"]["config"] = [{"opaque": parameters}]
    claim["metadata"]["annotations"] = {"token": secret}
    cluster.forget("resourceclaims", "train-gpu")
    cluster.put("resourceclaims", claim)
    pod = cluster.get("pods", "train")
    pod["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": secret}]
    pod["metadata"]["annotations"] = {"token": secret}
    cluster.put("pods", pod)
    await explain("--bundle", tmp_path / "it")
    text = json.dumps(content_of(tmp_path / "it"))
    assert "train-gpu" in text
    assert secret not in text
    answer = ContainerAllocateResponse(env={"A": secret}, annotations={"b": secret})
    shown = bundle.plain(Allocation("uid", "main", "example.com/r", ("d",), answer))
    assert shown["response"]["env"] == {"A": "7 characters"}
    assert secret not in json.dumps(shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([None, True, 1.5, "text"], [None, True, 1.5, "text"]),
        ({("gpu", "a"): (1, 2)}, {"gpu a": [1, 2]}),
        ({"b", "a"}, ["a", "b"]),
        (b"four", "4 bytes"),
        (Health.UNHEALTHY, "Unhealthy"),
        (Path("/dev/a"), "/dev/a"),
    ],
)  # fmt: skip
def test_facts_become_values_of_json(value: object, shown: object) -> None:
    """What JSON has stays as it is; the rest is a text, and never the content of a file."""
    assert bundle.plain(value) == shown


def test_a_bundle_of_a_node_has_findings_and_facts(short_dir: Path, cli: CommandLine) -> None:
    """`--from` prints the findings again, in each form; it is about this node alone."""
    file, directory = short_dir / "node.tar.gz", short_dir / "plugins"
    directory.mkdir()
    where = ("--socket-dir", directory, "--host-root", short_dir)
    told = cli("explain", *where, "--bundle", file, code=1).out
    assert cli("explain", "--from", file, code=1).out == told
    found = cli("explain", "--from", file, "-o", "json", code=1).data
    content = content_of(file)
    assert content["answer"] == found
    assert content["facts"]["directory"]["path"] == str(directory)
    err = cli("explain", "example.com/gpu", "--from", file, code=2).err
    assert "has the answer about the whole node alone" in err


async def test_an_existing_file_stays(tmp_path: Path, explain: Ask) -> None:
    """Exit code 2, and the file is as before."""
    file = tmp_path / "mine"
    file.write_text("mine")
    shown = await explain("--bundle", file, code=2)
    assert file.read_text() == "mine"
    assert f"{file} cannot be written, choose another: File exists" in shown.err


ABOUT: Mapping[str, object] = {"format": 1, "kubedevices": "0.1.0", "subject": []}
NODE = {"about": ABOUT, "answer": {"socket_dir": "/d", "source": "", "findings": []}}
FINDING = {"step": "held", "result": "ok", "looked_at": "x", "found": "y"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is damaged, or no bundle"),
        (b"not gzip", "is damaged, or no bundle"),
        (gzip.compress(b"not tar"), "is damaged, or no bundle"),
        (packed(other={}), "it has no cluster.json or node.json"),
        (packed(node=b"{"), "is damaged, or no bundle"),
        (packed(node=b"[" * 100_000), "is damaged, or no bundle"),
        (packed(node=[]), "node.json must be an object"),
        (packed(node=NODE), "answer.resources"),
        (packed(cluster={"about": ABOUT}), "cluster.json.objects"),
        (
            packed(node={**NODE, "about": {**ABOUT, "format": 2, "kubedevices": "9"}}
                   | {"answer": {**NODE["answer"], "resources": []}}),
            "written by kubedevices 9, in a form that is not known",
        ),
        (
            packed(node={**NODE, "answer": {**NODE["answer"], "resources": [],
                                            "findings": [{**FINDING, "step": "dance"}]}}),
            "'dance' is not a valid Step",
        ),
    ],
    ids=range(11),
)  # fmt: skip
def test_a_file_that_is_no_bundle_is_named(
    data: bytes, problem: str, tmp_path: Path, cli: CommandLine
) -> None:
    """Exit code 2, never a traceback."""
    file = tmp_path / "it"
    file.write_bytes(data)
    assert problem in cli("explain", "--from", file, code=2).err


def test_a_bundle_that_unpacks_to_more_than_the_limit_is_refused(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not unpacked any further."""
    monkeypatch.setattr(bundle, "LIMIT", 10_000)
    file = tmp_path / "it"
    file.write_bytes(packed(node=b" " * 1_000_000))
    assert "is damaged, or no bundle" in cli("explain", "--from", file, code=2).err


def test_texts_of_a_bundle_are_safe_for_terminals(tmp_path: Path, cli: CommandLine) -> None:
    """A stranger may have written them."""
    evil = {**FINDING, "found": "\x1b]0;evil\x07", "command": "a\nb"}
    answer = {**NODE["answer"], "resources": [], "findings": [evil], "source": "\x1b[2J"}
    file = tmp_path / "it"
    file.write_bytes(packed(node={"about": ABOUT, "answer": answer}))
    assert "\x1b" not in cli("explain", "--from", file).out


async def test_a_bundle_is_asked_without_an_api_server(
    tmp_path: Path, explain: Ask, read: Ask, cluster: SmallCluster
) -> None:
    """And both options together are refused."""
    plant.all_held(cluster)
    await explain("--bundle", tmp_path / "it", code=1)
    shown = await read("claim", "train-gpu", "--from", tmp_path / "it", code=1)
    assert FAULTS[plant.all_held] in shown.out
    await read("--from", "a", "--bundle", "b", code=2)
