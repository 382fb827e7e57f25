"""`kubedevices allocate --format`."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kubedevices.host.runtimes import FORMATS
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
)
from kubedevices.values.cdi import from_json
from kubedevices.values.device import DeviceSpec, Mount
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE
from tests.node_thread import NodeThread

MANIFEST = """\
metadata: {name: train}
spec:
  initContainers:
  - {name: prepare, resources: {limits: {example.com/widget: 1}}}
  containers:
  - {name: main, resources: {limits: {example.com/widget: 2}}}
"""


def answer_with(node: NodeThread, **parts: Any) -> None:
    def answer(request: AllocateRequest) -> AllocateResponse:
        return AllocateResponse([ContainerAllocateResponse(**parts) for _ in request.containers])

    node.plugin.allocate_answer = answer


@pytest.fixture
def allocate(node: NodeThread, cli: CommandLine) -> CommandLine:
    return cli.of("allocate", after=("--socket-dir", node.socket_dir))


def holders(node: NodeThread) -> int:
    return len(list(node.manager.pods()))


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_the_answer_is_one_line_of_arguments_quoted_for_a_shell(
    node: NodeThread, allocate: CommandLine, runtime: str
) -> None:
    """A shell that reads the line gets exactly the words of the runtime."""
    answer_with(
        node,
        env={"WIDGET": "two words"},
        devices=[DeviceSpec("/dev/null", "/dev/w", "r")],
        mounts=[Mount("/h", "/c", read_only=True)],
        annotations={"k": "v"},
        cdi_devices=["v.com/c=x"],
    )
    printed = allocate(f"{RESOURCE}=1", "--format", runtime).out
    assert printed.count("\n") == 1
    assert shlex.split(printed) == [
        "--env=WIDGET=two words",
        "--device=/dev/null:/dev/w:r",
        "--mount=type=bind,source=/h,target=/c,readonly",
        "--annotation=k=v",
        "--device=v.com/c=x",
    ]


def test_the_format_env_prints_only_variables(node: NodeThread, allocate: CommandLine) -> None:
    """What `env` takes before a command."""
    answer_with(node, env={"A": "1", "B": "it's"}, devices=[DeviceSpec("/dev/null")])
    assert shlex.split(allocate(f"{RESOURCE}=1", "--format", "env").out) == ["A=1", "B=it's"]


def test_a_random_pod_name_is_printed(node: NodeThread, allocate: CommandLine) -> None:
    """On stderr, beside the words: otherwise nobody could release it."""
    captured = allocate(f"{RESOURCE}=1", "--format", "env")
    (pod,) = node.manager.pods()
    assert (
        captured.err
        == f"pod {pod.full_name} holds these devices until `kubedevices release {pod.name}`\n"
    )
    assert captured.out.count("\n") == 1
    assert allocate(f"{RESOURCE}=1", "--format", "env", "--pod-name", "known").err == ""


def test_an_oci_configuration_gets_its_devices_added(
    node: NodeThread, short_dir: Path, allocate: CommandLine
) -> None:
    """Without --oci-config there is nothing but the devices; with it the rest is kept."""
    answer_with(node, env={"A": "1"}, devices=[DeviceSpec("/dev/null", "/dev/w", "r")])
    plain = allocate(f"{RESOURCE}=1", "--format", "oci").data
    assert plain.keys() == {"process", "linux"}
    assert plain["linux"]["devices"][0]["path"] == "/dev/w"
    base = short_dir / "config.json"
    base.write_text(json.dumps({"ociVersion": "1.0.2", "process": {"env": ["B=2"]}}))
    added = allocate(f"{RESOURCE}=1", "--format", "oci", "--oci-config", base).data
    assert added["ociVersion"] == "1.0.2"
    assert added["process"]["env"] == ["B=2", "A=1"]
    assert added["linux"] == plain["linux"]


def test_a_cdi_file_has_the_whole_allocation(node: NodeThread, allocate: CommandLine) -> None:
    """Its one device is named after namespace, pod and container."""
    answer_with(node, env={"A": "1"})
    spec = from_json(allocate(f"{RESOURCE}=1", "--pod-name", "train", "--format", "cdi").out)
    assert (spec.kind, spec.devices[0].name) == (
        "kubedevices.local/allocation",
        "default_train_main",
    )
    assert spec.devices[0].container_edits.env == ("A=1",)


def test_a_container_of_several_can_be_chosen(short_dir: Path, allocate: CommandLine) -> None:
    """All are admitted together; what is printed is about the one."""
    file = short_dir / "pod.yaml"
    file.write_text(MANIFEST)
    for container, count in (("prepare", 1), ("main", 2)):
        words = allocate("--pod", file, "--container", container, "--format", "podman").out.split()
        assert sum(word.startswith("--device=") for word in words) == count


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "pod train has several containers: choose one of prepare, main with --container"),
        (["--container", "other"], "has no container 'other', only prepare, main"),
    ],
)
def test_an_unclear_choice_is_refused_before_the_allocation(
    node: NodeThread, short_dir: Path, allocate: CommandLine, arguments: list[str], text: str
) -> None:
    """Exit code 2, and no pod is admitted."""
    file = short_dir / "pod.yaml"
    file.write_text(MANIFEST)
    assert text in allocate("--pod", file, "--format", "podman", *arguments, code=2).err
    assert holders(node) == 0


def test_inexpressible_options_release_the_new_pod(node: NodeThread, allocate: CommandLine) -> None:
    """Nobody would release a pod whose name was never printed; one that was there before stays."""
    answer_with(node, devices=[DeviceSpec("/dev/a:b")])
    err = allocate(f"{RESOURCE}=1", "--format", "podman", code=2).err
    assert "not expressible for podman: the device path /dev/a:b" in err
    assert holders(node) == 0
    named = [f"{RESOURCE}=1", "--pod-name", "train"]
    allocate(*named)
    allocate(*named, "--format", "podman", code=2)
    assert holders(node) == 1


def test_a_missing_device_file_is_reported(node: NodeThread, allocate: CommandLine) -> None:
    """Exit code 3: an OCI configuration needs its number."""
    answer_with(node, devices=[DeviceSpec("/dev/none-such")])
    err = allocate(f"{RESOURCE}=1", "--format", "oci", code=3).err
    assert "/dev/none-such: No such file" in err
    assert holders(node) == 0


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        (None, 3, "cannot read "),
        ("{", 2, "config.json is not JSON"),
        ("[]", 2, "config.json is not an OCI runtime configuration: it must be an object"),
    ],
)
def test_a_bad_configuration_is_reported(
    short_dir: Path, cli: CommandLine, content: str | None, code: int, text: str
) -> None:
    """Before any node is asked."""
    file = short_dir / "config.json"
    if content is not None:
        file.write_text(content)
    arguments = [f"{RESOURCE}=1", "--format", "oci", "--oci-config", str(file)]
    assert text in cli("allocate", *arguments, "--socket-dir", short_dir, code=code).err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--format", "podman", "-o", "json"], "--format and -o json exclude each other"),
        (["--format", "podman", "--oci-config", "x"], "--oci-config needs --format oci"),
        (["--oci-config", "x"], "--oci-config needs --format oci"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    short_dir: Path, cli: CommandLine, arguments: list[str], text: str
) -> None:
    """Exit code 2, one line."""
    error = cli("allocate", f"{RESOURCE}=1", *arguments, "--socket-dir", short_dir, code=2).err
    assert text in error
    assert error.count("\n") == 1


def test_every_format_of_runtimes_is_an_option(node: NodeThread, allocate: CommandLine) -> None:
    """The table of the verb and that of the package are about the same formats."""
    answer_with(node, env={"A": "1"})
    for name in FORMATS:
        assert "A=1" in allocate(f"{RESOURCE}=1", "--pod-name", "one", "--format", name).out
