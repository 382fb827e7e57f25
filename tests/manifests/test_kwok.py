"""`kubedevices manifests kwok`: nodes without machines, whose devices follow a timeline."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from kubedevices.simulate.simulation_file import preset_names
from kubedevices.testing.api_server.patches import MERGE, patched
from kubedevices.testing.api_server.server import ApiServer
from tests.command_line import CommandLine
from tests.manifests.foreign_schemas import STAGE, TEXT, document, strict, texts

Object = dict[str, Any]

_QUANTITIES = {
    "type": "object",
    "additionalProperties": {"type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi)?$"},
}
_NAMED = {"apiGroup": {"const": "rbac.authorization.k8s.io"}, "kind": TEXT, "name": TEXT}
SCHEMAS = {
    "Stage": STAGE,
    "Node": document(
        "v1",
        "Node",
        ["spec", "status"],
        spec=strict(
            ["taints"],
            taints={
                "type": "array",
                "items": strict(
                    ["key", "effect"],
                    key=TEXT,
                    value=TEXT,
                    effect={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                ),
            },
        ),
        status=strict(
            ["capacity", "allocatable"],
            capacity=_QUANTITIES,
            allocatable=_QUANTITIES,
            phase={"enum": ["Pending", "Running", "Terminated"]},
        ),
    ),
    "ClusterRole": document(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        ["rules"],
        rules={
            "type": "array",
            "items": strict(
                ["apiGroups", "resources", "verbs"],
                apiGroups=texts(),
                resources=texts(),
                verbs=texts("get", "list", "watch", "create", "update", "patch", "delete"),
            ),
        },
    ),
    "ClusterRoleBinding": document(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        ["roleRef"],
        roleRef=strict([*_NAMED], **_NAMED),
        subjects={
            "type": "array",
            "items": strict(
                ["kind", "name", "namespace"],
                kind={"const": "ServiceAccount"},
                name=TEXT,
                namespace=TEXT,
            ),
        },
    ),
}
"""The kinds that no double of ours judges, as far as we use them (k8s.io/api core/v1, rbac/v1)."""


def printed(cli: CommandLine, *words: object) -> list[Object]:
    """Return the printed objects."""
    return [*yaml.safe_load_all(cli("manifests", "kwok", *words).out)]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """Return the objects of one kind."""
    return [each for each in objects if each["kind"] == kind]


def play(found: Object, stages: list[Object], seconds: float) -> Object:
    """Do what KWOK does with an object in so many seconds, in the time of the Stages."""
    now = 0.0
    while True:
        metadata = found["metadata"]
        due = [
            each["spec"]
            for each in stages
            if each["spec"]["resourceRef"]["kind"] == found["kind"]
            and each["spec"]["selector"]["matchLabels"].items() <= metadata["labels"].items()
            and each["spec"]["selector"]["matchAnnotations"].items()
            <= metadata["annotations"].items()
        ]
        assert len(due) <= 1, "KWOK would choose by chance"
        if not due or (now := now + due[0]["delay"]["durationMilliseconds"] / 1000) > seconds:
            return found
        for patch in due[0]["next"]["patches"]:
            content = json.loads(patch["template"].replace('{{ "{{" }}', "{{"))
            found = patched(found, {patch["root"]: content}, MERGE)


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize("mode", ["device-plugin", "dra"])
def test_each_object_is_valid(cli: CommandLine, preset: str, mode: str) -> None:
    """By schemas, and what the API server's double knows as this judges it."""
    objects = printed(cli, "--preset", preset, "--nodes", 3, "--mode", mode)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len({*names})
    assert len(of_kind(objects, "Node")) == 3
    for each in objects:
        if schema := SCHEMAS.get(each["kind"]):
            Draft202012Validator(schema).validate(each)
        else:
            assert each["kind"] in {"DeviceClass", "ResourceSlice"}
    server = ApiServer()
    for each in of_kind(objects, "DeviceClass"):
        server.put("deviceclasses", each)
    slices = of_kind(objects, "ResourceSlice")
    assert bool(slices) == (mode == "dra")
    stages = of_kind(objects, "Stage")
    for each in slices:
        for seconds in (0, 31, 61, 91, 121, 151):
            changed = play(each, stages, seconds)
            name = {"metadata": {"name": f"{each['metadata']['name']}-{seconds}"}}
            server.put("resourceslices", patched(changed, name, MERGE))


