"""`kubedevices manifests proxy --patch`: moves a plugin of others behind the proxy."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli import main
from tests.cli.commands import COMMAND, DEADLINE
from tests.command_line import CommandLine

DAEMON_SET = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: their-plugin, namespace: kube-system}
spec:
  template:
    spec:
      containers:
      - name: main
        image: theirs:1
        volumeMounts: [{name: plugins, mountPath: /var/lib/kubelet/device-plugins}]
      volumes:
      - {name: dev, hostPath: {path: /dev}}
      - {name: plugins, hostPath: {path: /var/lib/kubelet/device-plugins/}}
"""


def patched(capsys: pytest.CaptureFixture[str], file: Path, *more: str) -> list[dict[str, Any]]:
    assert main(["manifests", "proxy", "--patch", str(file), *more]) == 0
    return [*yaml.safe_load_all(capsys.readouterr().out)]


def volumes(patch: dict[str, Any]) -> dict[str, str]:
    found = patch["spec"]["template"]["spec"]["volumes"]
    return {each["name"]: each["hostPath"]["path"] for each in found}


def test_the_daemon_set_may_come_from_kubectl(short_dir: Path) -> None:
    """Through a pipe, for which a dash stands."""
    file = short_dir / "theirs.yaml"
    file.write_text(DAEMON_SET)
    with file.open() as stdin:
        words = [*COMMAND, "manifests", "proxy", "--patch", "-"]
        done = subprocess.run(
            words, stdin=stdin, capture_output=True, text=True, timeout=DEADLINE, check=True
        )
    assert volumes(yaml.safe_load(done.stdout)) == {"plugins": "/var/lib/kubedevices/plugins"}


def test_only_the_volume_of_the_plugin_directory_changes(
    capsys: pytest.CaptureFixture[str], short_dir: Path
) -> None:
    """A strategic-merge patch: names say what is meant, and all else stays."""
    file = short_dir / "theirs.yaml"
    file.write_text(DAEMON_SET)
    (patch,) = patched(capsys, file)
    source = {"path": "/var/lib/kubedevices/plugins", "type": "DirectoryOrCreate"}
    assert patch == {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "their-plugin", "namespace": "kube-system"},
        "spec": {
            "template": {
                "spec": {
                    "initContainers": patch["spec"]["template"]["spec"]["initContainers"],
                    "volumes": [{"name": "plugins", "hostPath": source}],
                }
            }
        },
    }


def init_container(patch: dict[str, Any]) -> dict[str, Any]:
    (found,) = patch["spec"]["template"]["spec"]["initContainers"]
    assert isinstance(found, dict)
    return found


def test_the_plugin_waits_for_the_proxy(
    capsys: pytest.CaptureFixture[str], cli: CommandLine, short_dir: Path
) -> None:
    """A kubelet is there before its plugins: without one some end, and some never register."""
    file = short_dir / "theirs.yaml"
    file.write_text(DAEMON_SET)
    (patch,) = patched(capsys, file, "--image", "lab.example.com/kubedevices:1")
    found = init_container(patch)
    assert found["image"] == "lab.example.com/kubedevices:1"
    (mount,) = found["volumeMounts"]
    assert mount["name"] == "plugins"
    assert found["args"][:4] == ["wait", "--registration", "--socket-dir", mount["mountPath"]]
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # The words are those of the verb: with nobody at the socket, it gives up after its time.
    arguments = [*found["args"][:3], str(short_dir), "--timeout", "1ms"]
    assert "plugins cannot register: after 0.001 s nothing answers" in cli(*arguments, code=1).err


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        ("{privileged: true, runAsUser: 0}", {"privileged": True, "runAsUser": 0}),
        (
            "{runAsUser: 7, runAsGroup: 8, seLinuxOptions: {type: spc_t, level: s0}}",
            {"runAsUser": 7, "runAsGroup": 8, "seLinuxOptions": {"type": "spc_t", "level": "s0"}},
        ),
    ],
)
def test_the_init_container_may_connect_where_the_plugin_may(
    theirs: str, mine: dict[str, Any], capsys: pytest.CaptureFixture[str], short_dir: Path
) -> None:
    """Its user, privilege and SELinux label are those of the container with the volume."""
    file = short_dir / "theirs.yaml"
    other = "      - {name: sidecar, image: x, securityContext: {runAsUser: 9}}\n"
    text = DAEMON_SET.replace("      - name: main\n", f"{other}      - name: main\n")
    image = "        image: theirs:1\n"
    text = text.replace(image, f"{image}        securityContext: {theirs}\n")
    file.write_text(text)
    (patch,) = patched(capsys, file)
    found = init_container(patch)["securityContext"]
    assert found.items() >= mine.items()
    assert ("privileged" in found) is not ("capabilities" in found)


