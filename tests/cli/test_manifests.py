"""`kubedevices manifests`."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli.cluster.manifests import default_name
from kubedevices.expose.read_profiles import combined_text
from tests.command_line import CommandLine

CONFIG = "version: 1\nnamespace: a.example\nresources: [{name: w, match: [{path: /dev/w}]}]\n"


def printed(cli: CommandLine, *arguments: object) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(cli("manifests", *arguments).out)]


def pod_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = documents[-1]["spec"]["template"]["spec"]
    return pod


def test_the_simulator_gets_the_variables_that_are_set(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the name of its node from the API, whatever is set here."""
    monkeypatch.setenv("NUMBER_DEVICES", "7")
    monkeypatch.setenv("NODE_NAME", "here")
    (container,) = pod_of(printed(cli, "simulate"))["containers"]
    env = {each["name"]: each for each in container["env"]}
    assert env["NUMBER_DEVICES"]["value"] == "7"
    assert env["NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_expose_brings_its_configuration(cli: CommandLine, short_dir: Path) -> None:
    """As a ConfigMap that is mounted where the arguments say, with all extras."""
    file = short_dir / "devices.yaml"
    file.write_text(CONFIG)
    arguments = [
        "--config",
        file,
        "--cdi",
        "--pod-resources",
        "--kubelet-dir",
        "/k",
        "--plugin-dir",
        "/p",
    ]
    arguments += ["--node-label", "a=b", "--namespace", "lab", "--image", "example.com/img:1"]
    *_, config_map, daemon_set = documents = printed(cli, "expose", *arguments)
    assert config_map["data"] == {"config.yaml": CONFIG}
    pod = pod_of(documents)
    (container,) = pod["containers"]
    words = " ".join(container["args"])
    assert words == (
        "expose --config /etc/kubedevices/config.yaml --dev-root /host/dev "
        "--socket-dir /p --state-dir /var/lib/kubedevices --inject cdi --listen *:9400 "
        "--pod-resources /k/pod-resources/kubelet.sock"
    )
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounted == {
        "/etc/kubedevices",
        "/host/dev",
        "/k/pod-resources",
        "/p",
        "/var/lib/kubedevices",
        "/var/run/cdi",
    }
    assert (pod["nodeSelector"], container["image"]) == (
        {"kubernetes.io/os": "linux", "a": "b"},
        "example.com/img:1",
    )
    assert daemon_set["metadata"]["namespace"] == "lab"
    assert daemon_set["metadata"]["name"] == "kubedevices-expose-a-example"


@pytest.mark.parametrize(
    ("arguments", "resource", "name"),
    [
        (["simulate"], "", "kubedevices-simulate-example-com-simple-device"),
        (
            ["simulate"],
            "a.example/Big_Gpu",
            "kubedevices-simulate-a-example-big-gpu",
        ),
        (["simulate", "--preset", "eight-gpus"], "", "kubedevices-simulate-example-com-gpu"),
        (["expose"], "", "kubedevices-expose-devices-example-com"),
        (["expose", "--name", "mine"], "", "mine"),
    ],
)
def test_the_name_says_what_is_served(
    cli: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    resource: str,
    name: str,
) -> None:
    """So a second plugin in the namespace does not replace the first."""
    monkeypatch.setenv("RESOURCE_NAME", resource)
    documents = printed(cli, *arguments)
    assert {each["metadata"]["name"] for each in documents[1:]} == {name}


def test_a_name_is_never_cut_by_kubernetes() -> None:
    """A long one is cut by us, and stays different from others that begin alike."""
    names = [default_name("simulate", f"{'a' * 60}.example.com/{end}") for end in ("one", "two")]
    assert len({*names}) == 2
    assert max(map(len, names)) <= 57


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ([], "# Image: localhost/kubedevices"),
        (["--image", "registry.example.com/kubedevices:1"], ""),
        (["--image", "registry:5000/kubedevices:1"], ""),
    ],
)
def test_the_first_line_says_which_image_is_meant(
    cli: CommandLine, arguments: list[str], note: str
) -> None:
    """Unless its name does."""
    first, *_ = cli("manifests", "simulate", *arguments).lines
    assert note in first
    assert first.startswith("#") is bool(note)