def test_the_numbers_of_a_node_follow_the_timeline(cli: CommandLine) -> None:
    """A device that is unhealthy is still a part of the capacity; the loop begins again."""
    objects = printed(cli, "--preset", "eight-gpus")
    (node,) = of_kind(objects, "Node")

    def numbers(seconds: float) -> tuple[str, str]:
        status = play(node, of_kind(objects, "Stage"), seconds)["status"]
        assert status["allocatable"]["pods"] == "110"
        return status["allocatable"]["example.com/gpu"], status["capacity"]["example.com/gpu"]

    assert [numbers(at) for at in (0, 31, 61, 91, 121, 151, 181, 211)] == [
        *(("8", "8"), ("7", "8"), ("8", "8"), ("4", "8"), ("8", "8"), ("7", "7")),
        *(("8", "8"), ("7", "8")),
    ]


def test_slices_follow_the_timeline(cli: CommandLine) -> None:
    """An unhealthy device has a taint, a device that is gone is in no slice."""
    objects = printed(cli, "--preset", "eight-gpus", "--mode", "dra")
    (found,) = of_kind(objects, "ResourceSlice")
    (node,) = of_kind(objects, "Node")
    assert "example.com/gpu" not in node["status"]["allocatable"]
    assert found["spec"]["nodeName"] == node["metadata"]["name"]

    def tainted(seconds: float) -> tuple[int, list[str]]:
        devices = play(found, of_kind(objects, "Stage"), seconds)["spec"]["devices"]
        return len(devices), [each["name"] for each in devices if each.get("taints")]

    assert tainted(0) == (8, [])
    assert tainted(31) == (8, ["gpu-kwok-3"])
    assert tainted(91) == (8, [f"gpu-kwok-{number}" for number in range(4)])
    assert tainted(151) == (7, [])
    (role,) = of_kind(objects, "ClusterRole")
    assert {"list", "watch", "patch"} <= {*role["rules"][0]["verbs"]}


def test_a_device_stays_in_its_slice(cli: CommandLine, tmp_path: Path) -> None:
    """Else a scheduler could see it in two slices between two changes."""
    config = tmp_path / "many.yaml"
    config.write_text(
        "resourceName: example.com/gpu\nnumberDevicesOnNode: 300\ndeviceIDPrefix: gpu\n"
        'timeline: [{at: 5s, remove: "*-0"}, {at: 9s, count: 310}]\n'
    )
    objects = printed(cli, "--config", config, "--mode", "dra")
    slices, stages = of_kind(objects, "ResourceSlice"), of_kind(objects, "Stage")
    assert len(slices) == 5
    places: dict[str, set[str]] = {}
    for seconds in (0, 6, 10):
        for each in slices:
            for device in play(each, stages, seconds)["spec"]["devices"]:
                places.setdefault(device["name"], set()).add(each["metadata"]["name"])
    assert len(places) == 310
    assert {len(each) for each in places.values()} == {1}


def test_faults_are_named_and_left_out(cli: CommandLine) -> None:
    """There is no plugin that could fail."""
    found = cli("manifests", "kwok", "--preset", "slow-allocate")
    assert [each["kind"] for each in yaml.safe_load_all(found.out)] == ["Node"]
    assert "faults: failAllocateEvery (at 60 s): a fake node has no plugin" in found.err


def test_braces_in_an_id_are_no_template(cli: CommandLine, tmp_path: Path) -> None:
    """KWOK would run them."""
    config = tmp_path / "braces.yaml"
    config.write_text("resourceName: example.com/gpu\ntimeline: [{at: 5s, add: ['{{ Now }}']}]\n")
    objects = printed(cli, "--config", config, "--mode", "dra")
    (stage,) = of_kind(objects, "Stage")
    template = stage["spec"]["next"]["patches"][0]["template"]
    assert '{{ "{{" }} Now }}' in template
    assert template.count("{{ Now") == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--nodes", "0"], "--nodes 0: use a number from 1"),
        (["--mode", "split"], "kwok has the modes device-plugin and dra"),
        (["--image", "example.com/a:1"], "--image works with"),
        (["--name", "A_b"], "--name 'A_b'"),
    ],
)
def test_wrong_calls_are_refused(cli: CommandLine, words: list[str], problem: str) -> None:
    """With a sentence, and nothing is printed."""
    found = cli("manifests", "kwok", *words, code=2)
    assert problem in found.err
    assert not found.out