def test_the_volume_of_the_plugin_registry_moves_too(
    capsys: pytest.CaptureFixture[str], short_dir: Path
) -> None:
    """Plugins of the plugin watcher use both directories, or only the registry."""
    file = short_dir / "theirs.yaml"
    registry = "  - {name: registry, hostPath: {path: /var/lib/kubelet/plugins_registry}}\n"
    file.write_text(f"{DAEMON_SET}    {registry}")
    (patch,) = patched(capsys, file)
    assert volumes(patch) == {
        "plugins": "/var/lib/kubedevices/plugins",
        "registry": "/var/lib/kubedevices/plugins_registry",
    }
    file.write_text(f"{DAEMON_SET}    {registry}".replace("device-plugins/", "other"))
    (patch,) = patched(capsys, file, "--inside-dir", "/inside/")
    assert volumes(patch) == {"registry": "/inside_registry"}
    file.write_text(file.read_text().replace("/var/lib/kubelet/plugins", "/k/plugins"))
    (patch,) = patched(capsys, file, "--kubelet-dir", "/k")
    assert volumes(patch) == {"registry": "/var/lib/kubedevices/plugins_registry"}


def test_every_daemon_set_and_every_volume_of_the_directory_is_patched(
    capsys: pytest.CaptureFixture[str], short_dir: Path
) -> None:
    """In several documents, or in a List as kubectl prints it; other objects are left alone."""
    file = short_dir / "theirs.yaml"
    second = "  - {name: again, hostPath: {path: /other}}\n"
    other = DAEMON_SET.replace("their", "other").replace(
        "/var/lib/kubelet/device-plugins/", "/other"
    )
    file.write_text(f"kind: Namespace\n---\n{DAEMON_SET}---\n{other}    {second}---\n")
    (patch,) = patched(capsys, file)
    assert volumes(patch) == {"plugins": "/var/lib/kubedevices/plugins"}
    (patch,) = patched(capsys, file, "--plugin-dir", "/other", "--inside-dir", "/inside")
    assert patch["metadata"]["name"] == "other-plugin"
    assert volumes(patch) == {"plugins": "/inside", "again": "/inside"}
    found = [*yaml.safe_load_all(file.read_text())][1:3]
    file.write_text(yaml.safe_dump({"kind": "List", "items": found}))
    assert len(patched(capsys, file)) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            DAEMON_SET.replace("device-plugins/", "other"),
            "1:1: their-plugin: no volume is the kubelet's directory /var/lib/kubelet",
        ),
        (
            DAEMON_SET.replace("/device-plugins/", ""),
            "13:9: their-plugin: the volume 'plugins' is /var/lib/kubelet, but the ",
        ),
        (
            f"kind: Service\n---\n{DAEMON_SET.replace('DaemonSet', 'Deployment')}",
            "3:1: this is a Deployment, not a DaemonSet",
        ),
        ("", "1:1: the file has no object"),
        ("[]\n", "1:1: this is not a Kubernetes object"),
        ("a: b: c\n", "1:5: not valid YAML: mapping values"),
        ("\xff\n", "1:1: this is not UTF-8 text"),
    ],
)
def test_an_object_without_a_patch_is_reported_with_its_line(
    cli: CommandLine, short_dir: Path, text: str, problem: str
) -> None:
    """And with what to do."""
    file = short_dir / "theirs.yaml"
    file.write_bytes(text.encode("latin-1"))
    captured = cli("manifests", "proxy", "--patch", file, code=2)
    assert f"theirs.yaml:{problem}" in captured.err
    assert captured.out == ""


def test_a_missing_file_is_reported(cli: CommandLine) -> None:
    """With what to do."""
    assert "cannot read none.yaml" in cli("manifests", "proxy", "--patch", "none.yaml", code=3).err