def test_the_memory_is_enough_for_what_is_simulated(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, short_dir: Path
) -> None:
    """Whether a variable says how many there are, or a step of the file's timeline."""

    def limit(*arguments: object) -> str:
        (container,) = pod_of(printed(cli, "simulate", *arguments))["containers"]
        found: str = container["resources"]["limits"]["memory"]
        return found

    file = short_dir / "many.yaml"
    file.write_text("timeline: [{at: 1s, count: 100000}]\n")
    assert limit() == "128Mi"
    assert limit("--config", file) == "512Mi"
    monkeypatch.setenv("NUMBER_DEVICES", "100000")
    assert limit() == "512Mi"


def test_the_root_of_a_kubelet_does_not_move_the_plugins(cli: CommandLine) -> None:
    """Kubelets look for plugins in one place, whatever their --root-dir; podresources moves."""
    (container,) = pod_of(printed(cli, "simulate", "--pod-resources", "--kubelet-dir", "/k0s"))[
        "containers"
    ]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounted == {
        "/var/lib/kubelet/device-plugins", "/var/lib/kubedevices", "/k0s/pod-resources",
    }  # fmt: skip
    assert "--socket-dir" not in container["args"]


def test_directories_of_the_configuration_are_mounted(cli: CommandLine, short_dir: Path) -> None:
    """/dev as a whole, where drivers make and delete directories; others as they are."""
    file = short_dir / "devices.yaml"
    file.write_text(
        textwrap.dedent("""\
            version: 1
            namespace: a.example
            resources:
            - name: w
              match: [{path: /dev/w*}, {pci: {class: "03"}}, {path: /srv/fake/disks/*}]
              with: ["{path}.ctl", /srv/fake/control/all]
              health: {file: "/run/w/{name}/ok"}
            - name: v
              match: [{path: /dev/v}]
              health: {file: "/sys/class/v/{name}/state"}
              inject: both
            - name: u
              match: [{path: /srv/fake/disks/inner/*}]
              health: {command: [/usr/bin/look, "{path}"]}
            """)
    )
    pod = pod_of(printed(cli, "expose", "--config", file))
    (container,) = pod["containers"]
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in container["volumeMounts"]}
    assert mounts == {
        "/var/lib/kubelet/device-plugins": False,
        "/var/lib/kubedevices": False,
        "/var/lib/kubelet/pod-resources": True,
        "/etc/kubedevices": True,
        "/host/dev": True,
        "/srv/fake/control": True,
        "/srv/fake/disks": True,
        "/run/w": True,
        "/var/run/cdi": False,
    }
    assert "must have /usr/bin/look" in cli("manifests", "expose", "--config", file).err


def test_parts_of_dev_can_be_mounted_instead_of_all(cli: CommandLine, short_dir: Path) -> None:
    """Then nothing else is mounted, and a node without them is no reason not to start."""
    file = short_dir / "devices.yaml"
    file.write_text(CONFIG.replace("/dev/w", "/dev/dri/render*"))
    pod = pod_of(printed(cli, "expose", "--config", file, "--dev-dir", "/dev/dri/"))
    (volume,) = [each for each in pod["volumes"] if each["name"].startswith("dev")]
    assert volume["hostPath"] == {"path": "/dev/dri", "type": "DirectoryOrCreate"}
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if "dev-" in each["name"]]
    assert mount["mountPath"] == "/host/dev/dri"


