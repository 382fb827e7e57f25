"""`kubedevices allocate`."""

import io
import re
import textwrap
from functools import partial
from pathlib import Path

import pytest

from kubedevices.values.allocation import AllocateResponse, ContainerAllocateResponse
from kubedevices.values.device import DeviceSpec, Mount
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.node_thread import NodeThread

MANIFEST = """\
    apiVersion: v1
    kind: Pod
    metadata:
      name: train
      namespace: lab
      labels: {a: b}
    spec:
      restartPolicy: Never
      initContainers:
      - name: prepare
        image: busybox
        resources: {limits: {example.com/widget: 2, memory: 1Gi}}
      - name: watch
        restartPolicy: Always
        resources: {limits: {example.com/widget: "1"}}
      containers:
      - name: main
        resources: {limits: {example.com/widget: 2000m}, requests: {cpu: 100m}}
      - name: idle
"""


@pytest.fixture
def allocate(node: NodeThread, cli: CommandLine) -> CommandLine:
    return cli.of("allocate", after=("--socket-dir", node.socket_dir))


def write(directory: Path, text: str) -> str:
    file = directory / "pod.yaml"
    file.write_text(textwrap.dedent(text))
    return str(file)


def test_the_table_has_devices_and_run_options(node: NodeThread, allocate: CommandLine) -> None:
    """Devices first, then every option; a renamed path shows both names."""
    node.plugin.allocate_answer = lambda request: AllocateResponse(
        [
            ContainerAllocateResponse(
                env={"IDS": ",".join(request.containers[0].device_ids)},
                mounts=[Mount("/h", "/c", read_only=True)],
                devices=[DeviceSpec("/dev/w"), DeviceSpec("/dev/x", "/dev/y", "r")],
                annotations={"k": "v"},
                cdi_devices=["v/c=x"],
            )
        ]
    )
    out = allocate(f"{RESOURCE}=2", "--pod-name", "train", "--container", "gpu").out
    assert out == textwrap.dedent(
        """\
        pod default/train is admitted
        CONTAINER  KIND  RESOURCE            DEVICES
        gpu        app   example.com/widget  a,b

        CONTAINER  OPTION      VALUE
        gpu        env         IDS=a,b
        gpu        device      /dev/w (rw)
        gpu        device      /dev/x -> /dev/y (r)
        gpu        mount       /h -> /c (ro)
        gpu        annotation  k=v
        gpu        CDI device  v/c=x
        """
    )


@pytest.mark.parametrize("arguments", [[], ["--format", "env"], ["-o", "json"]])
def test_what_does_not_reach_the_container_is_told(
    arguments: list[str], node: NodeThread, allocate: CommandLine
) -> None:
    """Two resources put their device at one path: the caller holds both, and gets one."""

    def answer(device: str, _: object) -> AllocateResponse:
        spec = DeviceSpec(device, "/dev/line", "rw")
        return AllocateResponse([ContainerAllocateResponse(env={"LINE": device}, devices=[spec])])

    other = FakePlugin(node.socket_dir, "z.com/y", devices=healthy("y"), socket_name="y.sock")
    node.call(other.start())
    try:
        node.call(other.register())
        node.call(node.manager.wait_for("z.com/y", allocatable=1))
        node.plugin.allocate_answer = partial(answer, "/dev/x")
        other.allocate_answer = partial(answer, "/dev/y")
        shown = allocate(f"{RESOURCE}=1", "z.com/y=1", *arguments)
    finally:
        node.call(other.stop())
    told = shown.err
    kept = f"of {RESOURCE} is kept, "
    assert f"warning: container main: environment variable 'LINE': '/dev/x' {kept}" in told
    assert f"'/dev/line': /dev/x (rw) {kept}/dev/y (rw) of z.com/y is skipped" in told


def test_a_pod_manifest_is_admitted_as_the_kubelet_would(
    short_dir: Path, allocate: CommandLine
) -> None:
    """Init containers, sidecars, quantities; everything else in it is left alone."""
    answer = allocate("--pod", write(short_dir, MANIFEST), "-o", "json").data
    assert (answer["namespace"], answer["name"]) == ("lab", "train")
    got = {each["name"]: each["devices"].get(RESOURCE, []) for each in answer["containers"]}
    assert [each["kind"] for each in answer["containers"]] == ["init", "sidecar", "app", "app"]
    assert {name: len(ids) for name, ids in got.items()} == {
        "prepare": 2,
        "watch": 1,
        "main": 2,
        "idle": 0,
    }
    assert set(got["watch"]) < set(got["prepare"])
    assert not set(got["watch"]) & set(got["main"])


def test_a_pod_without_a_name_gets_a_random_name(allocate: CommandLine) -> None:
    """So the command can be repeated."""
    names = set()
    for _ in range(2):
        out = allocate(f"{RESOURCE}=1").out
        match = re.match(r"pod default/(pod-[0-9a-f]{8}) is admitted\n", out)
        assert match
        names.add(match[1])
    assert len(names) == 2


