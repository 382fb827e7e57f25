"""The metadata files that containers read about the devices of their claims (KEP-5304)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.config.documents.json_text import read_json_stream
from kubedevices.dra.claims import Result
from kubedevices.dra.metadata import (
    POD_CLAIM,
    ClaimNames,
    RequestMetadata,
    metadata_of,
    names_in_files,
    names_of,
)
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.prepared_file import FILE_NAME
from kubedevices.dra.slices import offer_of
from kubedevices.errors import ApiUnreachable, ClaimRefused, PreparedUnwritable
from kubedevices.host import cdi_specs
from kubedevices.host.cdi_specs import read_registry
from kubedevices.testing import Bench
from kubedevices.values.allocation import ClaimDevice, ClaimReference
from kubedevices.values.cdi import CdiMount
from tests.dra.cluster import claim_of, claim_service
from tests.planted import Outside, clear, plant

DRIVER = "example.com"
UIDS = [f"0000000{i}-0000-4000-8000-000000000000" for i in range(3)]
ONE, TWO = (ClaimReference("default", UIDS[i], f"claim{i}") for i in (1, 2))
PLACE = "/var/run/kubernetes.io/dra-device-attributes"


class Node:
    """A driver's directory and its API server, whose claims are in `claims`."""

    def __init__(self, directory: Path) -> None:
        self.file, self.cdi_dir = directory / "state" / FILE_NAME, directory / "cdi"
        self.claims: dict[str, Any] = {ONE.name: claim_of(ONE.uid, "gpu-0", "gpu-1")}

    async def start(self, boot: str = "boot-1", *, metadata: bool = True) -> None:
        """Start the next process of the driver, in the boot `boot`."""
        self.preparation = Preparation(DRIVER, "node1", self.file, self.cdi_dir, boot)
        self.service = claim_service(self, self.preparation, object(), metadata=metadata)
        await self.service.work.start()
        self.offer("T4")

    def offer(self, model: str) -> None:
        devices = [kd.Device(f"gpu-{i}", attributes={"model": model}) for i in range(2)]
        self.service.update(offer_of(kd.DeviceTree({"gpu": devices}), DRIVER))

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        found = self.claims.get(claim.name)
        if not isinstance(found, dict):
            raise ApiUnreachable("here", "gone")
        answer: dict[str, Any] = json.loads(json.dumps(found))
        return answer

    async def prepare(self, claim: ClaimReference = ONE) -> tuple[ClaimDevice, ...]:
        answer = (await self.service.prepare((claim,)))[claim.uid]
        assert not isinstance(answer, str), answer
        return answer

    def mounts(self, answer: tuple[ClaimDevice, ...]) -> list[CdiMount]:
        """What a container engine mounts for an answer."""
        registry = read_registry([self.cdi_dir])
        found = [registry.explain(name).definition for each in answer for name in each.cdi_ids]
        assert all(found)
        return [mount for each in found if each for mount in each.device.container_edits.mounts]

    @property
    def files(self) -> list[Path]:
        return sorted(self.file.parent.glob("metadata/*"))


def first(path: Path) -> dict[str, Any]:
    """Return the newest version in a file."""
    found: dict[str, Any] = read_json_stream(path.read_text(), limit=10**6)[0]
    return found


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    await node.start()
    return node


def made_from_template(uid: str, *devices: str, **more: Any) -> dict[str, Any]:
    claim = claim_of(uid, *devices, **more)
    claim["metadata"]["annotations"] = {POD_CLAIM: "my-gpu"}
    return claim