@pytest.mark.parametrize(
    ("entry", "arguments", "text"),
    [
        ("match: [{path: /dev/x}]", ["--dev-dir", "/dev/dri"], "w: /dev/x needs /dev, which no"),
        ("match: [{usb: {vendor: ab}}]", ["--dev-dir", "/dev/bus"], "w: a match by bus needs /dev"),
        ("match: [{path: /dev/x}]", ["--dev-dir", "/dev/../etc"], "is not a directory below /dev"),
        ("match: [{path: /dev/x}]", ["--dev-dir", "/etc"], "'/etc' is not a directory below /dev"),
        ("match: [{path: /run/x}]", [], "w: /run/x lies in /run, which cannot be mounted"),
        ("match: [{path: /usr/share/x/*}]", [], "lies in /usr/share/x, which cannot be mounted"),
        ("match: [{path: /*/x}]", [], "w: /*/x lies in /, which cannot be mounted"),
    ],
)
def test_a_directory_that_cannot_be_mounted_is_reported(
    cli: CommandLine, short_dir: Path, entry: str, arguments: list[str], text: str
) -> None:
    """Nothing hides the image's own files, or opens all of the host's sockets to the pod."""
    file = short_dir / "devices.yaml"
    file.write_text(f"version: 1\nnamespace: a.example\nresources:\n- name: w\n  {entry}\n")
    assert text in cli("manifests", "expose", "--config", file, *arguments, code=2).err


def test_a_simulator_brings_its_file(cli: CommandLine, short_dir: Path) -> None:
    """A file of the user's or a preset, as a ConfigMap; by CDI with the directory for it."""
    for arguments in (["--preset", "eight-gpus"], ["--config", short_dir / "gpus.yaml"]):
        (short_dir / "gpus.yaml").write_text("resourceName: a.example/gpu\ncdi: true\n")
        documents = printed(cli, "simulate", *arguments)
        (config_map,) = [each for each in documents if each["kind"] == "ConfigMap"]
        assert "resource" in config_map["data"]["config.yaml"]
        (container,) = pod_of(documents)["containers"]
        assert container["args"][:3] == ["simulate", "--config", "/etc/kubedevices/config.yaml"]
    assert "/var/run/cdi" in {each["mountPath"] for each in container["volumeMounts"]}


def test_a_profile_is_deployed_without_a_file(cli: CommandLine) -> None:
    """Several as one configuration, with its comments, under a domain of the user."""
    chosen = ["--profile", "fuse", "--profile", "serial", "--domain", "edge.example.com"]
    documents = printed(cli, "expose", *chosen)
    (config_map,) = [each for each in documents if each["kind"] == "ConfigMap"]
    text = config_map["data"]["config.yaml"]
    assert text == combined_text(["fuse", "serial"], "edge.example.com")
    (container,) = pod_of(documents)["containers"]
    assert container["args"][:3] == ["expose", "--config", "/etc/kubedevices/config.yaml"]


def test_a_name_for_each_match_has_no_device_class(cli: CommandLine, short_dir: Path) -> None:
    """Nobody knows the names here; a device plugin needs none."""
    file = short_dir / "devices.yaml"
    rule = '{name: "{name}", match: [{path: /dev/ttyUSB*}]}'
    file.write_text(f"version: 1\nnamespace: a.example\nresources:\n- {rule}\n")
    err = cli("manifests", "expose", "--config", file, "--mode", "dra", code=2).err
    assert "a.example/{name}: a DeviceClass needs a name" in err
    cli("manifests", "expose", "--config", file)


