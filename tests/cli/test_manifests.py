"""`kubedevices manifests`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli import main

CONFIG = "version: 1\nnamespace: a.example\nresources: [{name: w, match: [{path: /dev/w}]}]\n"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(["manifests", *map(str, arguments)]) == 0
    return [*yaml.safe_load_all(capsys.readouterr().out)]


def pod_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = documents[-1]["spec"]["template"]["spec"]
    return pod


def test_it_is_unprivileged(capsys: pytest.CaptureFixture[str]) -> None:
    """No capability, no token, nothing writable but the plugin directory; one pod at a time."""
    documents = printed(capsys, "simulate")
    pod = pod_of(documents)
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    writable = [each for each in container["volumeMounts"] if not each.get("readOnly")]
    assert [each["mountPath"] for each in writable] == ["/var/lib/kubelet/device-plugins"]
    update = documents[-1]["spec"]["updateStrategy"]["rollingUpdate"]
    assert update == {"maxSurge": 0, "maxUnavailable": 1}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_simulator_gets_the_variables_that_are_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the name of its node from the API, whatever is set here."""
    monkeypatch.setenv("NUMBER_DEVICES", "7")
    monkeypatch.setenv("NODE_NAME", "here")
    (container,) = pod_of(printed(capsys, "simulate"))["containers"]
    env = {each["name"]: each for each in container["env"]}
    assert env["NUMBER_DEVICES"]["value"] == "7"
    assert env["NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_expose_brings_its_configuration(
    capsys: pytest.CaptureFixture[str], short_dir: Path
) -> None:
    """As a ConfigMap that is mounted where the arguments say, with all extras."""
    file = short_dir / "devices.yaml"
    file.write_text(CONFIG)
    arguments = ["--config", file, "--cdi", "--metrics", "--kubelet-dir", "/k"]
    arguments += ["--node-label", "a=b", "--namespace", "lab", "--image", "img:1"]
    _, config_map, daemon_set = documents = printed(capsys, "expose", *arguments)
    assert config_map["data"] == {"config.yaml": CONFIG}
    pod = pod_of(documents)
    (container,) = pod["containers"]
    words = " ".join(container["args"])
    assert words == (
        "expose --config /etc/kubedevices/config.yaml --dev-root /host/dev "
        "--socket-dir /k/device-plugins --inject cdi --listen 0.0.0.0:9400 "
        "--pod-resources /k/pod-resources/kubelet.sock"
    )
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounted == {
        "/etc/kubedevices",
        "/host/dev",
        "/k/device-plugins",
        "/k/pod-resources",
        "/var/run/cdi",
    }
    assert (pod["nodeSelector"], container["image"]) == ({"a": "b"}, "img:1")
    assert daemon_set["metadata"]["namespace"] == "lab"


def test_a_node_is_a_pod(capsys: pytest.CaptureFixture[str]) -> None:
    """For podman, so without anything that only a cluster has."""
    (pod,) = printed(capsys, "node")
    (container,) = pod["spec"]["containers"]
    assert pod["kind"] == "Pod"
    assert container["args"][0] == "node"


def test_printed_arguments_are_those_of_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    """The container would start: each verb's parser takes what the manifest says."""
    from importlib import import_module

    from kubedevices.cli import _verb_parser

    for what in ("simulate", "expose", "node"):
        document = printed(capsys, what)[-1]
        pod = document["spec"] if what == "node" else pod_of([document])
        verb, *arguments = pod["containers"][0]["args"]
        _verb_parser(import_module(f"kubedevices.cli.{verb}")).parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["simulate", "--config", "x"], 2, "--config and --cdi go with expose only"),
        (["expose", "--config", "none.yaml"], 3, "cannot read none.yaml"),
        (["expose", "--node-label", "a"], 2, "--node-label 'a' is not KEY=VALUE"),
        (["kustomize"], 2, "--directory goes with kustomize, which needs it"),
        (["node", "--directory", "x"], 2, "--directory goes with kustomize"),
        (["kustomize", "--directory", "/dev/null"], 3, "cannot write /dev/null/base/"),
    ],
)
def test_what_cannot_be_printed_is_told(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str
) -> None:
    """In one line."""
    assert main(["manifests", *arguments]) == code
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_a_mistake_in_the_configuration_is_found_before_it_is_deployed(
    capsys: pytest.CaptureFixture[str], short_dir: Path
) -> None:
    """With its line, instead of a pod that crashes."""
    file = short_dir / "devices.yaml"
    file.write_text("version: 1\nnamespace: a.example\nresorces: []\n")
    assert main(["manifests", "expose", "--config", str(file)]) == 2
    assert "devices.yaml:3:1: resorces" in capsys.readouterr().err