def test_the_format_is_that_of_kubernetes() -> None:
    """A stream of both versions, v1beta1 first; names and nesting as in Kubernetes' own files."""
    attributes = {"gpu-0": {"model": {"string": "T4"}, "index": {"int": 0}}}
    names = ClaimNames("my-gpu", {"gpu": "gpu/large"})
    results = [Result("gpu", "node1", "gpu-0")]
    (file,) = metadata_of(DRIVER, ONE, names, results, attributes)
    content = {
        "metadata": {"name": "claim1", "namespace": "default", "uid": ONE.uid, "generation": 1},
        "podClaimName": "my-gpu",
        "requests": [
            {
                "name": "gpu/large",
                "devices": [
                    {
                        "driver": DRIVER,
                        "pool": "node1",
                        "name": "gpu-0",
                        "attributes": {"model": {"string": "T4"}, "index": {"int": 0}},
                    }
                ],
            }
        ],
    }
    assert read_json_stream(file.text, limit=10**6) == [
        {
            "kind": "DeviceMetadata",
            "apiVersion": f"metadata.resource.k8s.io/{version}",
            **content,
        }
        for version in ("v1beta1", "v1alpha1")
    ]
    assert file.container_path == (
        f"{PLACE}/resourceclaimtemplates/my-gpu/gpu/example.com-metadata.json"
    )
    assert names_in_files([file]) == names


@pytest.mark.parametrize(
    ("versions", "is_known"),
    [
        (["v1alpha1"], True),
        (["v1beta1"], True),
        (["v1", "v1beta1"], True),
        (["v1"], False),
        ([], False),
    ],
)
def test_names_are_read_from_the_first_version_that_we_know(
    versions: list[str], is_known: bool
) -> None:
    """A file of an older driver has one version; a newer driver's file may have none of ours."""
    objects = [
        {
            "apiVersion": f"metadata.resource.k8s.io/{version}",
            "podClaimName": "my-gpu" if version != "v1" else "another",
            "requests": [{"name": "gpu/large"}],
        }
        for version in versions
    ]
    text = "".join(json.dumps(each, indent=2) + "\n" for each in objects)
    found = names_in_files([RequestMetadata("gpu", "/x", text)])
    assert found == (ClaimNames("my-gpu", {"gpu": "gpu/large"}) if is_known else None)


def test_metadata_of_a_claim_without_template_has_no_pod_claim_name() -> None:
    """Its own name is in the path."""
    names = names_of(claim_of(ONE.uid, "gpu-0"), ONE, DRIVER)
    (file,) = metadata_of(DRIVER, ONE, names, [Result("gpu", "node1", "gpu-0")], {"gpu-0": {}})
    assert "podClaimName" not in file.text
    assert file.container_path == f"{PLACE}/resourceclaims/claim1/gpu/example.com-metadata.json"
    assert names_in_files([file]) == ClaimNames()
    assert names_in_files([]) is None


@pytest.mark.parametrize("name", ["../../etc", "..", "a/b", "A", "x" * 64])
def test_a_claim_name_that_is_no_dns_label_is_refused(name: str) -> None:
    """Any user who may create claims may write the annotation."""
    claim = claim_of(ONE.uid, "gpu-0")
    claim["metadata"]["annotations"] = {POD_CLAIM: name}
    with pytest.raises(ClaimRefused, match="which is no valid claim name"):
        names_of(claim, ONE, DRIVER)


async def test_each_request_has_one_metadata_file(node: Node) -> None:
    """Two devices of a request share the file. A container gets the files of its requests only."""
    other = claim_of(ONE.uid, "gpu-1", request="other/large")["status"]
    claim = made_from_template(ONE.uid, "gpu-0")
    results = claim["status"]["allocation"]["devices"]["results"]
    results += other["allocation"]["devices"]["results"]
    node.claims = {ONE.name: claim, TWO.name: claim_of(TWO.uid, "gpu-0", "gpu-1")}
    answer = await node.prepare()
    for device, name in zip(answer, ("gpu", "other/large"), strict=True):
        (mount,) = node.mounts((device,))
        request = name.partition("/")[0]
        assert mount.container_path == (
            f"{PLACE}/resourceclaimtemplates/my-gpu/{request}/example.com-metadata.json"
        )
        assert "ro" in mount.options
        path = Path(mount.host_path)
        assert path.stat().st_mode & 0o777 == 0o644
        (found,) = first(path)["requests"]
        assert found["name"] == name
        assert [each["name"] for each in found["devices"]] == [device.device]
        attributes = found["devices"][0]["attributes"]
        assert attributes["model"] == {"string": "T4"}
        assert attributes["id"] == {"string": device.device}
    await node.service.unprepare((ONE,))
    (mount,) = node.mounts(await node.prepare(TWO))
    (found,) = first(Path(mount.host_path))["requests"]
    assert [each["name"] for each in found["devices"]] == ["gpu-0", "gpu-1"]