def test_a_preset_may_have_fewer_devices(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable, which the pod gets too."""
    monkeypatch.setenv("NUMBER_DEVICES", "4")
    (container,) = pod_of(printed(cli, "simulate", "--preset", "eight-gpus"))["containers"]
    assert {"name": "NUMBER_DEVICES", "value": "4"} in container["env"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "deviceFilePrefix: gpu\ncreateDeviceFiles: /x\n",
            "gpus.yaml:2:20: createDeviceFiles: the pod",
        ),
        (
            "resources: [{resourceName: a.b/c, deviceFilePrefix: x, createDeviceFiles: /x}]\n",
            "gpus.yaml:1:75: resources[0].createDeviceFiles: the pod could",
        ),
        (
            "timeline: [{at: 1s, count: 1, resource: x}]\n",
            "gpus.yaml:1:41: timeline[0].resource: unknown resource 'x'",
        ),
    ],
)
def test_a_file_that_no_pod_can_follow_is_not_printed(
    cli: CommandLine, short_dir: Path, text: str, problem: str
) -> None:
    """Told with its place; without names for the files there are none to make."""
    file = short_dir / "gpus.yaml"
    file.write_text(text)
    captured = cli("manifests", "simulate", "--config", file, code=2)
    assert problem in captured.err
    assert captured.out == ""
    file.write_text("createDeviceFiles: /x\n")
    assert printed(cli, "simulate", "--config", file)


def test_a_simulator_that_would_not_start_is_not_printed(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, short_dir: Path
) -> None:
    """Its own check of variables and files says why."""
    monkeypatch.setenv("NUMBER_DEVICES", "-1")
    assert "NUMBER_DEVICES" in cli("manifests", "simulate", code=2).err
    monkeypatch.delenv("NUMBER_DEVICES")
    (short_dir / "gpus.yaml").write_text("numberDevicesOnNode: many\n")
    err = cli("manifests", "simulate", "--config", short_dir / "gpus.yaml", code=2).err
    assert "gpus.yaml:1:" in err


def test_a_node_is_a_pod(cli: CommandLine) -> None:
    """For podman, so without anything that only a cluster has."""
    (pod,) = printed(cli, "node")
    (container,) = pod["spec"]["containers"]
    assert pod["kind"] == "Pod"
    assert container["args"][0] == "node"


def test_printed_arguments_are_those_of_the_verbs(cli: CommandLine) -> None:
    """The container would start: each verb's parser takes what the manifest says."""
    from kubedevices.cli import load_verb, verb_parser

    for what in ("simulate", "expose", "proxy", "node"):
        document = printed(cli, what)[-1]
        pod = document["spec"] if what == "node" else pod_of([document])
        verb, *arguments = pod["containers"][0]["args"]
        verb_parser(load_verb(verb)).parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["node", "--config", "x"], 2, "--config works with simulate, expose, proxy, kwok only"),
        (["simulate", "--cdi"], 2, "--cdi works with expose only"),
        (["simulate", "--dev-dir", "/dev/x"], 2, "--dev-dir works with expose only"),
        (["expose", "--preset", "x"], 2, "--preset works with simulate, kwok only"),
        (["simulate", "--preset", "x"], 2, "eight-gpus"),
        (["simulate", "--profile", "x"], 2, "--profile works with expose only"),
        (["expose", "--profile", "kmv"], 2, "there is no profile 'kmv', did you mean 'kvm'?"),
        (["expose", "--profile", "kvm", "--config", "x"], 2, "use one of them"),
        (["expose", "--domain", "a.example"], 2, "--domain works with run, and with expose --pro"),
        (["simulate", "--preset", "eight-gpus", "--config", "x"], 2, "use one of them"),
        (["simulate", "--namespace", "My_Lab"], 2, "'My_Lab' is not a namespace name"),
        (["simulate", "--image", "a b"], 2, "--image 'a b' is not an image name"),
        (["simulate", "--kubelet-dir", "k"], 2, "--kubelet-dir 'k' is not an absolute path"),
        (["node", "--plugin-dir", "k"], 2, "--plugin-dir 'k' is not an absolute path"),
        (["expose", "--node-label", "a b=c"], 2, "a node cannot have this label"),
        (["expose", "--node-label", "_/b=c"], 2, "a node cannot have this label"),
        (["expose", "--node-label", "a..b/c=d"], 2, "a node cannot have this label"),
        (["expose", "--node-label", "a=" + 64 * "b"], 2, "a node cannot have this label"),
        (["expose", "--config", "none.yaml"], 3, "cannot read none.yaml"),
        (["expose", "--node-label", "a"], 2, "--node-label 'a' is not KEY=VALUE"),
        (["expose", "--systemd"], 2, "which devices? Give --config FILE"),
        (["expose", "--systemd", "--config", "x"], 2, "a service needs the absolute path"),
        (["expose", "--systemd", "--image", "x"], 2, "--image cannot be used with --systemd"),
        (["node", "--systemd", "--program", "x"], 2, "--program 'x' is not an absolute path"),
        (["run", "w:W", "--systemd"], 2, "--systemd works with simulate, expose"),
        (["simulate", "--name", "My_Plugin"], 2, "--name 'My_Plugin': use a-z"),
        (["simulate", "--name", 58 * "a"], 2, "at most 57"),
        (["node", "--name", "a"], 2, "--name works with simulate, expose, proxy, run, kwok only"),
        (["expose", "--patch", "x"], 2, "--patch works with proxy only"),
        (["proxy", "--inside-dir", "x"], 2, "--inside-dir 'x' is not an absolute path"),
        (["proxy", "--systemd", "--patch", "x"], 2, "--patch cannot be used with --systemd"),
        (["node", "--selinux"], 2, "--selinux works with simulate, expose, proxy, run only"),
    ],
)
def test_unprintable_manifests_are_refused_in_one_line(
    cli: CommandLine, arguments: list[str], code: int, text: str
) -> None:
    """In one line."""
    error = cli("manifests", *arguments, code=code).err
    assert text in error
    assert error.count("\n") == 1


