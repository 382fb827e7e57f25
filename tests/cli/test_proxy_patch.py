"""`kubedevices manifests proxy --patch`: moves a plugin of others behind the proxy."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli import main

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
        "spec": {"template": {"spec": {"volumes": [{"name": "plugins", "hostPath": source}]}}},
    }


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
    capsys: pytest.CaptureFixture[str], short_dir: Path, text: str, problem: str
) -> None:
    """And with what to do."""
    file = short_dir / "theirs.yaml"
    file.write_bytes(text.encode("latin-1"))
    assert main(["manifests", "proxy", "--patch", str(file)]) == 2
    captured = capsys.readouterr()
    assert f"theirs.yaml:{problem}" in captured.err
    assert captured.out == ""


def test_a_missing_file_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do."""
    assert main(["manifests", "proxy", "--patch", "none.yaml"]) == 3
    assert "cannot read none.yaml" in capsys.readouterr().err