async def test_an_unprepared_claim_leaves_no_metadata_file(node: Node) -> None:
    """The other claim keeps its file."""
    node.claims = {ONE.name: claim_of(ONE.uid, "gpu-0"), TWO.name: claim_of(TWO.uid, "gpu-1")}
    await node.prepare(ONE)
    await node.prepare(TWO)
    await node.service.unprepare((ONE,))
    assert [each.name for each in node.files] == [f"{TWO.uid}_gpu.json"]
    await node.service.unprepare((TWO,))
    assert not node.files


async def test_without_the_option_no_metadata_is_written(tmp_path: Path) -> None:
    """No file, no mount, and no key in the checkpoint."""
    node = Node(tmp_path)
    await node.start(metadata=False)
    assert not node.mounts(await node.prepare())
    assert not node.files
    assert "metadata" not in node.file.read_text()
    assert json.loads(node.file.read_text())["version"] == 1


async def test_metadata_of_a_killed_prepare_does_not_stay(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process prepares the claim, or removes its file if the claim no longer exists."""
    with monkeypatch.context() as patch:
        patch.setattr(cdi_specs, "write_text", _die)
        # What a killed process would have done no more.
        patch.setattr(Preparation, "remove", lambda *_: None)
        assert "killed" in (await node.service.prepare((ONE,)))[ONE.uid]
    assert len(node.files) == 1
    (node.files[0].parent / f"{TWO.uid}_gpu.json").write_text("{}")
    (node.files[0].parent / f"{TWO.uid}_gpu.json.0123456789abcdef.tmp").write_text("{")
    await node.start()
    assert [each.name for each in node.files] == [f"{ONE.uid}_gpu.json"]
    assert len(node.mounts(await node.prepare())) == 1
    await node.service.unprepare((ONE,))
    assert not node.files


def _die(*_: object, **__: object) -> bool:
    raise RuntimeError("killed")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_removed_metadata_files_are_written_again(node: Node, is_restarted: bool) -> None:
    """With the old text, even if the devices have changed: containers have read it."""
    (mount,) = node.mounts(await node.prepare())
    path = Path(mount.host_path)
    text = path.read_text()
    node.offer("T5")
    for wiped in (path, *node.cdi_dir.iterdir()):
        wiped.unlink()
    if is_restarted:
        await node.start(metadata=False)  # for the next claims
    else:
        await node.service.ensure_files()
    assert path.read_text() == text
    path.write_text("{}")
    assert node.mounts(await node.prepare()) == [mount]
    assert path.read_text() == text


@pytest.mark.parametrize("has_server", [True, False])
async def test_after_a_reboot_metadata_has_the_new_attributes(node: Node, has_server: bool) -> None:
    """Without the API server with the stored names."""
    node.claims[ONE.name] = made_from_template(ONE.uid, "gpu-0", request="gpu/large")
    before = node.mounts(await node.prepare())
    await node.start("boot-2")
    assert not node.files
    node.offer("T5")
    if not has_server:
        node.claims.clear()
    assert node.mounts(await node.prepare()) == before
    (found,) = first(node.files[0])["requests"]
    assert found["name"] == "gpu/large"
    assert found["devices"][0]["attributes"]["model"] == {"string": "T5"}


async def test_a_claim_with_unknown_names_has_to_wait(tmp_path: Path) -> None:
    """A container that started without its file would never get the file."""
    node = Node(tmp_path)
    await node.start(metadata=False)
    await node.prepare()
    found = node.claims.pop(ONE.name)
    await node.start("boot-2")
    assert "the path of its metadata is unknown" in (await node.service.prepare((ONE,)))[ONE.uid]
    node.claims[ONE.name] = found
    assert len(node.mounts(await node.prepare())) == 1


async def test_a_lost_checkpoint_does_not_take_metadata_for_a_device(node: Node) -> None:
    """The files of the claim stay until it is unprepared."""
    devices = [kd.Device(f"gpu-{i}", env={"GPU": f"{i}"}) for i in range(2)]
    node.service.update(offer_of(kd.DeviceTree({"gpu": devices}), DRIVER))
    await node.prepare()
    node.file.write_text("{")
    await node.start()
    (claim,) = node.preparation.claims
    assert [each.device for each in claim.results] == ["gpu-0", "gpu-1"]
    assert len(node.files) == 1
    await node.service.unprepare((ONE,))
    assert not node.files


@pytest.mark.parametrize("kind", ["link to a directory", "dangling link", "file", "named pipe"])
@pytest.mark.parametrize("target", ["metadata", "metadata/{uid}_gpu.json"])
async def test_a_start_removes_nothing_behind_a_link(
    node: Node, tmp_path: Path, target: str, kind: str
) -> None:
    """Another pod may replace our directory or a file in it: files elsewhere stay."""
    outside = Outside(tmp_path / "outside")
    for name in ("a_b.json", "c.json", f"{TWO.uid}_gpu.json", "d.tmp", f"x_y.json.{16 * '0'}.tmp"):
        (outside.folder / name).touch()
    outside.remember()
    await node.prepare()
    path = node.file.parent / target.format(uid=ONE.uid)
    clear(path)
    plant(kind, path, outside)
    await node.start()
    assert (await node.service.unprepare((ONE,))) == {ONE.uid: ""}
    outside.assert_untouched()


async def test_a_start_removes_only_files_with_names_of_ours(node: Node) -> None:
    """In our directory too: a file of another program stays."""
    await node.prepare()
    (file,) = node.files
    others = [file.with_name(name) for name in ("notes.json", "x.tmp", "a_B.json", "a_b.yaml")]
    old = file.with_name(f"{TWO.uid}_gpu.json")
    for each in (*others, old):
        each.touch()
    await node.start()
    assert {*node.files} == {file, *others}


async def test_a_file_that_cannot_be_written_fails_its_claim(node: Node) -> None:
    """The kubelet gets the path in the error; no file of the claim is left."""
    directory = node.file.parent / "metadata"
    directory.parent.mkdir(exist_ok=True)
    directory.write_text("in the way")
    answer = (await node.service.prepare((ONE,)))[ONE.uid]
    assert f"cannot write {directory}" in answer
    assert not [*node.cdi_dir.glob("*")]
    assert not node.preparation.claims
    directory.unlink()
    assert len(node.mounts(await node.prepare())) == 1


async def test_a_file_that_cannot_be_removed_keeps_the_claim(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet repeats its call until all files are removed."""

    def refuse(name: str, **_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    await node.prepare()
    (file,) = node.files
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert "not permitted" in (await node.service.unprepare((ONE,)))[ONE.uid]
        patch.setattr(cdi_specs, "remove_file", lambda _: True)
        with pytest.raises(PreparedUnwritable, match=str(file.parent)):
            node.preparation.remove(ONE.uid)
    assert await node.service.unprepare((ONE,)) == {ONE.uid: ""}


class Widgets(kd.PolledScanner):
    """Two widgets."""

    def list_devices(self) -> kd.DeviceTree:
        widgets = [kd.Device(f"w{i}", attributes={"index": i}) for i in range(2)]
        return kd.DeviceTree({"widget": widgets})


def test_the_bench_shows_the_metadata_of_a_claim(bench: Bench) -> None:
    """As a container reads it, through the whole driver."""
    bench.start(Widgets(), domain=DRIVER, mode="dra", metadata=True)
    claim = bench.claim("pod-1", {"example.com/widget": 2})
    (mount,) = claim.options.mounts
    assert mount.container_path.startswith(f"{PLACE}/resourceclaims/{claim.name}/")
    (found,) = first(Path(mount.host_path))["requests"]
    assert [each["attributes"]["index"]["int"] for each in found["devices"]] == [0, 1]
    bench.release("pod-1")
    assert not Path(mount.host_path).exists()