def test_a_systemd_unit_has_the_given_settings(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, short_dir: Path
) -> None:
    """Variables, the file, another directory; with the quotes that systemd takes away again."""
    monkeypatch.setenv("RESOURCE_NAME", "a.example/gpu")
    monkeypatch.setenv("DEVICE_ID_PREFIX", 'my "100%" $gpu')
    file = short_dir / "my gpus.yaml"
    file.write_text("numberDevicesOnNode: 4\n")
    more = ["--config", str(file), "--plugin-dir", "/p", "--pod-resources", "--kubelet-dir", "/k"]
    lines = cli("manifests", "simulate", "--systemd", *more).lines
    assert "Environment=RESOURCE_NAME=a.example/gpu" in lines
    assert r'Environment="DEVICE_ID_PREFIX=my \"100%%\" $gpu"' in lines
    assert lines.index("StartLimitIntervalSec=0") < lines.index("[Service]")
    (command,) = [each for each in lines if each.startswith("ExecStart=")]
    assert f'simulate --config "{file}" --socket-dir /p' in command
    assert "--pod-resources /k/pod-resources/kubelet.sock" in command


def test_a_mistake_in_the_configuration_is_found_before_it_is_deployed(
    cli: CommandLine, short_dir: Path
) -> None:
    """With its line, instead of a pod that crashes."""
    file = short_dir / "devices.yaml"
    file.write_text("version: 1\nnamespace: a.example\nresorces: []\n")
    assert "devices.yaml:3:1: resorces" in cli("manifests", "expose", "--config", file, code=2).err
    file.write_text("resources:\n  a.example/b: {hold: soon}\n")
    err = cli("manifests", "proxy", "--config", file, code=2).err
    assert "devices.yaml:2:23: resources.a.example/b.hold" in err


def test_a_proxy_brings_its_configuration(cli: CommandLine, short_dir: Path) -> None:
    """As a ConfigMap, beside the directories of the kubelet and of the plugins behind it."""
    file = short_dir / "proxy.yaml"
    file.write_text("resources: {a.example/b: {hold: 5m}}\n")
    documents = printed(cli, "proxy", "--config", file, "--inside-dir", "/inside/")
    (config_map,) = [each for each in documents if each["kind"] == "ConfigMap"]
    assert config_map["data"] == {"config.yaml": file.read_text()}
    (container,) = pod_of(documents)["containers"]
    assert " ".join(container["args"]) == (
        "proxy --config /etc/kubedevices/config.yaml --plugin-dir /inside "
        "--plugin-registry /inside_registry --state-dir /var/lib/kubedevices --listen *:9400 "
        "--pod-resources /var/lib/kubelet/pod-resources/kubelet.sock"
    )
    paths = {
        each["hostPath"]["path"] for each in pod_of(documents)["volumes"] if "hostPath" in each
    }
    kubelet = {f"/var/lib/kubelet/{each}" for each in ("device-plugins", "pod-resources")}
    assert paths == kubelet | {"/inside", "/inside_registry", "/var/lib/kubedevices"}
    unit = cli("manifests", "proxy", "--systemd", "--config", file).out
    inside = "/var/lib/kubedevices/plugins"
    directories = f"--plugin-dir {inside} --plugin-registry {inside}_registry"
    assert f"proxy --config {file} {directories} --listen 127.0.0.1:9400" in unit
    assert "ExecReload=/bin/kill -HUP" in unit