def test_the_same_pod_again_gets_the_same(allocate: CommandLine) -> None:
    """Another number is refused."""
    first, second = (allocate(f"{RESOURCE}=1", "--pod-name", "p") for _ in range(2))
    assert first == second
    err = allocate(f"{RESOURCE}=2", "--pod-name", "p", code=1).err
    assert "changed request for resource" in err


def test_a_refusal_is_exit_code_one_with_the_kubelets_text(allocate: CommandLine) -> None:
    """One line on stderr, nothing on stdout."""
    captured = allocate(f"{RESOURCE}=5", code=1)
    assert captured.out == ""
    assert captured.err == (
        "kubedevices: Allocate failed due to requested number of devices unavailable for "
        "example.com/widget. Requested: 5, Available: 4, which is unexpected\n"
    )


def test_a_pod_without_requests_is_admitted(short_dir: Path, allocate: CommandLine) -> None:
    """Said on stderr."""
    text = "{metadata: {name: p}, spec: {containers: [{name: c}]}}"
    captured = allocate("--pod", write(short_dir, text))
    assert captured.out == "pod default/p is admitted\n"
    assert captured.err == "no container asks for devices\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "allocate needs RESOURCE=N, for example example.com/widget=1, or --pod FILE"),
        (["example.com/w=1", "--pod", "x"], "allocate needs RESOURCE=N"),
        (["example.com/w"], "'example.com/w' is not RESOURCE=N, for example"),
        (["foo=1"], "resource name 'foo' is invalid: it needs a domain"),
        (["example.com/w=x"], "'x' is not a number of devices"),
        (["example.com/w="], "'' is not a number of devices"),
        (["example.com/w=0"], "'0' is not a number of devices"),
        (["example.com/w=-1"], "'-1' is not a number of devices"),
        (["example.com/w=" + "9" * 30], "is not a number of devices"),
        (["example.com/w=1", "example.com/w=2"], "example.com/w is asked for twice"),
        (["example.com/w=1", "--pod-name", "A/b"], "--pod-name 'A/b' must be lower-case"),
        (["example.com/w=1", "--container", ""], "--container '' must be lower-case"),
        (["--pod", "x", "--container", "c"], "cannot be used with --pod"),
    ],
)
def test_wrong_arguments_are_a_one_line_error(
    short_dir: Path, cli: CommandLine, arguments: list[str], text: str
) -> None:
    """Exit code 2, before any node is asked."""
    error = cli("allocate", *arguments, "--socket-dir", short_dir, code=2).err
    assert text in error
    assert error.count("\n") == 1


NO_NUMBER = """\
metadata: {name: x}
spec:
  containers:
  - name: c
    resources:
      limits: {example.com/w: two}
"""


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ("spec: {}", "pod.yaml:1:1: metadata.name: is missing"),
        ("kind: Deployment\nmetadata: {name: x}", "pod.yaml:1:7: kind: must be Pod"),
        (
            NO_NUMBER,
            "pod.yaml:6:31: spec.containers[0].resources.limits.example.com/w: 'two' is not a",
        ),
        ("a: b: c", "pod.yaml:1:5: not valid YAML:"),
        ("a: !odd x", "pod.yaml:1:4: not valid YAML: could not determine a constructor"),
        ("? [a]\n: b", "pod.yaml:1:3: a key must be text"),
        ("a: [{b: 1,\n b: 2}]", "pod.yaml:2:2: a[0].b: this key stands twice (first: line 1)"),
        ("a: 2020-99-99", "pod.yaml:1:1: not valid YAML: month must be in"),
        ("", "pod.yaml:1:1: the file is empty"),
        ("3", "pod.yaml:1:1: a pod manifest must be a mapping, not 3"),
    ],
)
def test_a_mistake_in_a_manifest_is_reported_with_its_line(
    short_dir: Path, cli: CommandLine, manifest: str, text: str
) -> None:
    """Exit code 2, no traceback."""
    words = ("--pod", write(short_dir, manifest), "--socket-dir", short_dir)
    assert text in cli("allocate", *words, code=2).err


def test_a_manifest_may_come_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, allocate: CommandLine
) -> None:
    """From another command; a mistake in it says so."""
    for text, code, said in (
        (MANIFEST, 0, "pod lab/train is admitted\n"),
        ("a: b: c", 2, "kubedevices: standard input:1:5: not valid YAML"),
    ):
        stdin = io.TextIOWrapper(io.BytesIO(textwrap.dedent(text).encode()))
        monkeypatch.setattr("sys.stdin", stdin)
        assert "".join(allocate("--pod", "-", code=code)).startswith(said)


def test_a_missing_manifest_is_reported(short_dir: Path, cli: CommandLine) -> None:
    """Exit code 3: a file that cannot be read."""
    words = ("--pod", short_dir / "none.yaml", "--socket-dir", short_dir)
    assert "none.yaml" in cli("allocate", *words, code=3).err