def test_a_pod_may_open_what_a_health_check_needs(cli: CommandLine, short_dir: Path) -> None:
    """Directories of files are mounted, further directories and rights come from options and
    values, and a note names the programs that the image must have.
    """
    file, values = short_dir / "proxy.yaml", short_dir / "values.yaml"
    checks = "checks: [{file: '/run/gpus/{id}'}, {file: /sys/x}, {command: [gpu-test]}]"
    file.write_text(f"resources: {{a.example/b: {{health: {{{checks}}}}}}}\n")
    values.write_text("privileged: true\ncapabilities: [SYS_RAWIO]\n")
    command = ["manifests", "proxy", "--config", str(file)]
    captured = cli(*command, "--mount", "/opt/gpu:/gpu", "--values", values)
    assert "a.example/b: its health command runs in the container" in captured.err
    assert "must have gpu-test" in captured.err
    spec = pod_of([*yaml.safe_load_all(captured.out)])
    (container,) = spec["containers"]
    mounts = {each["mountPath"]: each.get("readOnly") for each in container["volumeMounts"]}
    assert mounts["/run/gpus"] is mounts["/gpu"] is True
    assert not {"/sys", "/sys/x"} & mounts.keys()
    assert container["securityContext"] == {
        "privileged": True,
        "allowPrivilegeEscalation": True,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["SYS_RAWIO"]},
    }
    values.write_text("capabilities: [CAP_SYS_RAWIO]\n")
    assert "write SYS_ADMIN, without CAP_" in cli(*command, "--values", values, code=2).err


def test_a_plugin_in_python_gets_its_arguments_and_mounts(cli: CommandLine) -> None:
    """`run` prints what `kubedevices run` takes, with the directories that were named."""
    arguments = ["--domain", "a.example", "--image", "lab.example/w:1", "--arg", "dev=/host/dev"]
    arguments += ["--mount", "/dev:/host/dev", "--mount", "/lib/firmware", "--mount", "/run/w:rw"]
    documents = printed(cli, "run", "w:W", *arguments)
    (container,) = pod_of(documents)["containers"]
    assert container["args"][:6] == [
        "run",
        "w:W",
        "--domain",
        "a.example",
        "--arg",
        "dev=/host/dev",
    ]
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in container["volumeMounts"]}
    del mounts["/var/lib/kubelet/device-plugins"]
    state = {"/var/lib/kubedevices": True}  # where `kubedevices cordon` writes
    assert mounts == {"/host/dev": True, "/lib/firmware": True, "/run/w": False} | state
    paths = [volume["hostPath"]["path"] for volume in pod_of(documents)["volumes"]]
    assert paths[1:] == ["/var/lib/kubedevices", "/dev", "/lib/firmware", "/run/w"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "w:W"], "run needs MODULE:CLASS and --domain"),
        (["run", "--domain", "a.b"], "run needs MODULE:CLASS"),
        (["run", "w:W", "--domain", "a b"], "a b"),
        (["run", "w:W", "--domain", "a.b", "--arg", "x"], "is not NAME=VALUE"),
        (["run", "w:W", "--domain", "a.b", "--mount", "/dev"], "/dev:/host/dev"),
        (["run", "w:W", "--domain", "a.b", "--mount", "x:/y"], "absolute paths"),
        (["run", "w:W", "--domain", "a.b", "--mount", "/x:/y/../z"], "absolute paths"),
        (["simulate", "--numa-nodes", "0,1"], "write NUMA_NODES=0,1 before kubedevices"),
        (["simulate", "--env-prefix", "A B"], "write 'ENV_PREFIX=A B' before kubedevices"),
        (["simulate", "w:W"], "MODULE:CLASS works with run only"),
        (["simulate", "--mount", "/x"], "--mount works with expose, proxy, run only"),
    ],
)
def test_invalid_manifest_options_are_refused(
    arguments: list[str], words: str, cli: CommandLine
) -> None:
    """One line says what is wrong."""
    assert words in cli("manifests", *arguments, code=2).err
